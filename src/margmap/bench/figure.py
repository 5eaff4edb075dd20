"""Line plots as plain values, and as SVG files; the page draws the same values so that they can be zoomed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

#: How many styles there are; more series than that begin again with the first.
STYLES = 7

# Okabe and Ito's colours, which people who see colours differently can tell apart, darkened where white needs it, and
# as they are brighter on black. Beside colour, every style has a dash and a marker of its own.
LIGHT = ("#0072b2", "#d55e00", "#00805d", "#a8457f", "#222222", "#9a6700", "#3f9fd8")
DARK = ("#4aa8f0", "#ff8a3d", "#2fc79a", "#e59ac4", "#f2f2f2", "#e6b422", "#a5dcff")
DASHES = ("", "7 3", "2 3", "9 3 2 3", "4 2", "12 4", "1 2")
# Paths that begin at the point.
MARKERS = (
    "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z",
    "m-3 -3h6v6h-6z",
    "m0 -4l4 7h-8z",
    "m0 -4.5l4.5 4.5l-4.5 4.5l-4.5 -4.5z",
    "m0 4l4 -7h-8z",
    "m-4 -1h3v-3h2v3h3v2h-3v3h-2v-3h-3z",
    "m-4 -2h8v4h-8z",
)

_WIDTH, _HEIGHT = 720, 420
_LEFT, _RIGHT, _BOTTOM = 74, 16, 52
_MARKERS = 12


class Axis(NamedTuple):
    """What an axis shows and whether its steps are factors."""

    label: str
    log: bool = False


class Series(NamedTuple):
    """A line: ``style`` chooses colour and marker, ``dash`` the dash; ``step`` holds each value until the next."""

    label: str
    points: list[tuple[float, float]]
    style: int
    dash: int
    step: bool = False


class Plot(NamedTuple):
    """A figure, with what it shows in words."""

    name: str
    title: str
    description: str
    x: Axis
    y: Axis
    series: list[Series]

    def to_dict(self) -> dict[str, Any]:
        """Plain lists for the page; coordinates with six digits."""
        return {
            "name": self.name,
            "x": self.x._asdict(),
            "y": self.y._asdict(),
            "series": [
                {**s._asdict(), "points": [[float(f"{x:.6g}"), float(f"{y:.9g}")] for x, y in s.points]}
                for s in self.series
            ],
        }


def colours(chosen: Sequence[str]) -> str:
    """The style rules that give each style its colour."""
    return "".join(f".s{i}{{stroke:{colour}}}.s{i}.m{{fill:{colour}}}" for i, colour in enumerate(chosen))


def svg_lines(plot: Plot) -> list[str]:
    """An SVG file of its own, light or dark as the reader's screen is."""
    style = (
        "text{font:13px system-ui,sans-serif;fill:#222}.paper{fill:#fff}.grid{stroke:#ddd}.frame{stroke:#888;fill:none}"
        f".line{{fill:none;stroke-width:2}}{colours(LIGHT)}@media(prefers-color-scheme:dark){{text{{fill:#ddd}}"
        f".paper{{fill:#16181c}}.grid{{stroke:#33373d}}{colours(DARK)}}}"
    )
    return [*svg_body(plot, f"<style>{style}</style>", standalone=True)]


def svg_body(plot: Plot, style: str = "", *, standalone: bool = False) -> Iterator[str]:
    """The SVG element; within a page its style comes from there."""
    legend, rows = _legend(plot.series)
    top = 14 + 20 * rows
    alone = f' xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}"' if standalone else ""
    title, description = f"{plot.name}-title", f"{plot.name}-desc"
    yield f'<svg{alone} viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="{title} {description}">'
    yield f'<title id="{title}">{escape(plot.title)}</title>'
    yield f'<desc id="{description}">{escape(plot.description)}</desc>{style}'
    yield f'<rect class="paper" width="{_WIDTH}" height="{_HEIGHT}"/>'
    yield from legend
    xs, ys = _Scale(plot, 0, _LEFT, _WIDTH - _RIGHT), _Scale(plot, 1, _HEIGHT - _BOTTOM, top)
    for value, text in xs.ticks(9):
        at = xs.at(value)
        yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{_HEIGHT - _BOTTOM}"/>'
        yield f'<text x="{at:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{text}</text>'
    for value, text in ys.ticks(7):
        at = ys.at(value)
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{text}</text>'
    yield (
        f'<rect class="frame" x="{_LEFT}" y="{top}" width="{_WIDTH - _RIGHT - _LEFT}" '
        f'height="{_HEIGHT - _BOTTOM - top}"/>'
    )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2, (top + _HEIGHT - _BOTTOM) / 2
    yield f'<text x="{middle[0]}" y="{_HEIGHT - 12}" text-anchor="middle">{escape(plot.x.label)}</text>'
    yield (
        f'<text transform="translate(16 {middle[1]}) rotate(-90)" text-anchor="middle">{escape(plot.y.label)}</text>'
    )
    for series in plot.series:
        yield from _drawn(series, xs, ys)
    yield "</svg>"


