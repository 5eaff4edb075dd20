"""A report as one HTML page: everything in it, nothing fetched, readable without its script."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from margmap.bench.analysis import Cell, Column, Table
from margmap.bench.document import Code, Document, Facts, Figure, Item, Text
from margmap.bench.figure import DARK, DASHES, LIGHT, MARKERS, colours, svg_body

# A table with more rows than this scrolls within itself.
_TALL = 30


def page_lines(document: Document) -> Iterator[str]:
    """The lines of the page."""
    style = _resource("page.css") + f"{colours(LIGHT)}@media(prefers-color-scheme:dark){{{colours(DARK)}}}"
    script = _resource("page.js")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    figures = [item for section in document.sections for item in section.blocks if isinstance(item, Figure)]
    data = {"plots": [figure.plot.to_dict() for figure in figures], "dashes": DASHES, "markers": MARKERS}
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
    yield f"<title>{escape(document.title)}</title><style>{style}</style></head><body>"
    yield f"<header><h1>{escape(document.title)}</h1><p>{escape(document.about)}</p>"
    yield f'<p class="date">{escape(document.subtitle)}</p>'
    yield '<nav aria-label="Sections"><ul>'
    yield from (f'<li><a href="#{one.name}">{escape(one.title)}</a></li>' for one in document.sections)
    yield "</ul></nav></header><main>"
    for section in document.sections:
        yield f'<section aria-labelledby="{section.name}"><h2 id="{section.name}">{escape(section.title)}</h2>'
        for item in section.blocks:
            yield from _item(item)
        yield "</section>"
    yield "</main>"
    yield f'<script type="application/json" id="data">{_embedded(data)}</script>'
    yield f"<script>{script}</script></body></html>"


def _item(item: Item) -> Iterator[str]:
    if isinstance(item, Text):
        tone = f' class="{item.tone}"' if item.tone else ""
        role = ' role="alert"' if item.tone == "bad" else ""
        yield f"<p{tone}{role}>{escape(item.text)}</p>"
    elif isinstance(item, Facts):
        yield "<dl>"
        yield from (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in item.pairs)
        yield "</dl>"
    elif isinstance(item, Code):
        yield f'<pre tabindex="0">{escape(chr(10).join(item.lines))}</pre>'
    elif isinstance(item, Figure):
        yield from _figure(item)
    elif item.folded:
        yield from _folded(f"{item.table.caption} ({len(item.table.rows):,} rows)", item.table)
    else:
        yield from _table(item.table)


def _folded(summary: str, table: Table) -> Iterator[str]:
    yield from (f"<details><summary>{escape(summary)}</summary>", *_table(table), "</details>")


def _figure(figure: Figure) -> Iterator[str]:
    plot = figure.plot
    yield f'<figure id="figure-{plot.name}"><h3>{escape(plot.title)}</h3><div class="plot">'
    yield from svg_body(plot)
    yield f"</div><figcaption>{escape(plot.description)}</figcaption>"
    if figure.data is not None:
        yield from _folded(f"Data: {figure.data.caption}", figure.data)
    yield "</figure>"


def _table(table: Table) -> Iterator[str]:
    tall = " tall" if len(table.rows) > _TALL else ""
    yield f'<div class="scroll{tall}" tabindex="0" role="region" aria-label="{escape(table.caption)}">'
    yield f'<table id="{table.name}"><caption><span>{escape(table.caption)}</span></caption><thead><tr>'
    yield "".join(f'<th scope="col"{_number(column)}>{escape(column.text)}</th>' for column in table.columns)
    yield from ("</tr></thead><tbody>", *(_row(row, table.columns) for row in table.rows), "</tbody>")
    if table.foot:
        yield from ("<tfoot>", *(_row(row, table.columns) for row in table.foot), "</tfoot>")
    yield "</table></div>"


def _row(row: Sequence[Cell], columns: Sequence[Column]) -> str:
    cells = []
    for at, (cell, column) in enumerate(zip(row, columns, strict=True)):
        text = escape(cell.text)
        inner = f"<strong>{text}</strong>" if cell.strong else text
        if cell.note:
            inner += f' <span class="quiet">{escape(cell.note)}</span>'
        kind = 'th scope="row"' if at == 0 else "td"
        long = ' class="long"' if at and not column.number and len(cell.text) > 40 else ""
        cells.append(f"<{kind}{_number(column)}{long}{_key(cell)}>{inner}</{kind[:2]}>")
    return f"<tr>{''.join(cells)}</tr>"


def _number(column: Column) -> str:
    return ' class="n"' if column.number else ""


def _key(cell: Cell) -> str:
    if cell.value is None or cell.value == cell.text:
        return ""
    value = cell.value if isinstance(cell.value, str) else f"{cell.value:.9g}".replace("inf", "Infinity")
    return f' data-v="{escape(value)}"'


def _embedded(data: object) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c").replace("&", "\\u0026")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _resource(name: str) -> str:
    return files("margmap.bench").joinpath(name).read_text("utf-8")
