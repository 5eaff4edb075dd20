"""The twenty binary datasets that learners of circuits are compared on: where they are, and how to get them."""

from __future__ import annotations

import gzip
import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from margmap.errors import DataError, FormatError, MargmapError
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


#: All twenty, by name.
DATASETS: dict[str, Dataset] = {
    "accidents": Dataset(
        "accidents",
        111,
        (12758, 1700, 2551),
        (
            "a76648cf00772c275b4277b21d858e235e3c6d3c5ef30beeb4958189b6bed21c",
            "fd3a80a0f411f157cf3772a057d26980bb166cb89b10cafb818a53f1ec30d46d",
            "df3f1b6c035bf3e306a7d7127320e479d2546ce14a5d6d3043e6be0925b8b414",
        ),
    ),
    "ad": Dataset(
        "ad",
        1556,
        (2461, 327, 491),
        (
            "045d428f4d16f11adc165c0bd6e3d148236890385fd2c1283678d4eb12a88fd6",
            "409f039d6d4c859b5b00a45407560cf634321556390e39d9cd481f4cb69401d4",
            "230c3d09c21b36144185c04cb89d3b21090670561778f766721165bb7d9cca97",
        ),
    ),
    "baudio": Dataset(
        "baudio",
        100,
        (15000, 2000, 3000),
        (
            "b1ec73f4aa9d4ce48b465ded865cc3d22b3f68cf6258f9e15fbef8902138add1",
            "7164d8a4943f74953f0e982002d84693fdf483e17f69e7407dc939c5ce5622fe",
            "1474f3206f1f35e099803a0f40b0cd209bdc8d787825095ef6cb23fd87ed0d05",
        ),
    ),
    "bbc": Dataset(
        "bbc",
        1058,
        (1670, 225, 330),
        (
            "a6f0ba467ebf502ba3b37caa1f20e43ff82664dcd580be92010106cf80fb0db1",
            "f6a37bd58cdb6745725628be19dfd3b9b795082faa8ca771b8f27dbf4a5ff46d",
            "7116fce92a1f3d610cee673a974c8c9895957ee07ce6f086b431ee296aa7734a",
        ),
    ),
    "bnetflix": Dataset(
        "bnetflix",
        100,
        (15000, 2000, 3000),
        (
            "73c87cf0635ec734cc0726a5c644b904ff33e81ea51f1049db0e77b787ebad7c",
            "7f0a3e597c6f305f707f9ecd2b2aa523c576cdb17fdc5d902fc832ebea5163de",
            "af73990782fd2f146d96059855c4f3bbb6a7a7caefc417ff620a3ed1415a2395",
        ),
    ),
    "book": Dataset(
        "book",
        500,
        (8700, 1159, 1739),
        (
            "e2458d1db3b9f2ad74a4034dee19c72213d20bd246a51750ef728041e130b6a7",
            "a111d7a024f88b062c60431306ad521dec64ec6cc2a2bca10503da647d1f0aaf",
            "94e7ec33fe7a84b4a92f248d8f0c0e35143f3cd56f5a609f4311c38218e420b9",
        ),
    ),
    "c20ng": Dataset(
        "c20ng",
        910,
        (11293, 3764, 3764),
        (
            "918fef27a3a6d382f1af3713a81a8465c63d56339a26e183d22b682b18ef8dd3",
            "be357eab542b402197548801af1511e51f6435f29c069f39e09ca5763db03bef",
            "534d7675128740ea820e9ce2be84ed0f52e670b8224ce9c83a4a22492e60ec8c",
        ),
    ),
    "cr52": Dataset(
        "cr52",
        889,
        (6532, 1028, 1540),
        (
            "fa334e35e419301883463bb42043f54d814d1865d90dd92eef09f997efab8095",
            "9dbb0c6537b4ba3ee5316425dadf4b9e29c36b74e4ccfef28728f2d33a5c0e96",
            "758a2ec314962c902dcc57562b92d98317b1f662b8eb1e529a0aa3b67a20c5d4",
        ),
    ),
    "cwebkb": Dataset(
        "cwebkb",
        839,
        (2803, 558, 838),
        (
            "d5c73fba414b6bfeb483781fa353220e5b94456e3c661aa14cc8094a35aaca55",
            "1ab1f1abe7b20a4d78009eaaf64a78f5798a82a7823b8b3368abca4c16398a9e",
            "d84dddffec11d4dc80f90afa3160fe8d54311de8a368383708123087f39f8ac4",
        ),
    ),
    "dna": Dataset(
        "dna",
        180,
        (1600, 400, 1186),
        (
            "bb8de0ca4b6ad9b610036b7a302962ebecd4b504354b14c02c7d0bee48d207d9",
            "4b0fc89cda5eaf5c75926e281afb6af99de194a546070d5b81b524ba251f4f3f",
            "fec3ae7b26804020a9c43c99828441c5e08bb76b23719368a74ad2b09af99100",
        ),
    ),
    "jester": Dataset(
        "jester",
        100,
        (9000, 1000, 4116),
        (
            "dd93578c3359d5b234bb278bf0901c5215d83b910f7d51d7c91951a0a4c244cd",
            "91df833941e189265345898d3f63211560c2456df599f34beee8e95381ee7524",
            "346044fb561cf18f284f7e9d5896178b03048991b6ebb6f7482885fccbc16082",
        ),
    ),
    "kdd": Dataset(
        "kdd",
        64,
        (180092, 19907, 34955),
        (
            "8d26e8e5baf164df3315bf33861e53052457200a9a57834eae027d84c6e28c12",
            "582aae9cf84785758869328d44295428395c53e5a091855ca0bf141a53c70765",
            "5cc76212353d13ffc98574c29c14b4b7b7363081acc3a76214e5ff2a5baa79b2",
        ),
    ),
    "kosarek": Dataset(
        "kosarek",
        190,
        (33375, 4450, 6675),
        (
            "31ca93de99cf823c22fb207a81043834c887e52b71d86c586a4939be16a2206a",
            "5a4a5edc60b9c30a76b44fdc2978e976fec49c1544e850fe72a73ee60f760aa4",
            "c54cb99ae56399e26005daba5d56d92d215f73fbb46ce75b9a919690b2990225",
        ),
    ),
    "msnbc": Dataset(
        "msnbc",
        17,
        (291326, 38843, 58265),
        (
            "92b1f4ed42ef87dafd6fe57c2e5c3b3dbc565157d2bc994a9b423898cd656e5e",
            "b937466c3e09b956b271438b2ff45ca4dc8b91890c9de6d02e486b0e22bf4e27",
            "60ff71cc017cfde0bd84f0cd383ccd29065f5c06a64404b77d28c4b26aa1aca5",
        ),
    ),
    "msweb": Dataset(
        "msweb",
        294,
        (29441, 3270, 5000),
        (
            "dc70b036c0af1822f39e12d4bfdb9a67dcfa23da40fbae4dbd7f83becf0b7a5b",
            "a317cd9261dfa29982f0b8663943292773f6c31220d06071e9165c7c9eca13f5",
            "a4f071037f0734618695bc8428e8d8ffefc03e52ff97f37e17c928fc964819ff",
        ),
    ),
    "nltcs": Dataset(
        "nltcs",
        16,
        (16181, 2157, 3236),
        (
            "e547a7aedad1dd2f7177030881ab1b92c7e24ae5464c71a0f1f89daecaf52b30",
            "93bbbf5c6febdc9bc6e5b5bfab636f4dc0685ab2896d24b23dd267794c3bfcf6",
            "f9ffa6b74b27dc03bee3203d157ee31079e80b13be40d0c0093d635c25aed523",
        ),
    ),
    "plants": Dataset(
        "plants",
        69,
        (17412, 2321, 3482),
        (
            "1fb1219ff94068d12a563f9e81f8889a1885f41e867884cff608669300c6848f",
            "47834ed318b2d74f48e4b083226ef47fd446d41986012ceae19d230574821b34",
            "95f53c033cd1d86467aec2610dc5bfe014534206c2da4919f73bcab246ab8755",
        ),
    ),
    "pumsb_star": Dataset(
        "pumsb_star",
        163,
        (12262, 1635, 2452),
        (
            "27e610b5f9f507f94ebf8a227f8b96cc59d7eed51e06ee5d2fe8353afbc1524c",
            "6a491d1ea64eb0249dddd168fdddeef88aa21001a933eb7309603b6466187af8",
            "b2da195314ac17f9d8d171743c5f98a28ea9583332a52d34aa228ff2e11aa8e7",
        ),
    ),
    "tmovie": Dataset(
        "tmovie",
        500,
        (4524, 1002, 591),
        (
            "f76927e1b763487af99baa07e8de8e4641595cbdd57eb2ccddfff2ce5c33cb59",
            "5162bf6ba0cd3d94d5107a48f7a3be4c6f0ca2cc99ef9a2273fa5bb1787cf257",
            "805e27d91fb2bff00d0183a3e941721bf93050efdd45b77ffd79d4bb906168d6",
        ),
    ),
    "tretail": Dataset(
        "tretail",
        135,
        (22041, 2938, 4408),
        (
            "f85cbbde32672c029ff3c53b44e81bb29a6843cb50f962d2ae0b7326da9d7df0",
            "69024b394252f491a518ca93e164029fdae7d8c8eae7105739e8ab517b62e418",
            "474ffe4b10b213c0539a95d070955c35f042eb80d5a6198f7fca849cae28b378",
        ),
    ),
}


