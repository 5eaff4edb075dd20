"""The twenty binary datasets that learners of circuits are compared on: where they are, and how to get them."""

from __future__ import annotations

import gzip
import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from margmap.errors import DataError, FormatError
from margmap.foundation.wording import did_you_mean
from margmap.io.files import write_bytes
from margmap.learn.table import Codes

Split: TypeAlias = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")

#: The variable that names the folder, where a call or the command does not.
FOLDER_VARIABLE = "MARGMAP_DATA"

#: Where the public files are.
SOURCE = "https://raw.githubusercontent.com/UCLA-StarAI/Density-Estimation-Datasets/master/datasets"

_SECONDS = 30.0
# No file of the twenty is larger than this.
_MOST_BYTES = 64 << 20


class Dataset(NamedTuple):
    """Name, number of variables, rows of the three splits, and the SHA-256 of their rows."""

    name: str
    variables: int
    rows: tuple[int, int, int]
    sha256: tuple[str, str, str]


class Splits(NamedTuple):
    """The rows of a dataset."""

    train: Codes
    valid: Codes
    test: Codes


def _known() -> dict[str, Dataset]:
    lines = resources.files("margmap.learn").joinpath("datasets.csv").read_text("utf-8").splitlines()
    entries = (line.split(",") for line in lines[1:])
    return {
        name: Dataset(name, int(variables), (int(train), int(valid), int(test)), (first, second, third))
        for name, variables, train, valid, test, first, second, third in entries
    }


#: All twenty, by name.
DATASETS: dict[str, Dataset] = _known()


def load_dataset(name: str, folder: str | PathLike[str] | None = None) -> Splits:
    """The three splits of a dataset, from ``folder/NAME/NAME.train.data`` and so on, plain or gzipped.

    Without a folder it is the one that the variable MARGMAP_DATA names. Files other than the public ones are refused.
    """
    entry, place = find(name), data_folder(folder)
    found: list[Codes] = []
    for split in SPLITS:
        path = _path(place, name, split)
        if path is None:
            raise DataError(
                f"there is no {place / name / f'{name}.{split}.data'}, plain or .gz: get the files with "
                f"'margmap datasets --download {name} --data {place}', or copy them there from "
                "github.com/UCLA-StarAI/Density-Estimation-Datasets"
            )
        found.append(_read(path, entry, len(found)))
    return Splits(*found)


def find(name: str) -> Dataset:
    """The entry of a dataset."""
    if name not in DATASETS:
        near = did_you_mean(name, DATASETS)
        raise DataError(f"there is no dataset {name!r}: {near}the twenty are {', '.join(DATASETS)}")
    return DATASETS[name]


def data_folder(folder: str | PathLike[str] | None = None) -> Path:
    """The folder given, or that of the environment."""
    chosen = folder if folder is not None else os.environ.get(FOLDER_VARIABLE)
    if not chosen:
        raise DataError(f"no folder of datasets: give one (--data DIR), or set {FOLDER_VARIABLE}")
    return Path(chosen)


def present(name: str, folder: Path) -> bool:
    """Whether all three files of a dataset are in a folder; their contents are not looked at."""
    return all(_path(folder, name, split) is not None for split in SPLITS)


def download(
    name: str, folder: str | PathLike[str] | None = None, fetch: Callable[[str], bytes] | None = None
) -> list[Path]:
    """Get the files of a dataset that are not in the folder yet; one with a wrong checksum is not kept."""
    entry, place = find(name), data_folder(folder)
    written = []
    for i, split in enumerate(SPLITS):
        if _path(place, name, split) is not None:
            continue
        address = f"{SOURCE}/{name}/{name}.{split}.data"
        content = (fetch or _fetch)(address)
        if _checksum(content) != entry.sha256[i]:
            raise DataError(f"{address}: the checksum is not the expected one, so nothing was kept")
        target = place / name / f"{name}.{split}.data.gz"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FormatError(f"cannot be written: {error.strerror or error}", path=target) from error
        write_bytes(target, gzip.compress(content, mtime=0))
        written.append(target)
    return written


def _fetch(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=_SECONDS) as answer:
            content: bytes = answer.read(_MOST_BYTES + 1)
    except (urllib.error.URLError, OSError, ValueError) as error:
        why = getattr(error, "reason", error)
        raise DataError(
            f"{address} cannot be reached ({why}). Without a network, copy the files from another machine into "
            f"DIR/NAME/NAME.train.data, .valid.data and .test.data (plain or .gz), and give --data DIR or set "
            f"{FOLDER_VARIABLE}"
        ) from error
    return content


def _plain(content: bytes) -> bytes:
    """The rows without what copies of a file can differ in: spaces, and how lines end."""
    return content.replace(b"\r\n", b"\n").replace(b" ", b"").rstrip() + b"\n"


def _checksum(content: bytes) -> str:
    return hashlib.sha256(_plain(content)).hexdigest()


def _path(folder: Path, name: str, split: str) -> Path | None:
    files = (f"{name}.{split}.data.gz", f"{name}.{split}.data")
    paths = (place / file for file in files for place in (folder / name, folder))
    return next((path for path in paths if path.is_file()), None)


def _read(path: Path, entry: Dataset, split: int) -> Codes:
    try:
        raw = path.read_bytes()
        content = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError) as error:
        raise FormatError(f"cannot be read: {error}", path=path) from error
    if _checksum(content) != entry.sha256[split]:
        raise FormatError("not the public file of that name (its checksum differs): fetch it again", path=path)
    try:
        return parse_binary(content, entry.variables)
    except DataError as error:
        raise FormatError(str(error), path=path) from None


def parse_binary(content: bytes, variables: int) -> Codes:
    """Rows of comma-separated 0 and 1, fast: every second byte is a digit."""
    array = np.frombuffer(_plain(content), dtype=np.uint8)
    width = 2 * variables
    if array.size % width:
        raise DataError(f"not rows of {variables} values")
    rows = array.reshape(-1, width)
    digits = rows[:, ::2] - ord("0")
    if (digits > 1).any() or (rows[:, 1:-1:2] != ord(",")).any() or (rows[:, -1] != ord("\n")).any():
        raise DataError("not rows of comma-separated 0 and 1")
    return np.ascontiguousarray(digits)
