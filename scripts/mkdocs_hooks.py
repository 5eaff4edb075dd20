"""What the documentation site makes while it is built: help pages, formulas as MathML, links that leave the folder.

MkDocs calls the functions of this file by their names (``hooks`` in mkdocs.yml). Nothing is fetched: formulas become
MathML here, which browsers show by themselves.
"""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

_CODE = re.compile(r"(^```.*?^```$|^(?: {4}|\t).*?$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
_INLINE = re.compile(r"(?<![\\$\w])\$([^$\n]+?)\$(?![\w$])")
_ROLE = re.compile(r":(?:func|class|mod|meth|attr|data):<code>([^<]*)</code>")
_INLINE_CODE = re.compile(r"(?<!<pre>)<code>([^<\n]+)</code>")
#: Code in a sentence of at most this many characters stays on one line; names longer than LONG may be broken anywhere.
SHORT, LONG = 24, 40
_UNIT = re.compile(r"(?<=\d) (?=(?:%|s|ms|M|kB|MB|GB|nats|bytes)(?:<|,|\)|$))")
_CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the page with the help of every command, made from the program itself."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "cli-help.md", content=help_page()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Formulas become MathML; a link to a file outside of docs/ becomes the name of that file."""
    parts = _CODE.split(markdown)
    here = (DOCS / page.file.src_uri).parent
    return "".join(part if i % 2 else _prose(part, here) for i, part in enumerate(parts))


def on_page_content(html: str, **_: Any) -> str:
    """Names and numbers as they are best read.

    Roles in docstrings, such as ``:func:`margmap.load```, are shown as the name alone; code is told where it may be
    broken; in tables, a number stays with its unit, and a bar, before which Markdown wants a backslash, loses it.
    """
    html = _ROLE.sub(lambda found: f"<code>{found[1].removeprefix('~').removeprefix('margmap.')}</code>", html)
    html = _INLINE_CODE.sub(_breakable, html)
    return _CELL.sub(lambda found: _UNIT.sub("\N{NO-BREAK SPACE}", found[0].replace(r"\|", "|")), html)


def _breakable(found: re.Match[str]) -> str:
    length = len(unescape(found[1]))
    kind = "short" if length <= SHORT else "long" if length > LONG else ""
    return f'<code class="{kind}">{found[1]}</code>' if kind else found[0]


def _prose(text: str, here: Path) -> str:
    text = _BLOCK.sub(lambda found: mathml(found[1], "block"), text)
    text = _INLINE.sub(lambda found: mathml(found[1], "inline"), text)
    return _LINK.sub(lambda found: _link(found, here), text)


def _link(found: re.Match[str], here: Path) -> str:
    target = found[3].split("#")[0]
    if not target or ":" in target:
        return found[0]
    place = (here / target).resolve()
    if place.is_relative_to(DOCS) or not place.is_relative_to(ROOT):
        return found[0]
    assert place.exists(), f"a link to {target}, which is not there"
    name = place.relative_to(ROOT).as_posix()
    return f"{found[2]} (`{name}`)" if found[2].strip("`") != name else f"`{name}`"


def mathml(formula: str, display: str) -> str:
    """A formula in LaTeX as MathML, on a line of its own or in one."""
    from latex2mathml.converter import convert

    return str(convert(formula.strip(), display=display))


def help_page() -> str:
    """``margmap --help`` and that of every command, as the program prints it on a terminal of 88 columns."""
    from typer.main import get_command
    from typer.testing import CliRunner

    from margmap.cli import app

    command: Any = get_command(app)
    lines = ["# Help of every command", "", "This page is made from the program itself.", ""]
    paths: list[list[str]] = [[]]
    for name, inner in command.commands.items():
        paths.append([name])
        paths += [[name, below] for below in getattr(inner, "commands", ())]
    for path in paths:
        shown = CliRunner().invoke(
            app, [*path, "--help"], prog_name="margmap", env={"COLUMNS": "88", "TERM": "dumb", "NO_COLOR": "1"}
        )
        assert shown.exit_code == 0, shown.output
        title = " ".join(["margmap", *path])
        lines += [f"## {title}", "", "```text", shown.output.strip("\n"), "```", ""]
    return "\n".join(lines)
