"""``margmap datasets``: the twenty datasets that learners are compared on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

from margmap.cli.options import DataFolder, Json, option
from margmap.cli.output import print_json, print_table, printable, spinner

_DOWNLOAD = "Get a dataset that is not there, or all; may be repeated."


def datasets(
    download: Annotated[list[str] | None, option("NAME", _DOWNLOAD)] = None,
    folder: DataFolder = None,
    json: Json = False,
) -> None:
    """List the twenty datasets that learners are compared on, and which of them are in a folder; or download them."""
    written = _fetch(download, folder) if download else []
    place = folder or (Path(os.environ["MARGMAP_DATA"]) if os.environ.get("MARGMAP_DATA") else None)
    rows = _listing(place)
    if json:
        answer: dict[str, Any] = {"folder": None if place is None else str(place), "datasets": rows}
        print_json(answer | ({"written": [str(path) for path in written]} if download else {}))
        return
    for path in written:
        print(f"wrote {printable(str(path))}")
    header = ("dataset", "variables", "train", "valid", "test", "here")[: len(rows[0])]
    shown = [{**row, "present": "yes" if row.get("present") else "no"} for row in rows]
    print_table(header, [list(row.values())[: len(header)] for row in shown])
    if place is None:
        print("Give --data DIR or set MARGMAP_DATA to see which are there; --download NAME gets one.")


def _listing(folder: Path | None) -> list[dict[str, Any]]:
    """The twenty datasets; with a folder also whether they are there."""
    from margmap.learn.datasets import DATASETS, present

    return [
        {
            "name": d.name,
            "variables": d.variables,
            **dict(zip(("train", "valid", "test"), d.rows, strict=True)),
            **({} if folder is None else {"present": present(d.name, folder)}),
        }
        for d in DATASETS.values()
    ]


def _fetch(names: list[str], folder: Path | None) -> list[Path]:
    """Download datasets, all twenty for ``all``."""
    from margmap.learn.datasets import DATASETS, data_folder, download, find

    place = data_folder(folder)
    written = []
    for name in list(DATASETS) if names == ["all"] else [find(name).name for name in names]:
        with spinner(f"Downloading {name} ..."):
            written += download(name, place)
    return written
