"""Every example in the README and the documentation runs, each block in its own namespace and an empty folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import margmap as mm
from margmap.cli import app

ROOT = Path(__file__).parent.parent
# The blocks of other-libraries.md run with the real libraries, in tests/interop.
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "other-libraries.md"),
]

# Pages whose commands run as they stand, without files of the reader.
COMMANDS = [ROOT / "README.md", *(ROOT / "docs" / name for name in ("cli.md", "index.md", "tour.md"))]


def blocks(language: str, pages: list[Path]) -> list[object]:
    found: list[object] = []
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 2
            found.append(pytest.param(match[1], id=f"{page.relative_to(ROOT)}:{line}"))
    return found


@pytest.mark.parametrize("code", blocks("python", PAGES))
def test_python_blocks_run(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "dask=" in code:
        pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "example", "exec"), {"__name__": "example"})


@pytest.mark.parametrize("text", blocks("sh", COMMANDS))
def test_margmap_commands_run(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that start with `margmap`, in order, in one folder; other lines are not for a test to run."""
    monkeypatch.chdir(tmp_path)
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["margmap"]:
            here = [str(ROOT / word) if word.startswith("src/") else word for word in words[1:]]
            result = CliRunner().invoke(app, here, prog_name="margmap")
            assert result.exit_code == 0, result.stderr


def test_every_public_name_is_in_the_reference() -> None:
    """One entry each, with an example, or for what needs another library, a link to one that runs with it."""
    pages = [page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "reference").glob("*.md"))]
    entries = [entry for page in pages for entry in re.split(r"^::: ", page, flags=re.MULTILINE)[1:]]
    names = [entry.split("\n")[0].strip() for entry in entries]
    expected = {f"margmap.{name}" for name in mm.__all__} | {f"margmap.learn.{name}" for name in mm.learn.__all__}
    assert sorted(names) == sorted(set(names))
    assert expected - set(names) == {"margmap.learn.DATASETS"}  # it is data, shown with load_dataset
    for name, entry in zip(names, entries, strict=True):
        assert "```python\n" in entry or "other-libraries.md#" in entry, name
