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


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


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
    if "shop.csv" in text:  # the tour has just written it
        made = next(code for code in python_blocks(ROOT / "docs" / "tour.md") if "shop.csv" in code)
        exec(compile(made, "example", "exec"), {"__name__": "example"})
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
    expected = {f"margmap.{name}" for name in mm.__all__}
    for module in (mm.constraints, mm.learn, mm.plot):
        expected |= {f"margmap.{module.__name__.split('.')[-1]}.{name}" for name in module.__all__}
    assert sorted(names) == sorted(set(names))
    data = {"margmap.learn.DATASETS", "margmap.plot.FORMATS"}  # shown with load_dataset and with save
    assert expected - set(names) == data
    for name, entry in zip(names, entries, strict=True):
        assert "```python\n" in entry or "other-libraries.md#" in entry, name


def test_the_examples_have_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the README and the tour show passes `mypy --strict`, each block as a program of its own."""
    api = pytest.importorskip("mypy.api", reason="mypy is not installed")
    files = []
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "tour.md"):
        for i, code in enumerate(python_blocks(page)):
            files.append(tmp_path / f"{page.stem.lower()}_{i}.py")
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