def load_dataset(name: str, folder: str | PathLike[str] | None = None) -> Splits:
    """The three splits of a dataset, from ``folder/NAME/NAME.train.data`` and so on, plain or gzipped.

    Without a folder it is the one that the variable MARGMAP_DATA names. Files other than the public ones are refused.
    """
    entry = find(name)
    place = data_folder(folder)
    found = [_path(place, name, split) for split in SPLITS]
    for path, split in zip(found, SPLITS, strict=True):
        if path is None:
            raise DataError(
                f"there is no {place / name / f'{name}.{split}.data'}, plain or .gz: get the files with "
                f"'margmap datasets --download {name} --data {place}', or copy them there from "
                "github.com/UCLA-StarAI/Density-Estimation-Datasets"
            )
    train, valid, test = (_read(path, entry, i) for i, path in enumerate(found) if path is not None)
    return Splits(train, valid, test)


def find(name: str) -> Dataset:
    """The entry of a dataset."""
    if name not in DATASETS:
        raise DataError(f"there is no dataset {name!r}: the twenty are {', '.join(DATASETS)}")
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
            scratch = target.with_name(f".{target.name}.tmp")
            scratch.write_bytes(gzip.compress(content, mtime=0))
            scratch.replace(target)
        except OSError as error:
            raise FormatError(f"cannot be written: {error.strerror or error}", path=target) from error
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
    for suffix in (".data.gz", ".data"):
        for path in (folder / name / f"{name}.{split}{suffix}", folder / f"{name}.{split}{suffix}"):
            if path.is_file():
                return path
    return None


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
    except MargmapError as error:
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