class _Scale:
    """From values to places on the paper, along one axis."""

    def __init__(self, plot: Plot, axis: int, low: float, high: float) -> None:
        self.log = (plot.x, plot.y)[axis].log
        values = [self.shown(point[axis]) for series in plot.series for point in series.points] or [0.0, 1.0]
        first, last = min(values), max(values)
        margin = (last - first) * 0.03 or 0.5
        self.first, self.last = first - margin, last + margin
        if not self.log and first == 0:
            self.first = 0.0
        self.low, self.high = low, high

    def shown(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def at(self, value: float) -> float:
        part = (self.shown(value) - self.first) / (self.last - self.first)
        return self.low + part * (self.high - self.low)

    def ticks(self, most: int) -> Iterator[tuple[float, str]]:
        if self.log:
            values = _log_ticks(self.first, self.last, most)
        else:
            step = _step((self.last - self.first) / most)
            begin, end = math.ceil(self.first / step), math.floor(self.last / step)
            values = [float(f"{i * step:.12g}") for i in range(begin, end + 1)]
        return ((value, short(value)) for value in values)


def _step(least: float) -> float:
    unit = 10.0 ** math.floor(math.log10(least))
    return next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= least * (1 - 1e-9))


def _log_ticks(first: float, last: float, most: int) -> list[float]:
    for factors in ((1, 2, 5), (1,)):
        decades = range(math.floor(first), math.ceil(last) + 1)
        values = [factor * 10.0**decade for decade in decades for factor in factors]
        inside = [value for value in values if first <= math.log10(value) <= last]
        if len(inside) <= most:
            return inside
    return inside[:: -(-len(inside) // most)]


def short(value: float) -> str:
    """A number for an axis: 0.01, 250, 1.5k, 2M, 1e-9."""
    size = abs(value)
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{value / unit:.6g}{letter}"
    if 0 < size < 1e-3:
        digits, _, exponent = f"{value:.3g}".partition("e")
        return f"{digits}e{int(exponent)}" if exponent else digits
    return f"{value:.6g}"


def path_of(points: Sequence[tuple[float, float]], step: bool) -> str:
    """The SVG path through places on the paper."""
    (x, y), *others = points
    return f"M{x:.1f} {y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" if step else f"L{x:.1f} {y:.1f}" for x, y in others)


def _line(series: Series, path: str) -> str:
    dash = DASHES[series.dash % len(DASHES)]
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path class="line s{series.style % STYLES}"{dashes} d="{path}"/>'


def _marks(series: Series, points: Sequence[tuple[float, float]]) -> str:
    path = "".join(f"M{x:.1f} {y:.1f}{MARKERS[series.style % STYLES]}" for x, y in points)
    return f'<path class="m s{series.style % STYLES}" d="{path}"/>'


def _drawn(series: Series, xs: _Scale, ys: _Scale) -> Iterator[str]:
    points = [(xs.at(x), ys.at(y)) for x, y in series.points]
    if points:
        yield _line(series, path_of(points, series.step))
        yield _marks(series, [*points[:: max(1, len(points) // _MARKERS)], points[-1]])


def _legend(series: Sequence[Series]) -> tuple[list[str], int]:
    """The legend above the plot, and how many lines it takes."""
    lines: list[str] = []
    x, row = _LEFT, 0
    for one in series:
        width = 46 + 7.2 * len(one.label)
        if x > _LEFT and x + width > _WIDTH - _RIGHT:
            x, row = _LEFT, row + 1
        y = 14 + 20 * row
        label = f'<text x="{x + 34}" y="{y + 4}">{escape(one.label)}</text>'
        lines += [_line(one, f"M{x} {y}h28"), _marks(one, [(x + 14, y)]), label]
        x += int(width)
    return lines, row + 1
