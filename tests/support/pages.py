"""Pages of the documentation as programs: their fenced blocks, in order, and how each of them is run.

A Python block runs as it stands, in a namespace of its own; the blocks of a tutorial go on from one another. Of a shell
block every line is run: ``margmap`` in this process, and the few harmless commands of :data:`SHELL` by themselves. A
block of output, ``text`` directly below a block that runs, must be what it prints (``...`` stands for anything).
A block that cannot be run has the comment ``<!-- not run: reason -->`` above it.
"""

from __future__ import annotations

import contextlib
import doctest
import glob
import io
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
SHELL = ("cat", "head", "ls")
SHELLS = ("sh", "console")
PYTHON = ("python", "py")

_FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]*?) -->\n\n?)?^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```$",
    flags=re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block: where it is, what it holds, what it prints if the page says so, and why it is not run if so."""

    page: str
    line: int
    language: str
    code: str
    prints: str | None = None
    reason: str | None = None

    @property
    def place(self) -> str:
        """``docs/tour.md:12``, for messages."""
        return f"{self.page}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """The blocks of a page that a reader can run, with what they print."""
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix()
    found: list[Block] = []
    end = -1
    for match in _FENCE.finditer(text):
        language, code = match["language"], match["code"]
        if language in (*SHELLS, *PYTHON):
            line = text.count("\n", 0, match.start("code")) + 1
            found.append(Block(name, line, language, code, None, match["reason"]))
        elif language == "text" and found and text[end : match.start()].strip() == "" and end >= 0:
            last = found.pop()
            found.append(Block(last.page, last.line, last.language, last.code, code, last.reason))
        end = match.end() if language in (*SHELLS, *PYTHON) else -1
    return found


def run(block: Block, names: dict[str, Any]) -> None:
    """Run a block in the current folder, and compare what it prints with the page."""
    try:
        if block.language in PYTHON:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(block.code, block.place, "exec"), names)
            printed = out.getvalue()
        else:
            printed = "".join(_command(line) for line in commands(block))
    except Exception as error:
        error.add_note(f"in the block at {block.place}") if hasattr(error, "add_note") else None
        raise
    if block.prints is not None:
        got, want = _trimmed(printed), _trimmed(block.prints)
        assert doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS), f"{block.place} prints\n{got}"


def commands(block: Block) -> list[str]:
    """The lines of a shell block, without prompts and comments, continued lines joined."""
    lines = block.code.replace("\\\n", " ").splitlines()
    found = [line.removeprefix("$ ").strip() for line in lines]
    return [line for line in found if line and not line.startswith("#")]


def _command(line: str) -> str:
    from margmap.cli import app

    words = shlex.split(line, comments=True)
    while re.fullmatch(r"[A-Z_]+=\S*", words[0]):  # a variable of the environment, which tests set themselves
        words.pop(0)
    if words[0] in SHELL:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert words[0] == "margmap", f"{line!r} cannot be run: mark the block with <!-- not run: reason -->"
    words = [name for word in words[1:] for name in (sorted(glob.glob(word)) if "*" in word else [word])]
    done = CliRunner().invoke(app, words, prog_name="margmap", env={"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, f"{line}: exit code {done.exit_code}\n{done.stderr}"
    return done.stdout


def _trimmed(text: str) -> str:
    """Without blanks at the ends of lines and blank lines at the ends, which no page has."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"
