"""A report as a value: sections of text, tables and figures, written as Markdown here and as a page elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from margmap.bench.analysis import Cell, Table
from margmap.bench.figure import Plot


class Text(NamedTuple):
    """A paragraph; ``tone`` is nothing, "good", or "bad" for an error."""

    text: str
    tone: str = ""


class Facts(NamedTuple):
    """Names and what they are."""

    pairs: list[tuple[str, str]]


class Code(NamedTuple):
    """Lines as they are, such as commands."""

    lines: list[str]


class Shown(NamedTuple):
    """A table; ``folded`` ones are opened by a click and are left out of Markdown."""

    table: Table
    folded: bool = False


class Figure(NamedTuple):
    """A plot and the table of what it shows."""

    plot: Plot
    data: Table | None


Item: TypeAlias = Text | Facts | Code | Shown | Figure


class Section(NamedTuple):
    """A heading and what is below it; ``name`` is where links go."""

    name: str
    title: str
    blocks: list[Item]


class Document(NamedTuple):
    """A whole report: its title, what it is about in a paragraph, and when and of how much it was made."""

    title: str
    about: str
    subtitle: str
    sections: list[Section]


def markdown_lines(document: Document) -> Iterator[str]:
    """The lines of a Markdown file, with figures as SVG files beside it."""
    yield f"# {plain(document.title)}"
    yield ""
    yield plain(document.about)
    yield ""
    yield plain(document.subtitle)
    for section in document.sections:
        shown = [item for item in section.blocks if not (isinstance(item, Shown) and item.folded)]
        if not shown:
            continue
        yield ""
        yield f"## {plain(section.title)}"
        for item in shown:
            yield ""
            yield from _item(item)


def plain(text: str) -> str:
    """Text that Markdown shows as it is, also in a table."""
    escaped = re.sub(r"([\\`*_{}\[\]|~$])", r"\\\1", " ".join(text.split()))
    escaped = escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # Nothing is a link, and nothing at the start of a line is a heading or a list.
    escaped = escaped.replace("://", ":&#47;&#47;").replace("@", "&#64;").replace("www.", "www&#46;")
    return re.sub(r"^(\d*)([#+.)-]+ )", r"\1\\\2", escaped)


def _item(item: Item) -> Iterator[str]:
    if isinstance(item, Text):
        yield f"**{plain(item.text)}**" if item.tone == "bad" else plain(item.text)
    elif isinstance(item, Facts):
        yield from (f"- {plain(name)}: {plain(value)}" for name, value in item.pairs)
    elif isinstance(item, Code):
        ticks = "`" * max(3, 1 + max((len(run) for line in item.lines for run in re.findall("`+", line)), default=0))
        yield f"{ticks}sh"
        yield from item.lines
        yield ticks
    elif isinstance(item, Figure):
        yield f"![{plain(item.plot.description)}]({item.plot.name}.svg)"
        if item.data is not None and len(item.data.rows) <= 20:
            yield ""
            yield from _table(item.data)
    else:
        yield from _table(item.table)


def _table(table: Table) -> Iterator[str]:
    yield plain(table.caption)
    yield ""
    yield f"| {' | '.join(plain(column.text) for column in table.columns)} |"
    yield f"|{'|'.join('--:' if column.number else ':--' for column in table.columns)}|"
    for row in [*table.rows, *table.foot]:
        yield f"| {' | '.join(_cell(cell) for cell in row)} |"


def _cell(cell: Cell) -> str:
    text = plain(cell.text)
    shown = f"**{text}**" if cell.strong and text else text
    return f"{shown} {plain(cell.note)}" if cell.note else shown
