"""Every example in the README and the documentation runs, each block in its own namespace and an empty folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from margmap.cli import app

ROOT = Path(__file__).parent.parent
# The blocks of other-libraries.md run with the real libraries, in tests/interop.
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in ("other-libraries.md", "formats.md")),
]


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


@pytest.mark.parametrize("text", blocks("sh", [ROOT / "README.md", ROOT / "docs" / "cli.md"]))
def test_margmap_commands_run(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that start with `margmap`, in order, in one folder; other lines are not for a test to run."""
    monkeypatch.chdir(tmp_path)
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["margmap"]:
            here = [str(ROOT / word) if word.startswith("src/") else word for word in words[1:]]
            result = CliRunner().invoke(app, here, prog_name="margmap")
            assert result.exit_code == 0, result.stderr
