"""Every example in the README and the documentation runs: each page from its first block to its last, in one folder."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import margmap as mm
import pages
from pages import ROOT

# The blocks of other-libraries.md run with the real libraries, in tests/interop.
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "other-libraries.md"),
]

#: Pages whose examples are programs with types: those that a newcomer reads.
TYPED = [
    *(ROOT / name for name in ("README.md", "docs/index.md", "docs/tour.md", "docs/why-not-mpe.md")),
    *sorted((ROOT / "docs" / "tutorials").glob("*.md")),
]

#: How many blocks of a page are not run; each says above it why ...
NOT_RUN = {
    "README.md": 1,
    "docs/benchmarks/bayesnet.md": 2,
    "docs/benchmarks/paper/README.md": 1,
    "docs/benchmarks/paper/ablation.md": 1,
    "docs/benchmarks/paper/beyond.md": 1,
    "docs/benchmarks/paper/large/report.md": 1,
    "docs/benchmarks/paper/report.md": 1,
    "docs/howto/cluster.md": 2,
    "docs/howto/diagnosis.md": 1,
    "docs/howto/explore.md": 1,
    "docs/howto/first-answer.md": 1,
    "docs/howto/learning.md": 1,
    "docs/index.md": 1,
    "docs/reliability.md": 1,
    "docs/tour.md": 1,
    "docs/tutorials/clusters.md": 2,
}
#: ... or is a command with which a record of these pages was made, in hours.
RECORDS = ("docs/benchmarks/", "docs/reliability.md")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def is_run(block: pages.Block) -> bool:
    return block.reason is None and not (block.language in pages.SHELLS and block.page.startswith(RECORDS))


@pytest.mark.parametrize("page", [page for page in PAGES if pages.blocks(page)], ids=name_of)
def test_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What its blocks say they print is what they print; the blocks of a tutorial share their names."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "example"}
    left_out = False
    for block in pages.blocks(page):
        if not is_run(block):
            continue
        if "dask=" in block.code and find_spec("distributed") is None:
            left_out = True
            continue
        if page.parent.name != "tutorials":
            names = {"__name__": "example"}
        pages.run(block, names)
    if left_out:
        pytest.skip("without the blocks for Dask: the extra `cluster` is not installed")


def test_blocks_that_are_not_run_are_counted() -> None:
    """A block that a reader can type is run, unless it says why it cannot be."""
    found = {name_of(page): sum(not is_run(block) for block in pages.blocks(page)) for page in PAGES}
    assert {name: number for name, number in found.items() if number} == NOT_RUN


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", "prints"),
        ("```python\nassert not 1, 'one'\n```\n", "one"),
        ("```sh\nmargmap solve clinic --query nobody\n```\n", "exit code 2"),
        ("```sh\nmargmap marginal clinic\n```\n\n```text\nlog p(e) = 1\n```\n", "prints"),
        ("```sh\npip install margmap\n```\n", "not run: reason"),
    ],
)
def test_a_page_that_is_wrong_is_noticed(text: str, message: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(text)
    (block,) = pages.blocks(tmp_path / "page.md")
    with pytest.raises(AssertionError, match=message):
        pages.run(block, {})


def test_marks_and_output_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text(
        "<!-- not run: no such machine -->\n```sh\nssh there\n```\n\nWords.\n\n```text\nno output\n```\n\n"
        "```python\nprint('a  ')\nprint(0.123)\n```\n\n```text\na\n0.1...\n```\n"
    )
    first, second = pages.blocks(tmp_path / "page.md")
    assert (first.reason, first.prints) == ("no such machine", None)
    assert (second.reason, second.line) == (None, 13)
    pages.run(second, {})


def test_every_public_name_is_in_the_reference() -> None:
    """One entry each, with an example, or for what needs another library, a link to one that runs with it."""
    pages = [page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "reference").glob("*.md"))]
    entries = [entry for page in pages for entry in re.split(r"^::: ", page, flags=re.MULTILINE)[1:]]
    names = [entry.split("\n")[0].strip() for entry in entries]
    expected = {f"margmap.{name}" for name in mm.__all__}
    for module in (mm.constraints, mm.learn, mm.plot):
        expected |= {f"margmap.{module.__name__.split('.')[-1]}.{name}" for name in module.__all__}
    assert sorted(names) == sorted(set(names))
    data = {"margmap.learn.DATASETS", "margmap.plot.FORMATS"}  # shown with load_dataset and with save
    assert expected - set(names) == data
    for name, entry in zip(names, entries, strict=True):
        assert "```python\n" in entry or "other-libraries.md#" in entry, name


def test_the_examples_have_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a newcomer reads passes `mypy --strict`: each block, or each tutorial, as a program of its own."""
    api = pytest.importorskip("mypy.api", reason="mypy is not installed")
    files = []
    for page in TYPED:
        codes = [block.code for block in pages.blocks(page) if block.language == "python"]
        for i, code in enumerate(["\n".join(codes)] if page.parent.name == "tutorials" else codes):
            files.append(tmp_path / f"example{len(files)}_{page.stem.lower().replace('-', '_')}_{i}.py")
            files[-1].write_text(code)
    wrong = tmp_path / "misspelt.py"
    wrong.write_text('import margmap as mm\n\nmm.marginal_mapp(mm.load("clinic"), ["illness"])\n')
    monkeypatch.chdir(ROOT)  # with the settings and the cache of `make types`
    monkeypatch.setenv("MYPYPATH", "src")
    out, err, _ = api.run(["--strict", "--scripts-are-modules", *map(str, [*files, wrong])])
    lines = [line for line in out.splitlines() if ": error:" in line]
    assert err == ""
    assert len(lines) == 1, out
    assert "misspelt.py:3" in lines[0]
    assert "marginal_mapp" in lines[0]
