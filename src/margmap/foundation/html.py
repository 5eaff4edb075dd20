"""Small pieces of HTML for notebooks: tables and facts, with every text from outside escaped.

Names come from files and may be hostile. All text goes through :func:`escaped`; nothing else puts text into HTML.
Styles stand at the elements themselves, because notebooks strip style sheets, and leave colours to the page, so that
tables are readable on light and dark ones.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence

#: Rows that a table shows; how many more there are stands below it.
MOST_ROWS = 20

_TABLE = 'style="margin: 0 0 0.8em 0"'
_CELL = "padding: 0.2em 0.8em 0.2em 0"


def escaped(text: object) -> str:
    """Text as HTML: markup in it stays text, and control characters become visible."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
    return html.escape(shown, quote=True)


def number_text(value: object) -> str:
    """A number in a table: six digits, as everywhere in margmap; whatever else it is as text."""
    return f"{float(value):.6g}" if isinstance(value, float) else str(value)


def table(
    header: Sequence[object],
    rows: Iterable[Sequence[object]],
    caption: str = "",
    *,
    most: int = MOST_ROWS,
    bars: Mapping[int, float] | None = None,
) -> str:
    """A table with a caption and column heads; numbers stand on the right.

    ``bars`` gives some columns, by number, a bar behind the numbers: the value that fills the whole cell. After
    ``most`` rows it is cut, and says how many there are.
    """
    body = [list(row) for row in rows]
    head = "".join(f'<th scope="col" style="text-align: left; {_CELL}">{escaped(name)}</th>' for name in header)
    lines = "".join(
        f"<tr>{''.join(_cell(x, (bars or {}).get(i)) for i, x in enumerate(row))}</tr>" for row in body[:most]
    )
    more = f"<p>... and {len(body) - most} more</p>" if len(body) > most else ""
    title = f'<caption style="text-align: left; font-weight: bold">{escaped(caption)}</caption>' if caption else ""
    return f"<table {_TABLE}>{title}<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>{more}"


def facts(title: str, values: Mapping[str, object]) -> str:
    """A title and a table of names and values."""
    lines = "".join(
        f'<tr><th scope="row" style="text-align: left; {_CELL}">{escaped(name)}</th>'
        f'<td style="text-align: left; {_CELL}">{escaped(number_text(value))}</td></tr>'
        for name, value in values.items()
    )
    caption = f'<caption style="text-align: left; font-weight: bold">{escaped(title)}</caption>'
    return f"<table {_TABLE}>{caption}<tbody>{lines}</tbody></table>"


def paragraph(text: str) -> str:
    """A line of text."""
    return f"<p>{escaped(text)}</p>"


def section(*parts: str) -> str:
    """Several pieces of HTML as one."""
    return f"<div>{''.join(parts)}</div>"


def _cell(value: object, full: float | None) -> str:
    side = "right" if isinstance(value, int | float) and not isinstance(value, bool) else "left"
    style = f"text-align: {side}; {_CELL}"
    if full and isinstance(value, float) and math.isfinite(value):
        part = 100 * min(1.0, max(0.0, value / full))
        style += f"; background: linear-gradient(to right, rgba(128, 128, 128, 0.35) {part:.1f}%, transparent 0)"
    return f'<td style="{style}">{escaped(number_text(value))}</td>'
