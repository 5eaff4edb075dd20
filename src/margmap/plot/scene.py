"""Shapes, lines and texts on a page, in pixels from its upper left corner: written as SVG or put on matplotlib axes.

The SVG needs no other program. Both show the same, so that a picture can be looked at in either.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from margmap.foundation.html import escaped
from margmap.plot.picture import matplotlib, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[float, float]

#: The fonts of the pictures.
FONTS = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif"

# How wide characters are, for a font of size 1: narrow ones, those of upper case and other large ones, all others.
_NARROW, _NARROW_WIDTH, _LARGE_WIDTH, _WIDTH, _BOLD = " .,:;|!'()[]ijlIfrt", 0.4, 0.76, 0.62, 1.12

#: Pixels in an inch of a figure: font sizes are pixels here and points there.
PIXELS = 72.0


class Look(NamedTuple):
    """How a shape is filled and outlined."""

    fill: str = "#ffffff"
    stroke: str = "#333333"
    width: float = 1.0
    #: The colour of text inside.
    ink: str = "#000000"
    #: A second outline around the first.
    double: bool = False


class Shape(NamedTuple):
    """A box or an ellipse around a middle; ``hint`` is shown when the pointer rests on it."""

    kind: Literal["box", "ellipse"]
    middle: Point
    size: Point
    look: Look
    hint: str = ""


class Line(NamedTuple):
    """A line through some points, curved from one to the next; perhaps with an arrow head at its end."""

    points: tuple[Point, ...]
    stroke: str = "#555555"
    width: float = 1.0
    arrow: bool = False
    dashed: bool = False


class Text(NamedTuple):
    """Some words at a place; ``anchor`` says which part of them is there. A halo keeps lines from crossing them."""

    place: Point
    words: str
    size: float = 11.0
    anchor: Literal["start", "middle", "end"] = "middle"
    bold: bool = False
    ink: str = "#000000"
    halo: bool = False


class Scene(NamedTuple):
    """A page with what is on it, in the order of painting."""

    width: float
    height: float
    items: tuple[Shape | Line | Text, ...]

    @property
    def texts(self) -> list[str]:
        """All words on the page."""
        return [item.words for item in self.items if isinstance(item, Text)]


def width_of(words: str, size: float, *, bold: bool = False) -> float:
    """About how wide a text is, rather too much than too little."""
    total = 0.0
    for char in words:
        large = char.isupper() or ord(char) > 0x2000 or char in "mw@%"
        total += _NARROW_WIDTH if char in _NARROW else _LARGE_WIDTH if large else _WIDTH
    return total * size * (_BOLD if bold else 1.0)


def along(points: Sequence[Point], part: float) -> Point:
    """The point after a part, from 0 to 1, of the way along a curved line."""
    curves = _curves(points)
    at = min(int(part * len(curves)), len(curves) - 1)
    t = part * len(curves) - at
    weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
    x, y = (sum(w * point[i] for w, point in zip(weights, curves[at], strict=True)) for i in (0, 1))
    return x, y


def shortened_to(words: str, most: int) -> str:
    """The text, cut so that it has at most so many characters; what cannot be printed becomes visible."""
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def svg_of(scene: Scene, title: str, description: str) -> str:
    """The page as the text of an SVG file; title and description are its text alternative."""
    w, h = scene.width, scene.height
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{w:.0f}" height="{h:.0f}" viewBox="0 0 {w:.0f} {h:.0f}" '
        f'role="img" aria-labelledby="title description" font-family="{FONTS}">',
        f'<title id="title">{escaped(title)}</title>',
        f'<desc id="description">{escaped(description)}</desc>',
        f'<rect width="{w:.0f}" height="{h:.0f}" fill="#ffffff"/>',
    ]
    for item in scene.items:
        if isinstance(item, Shape):
            lines += _svg_shape(item)
        elif isinstance(item, Line):
            lines += _svg_line(item)
        else:
            lines.append(_svg_text(item))
    return "\n".join([*lines, "</svg>", ""])


def _svg_shape(shape: Shape) -> list[str]:
    (x, y), (w, h), look = shape.middle, shape.size, shape.look
    hint = f"<title>{escaped(shape.hint)}</title>" if shape.hint else ""
    found = []
    for grown, fill in ((3.0, "none"), (0.0, look.fill)) if look.double else ((0.0, look.fill),):
        style = f'fill="{fill}" stroke="{look.stroke}" stroke-width="{look.width}"'
        if shape.kind == "ellipse":
            found.append(
                f'<ellipse cx="{x:.1f}" cy="{y:.1f}" rx="{w / 2 + grown:.1f}" ry="{h / 2 + grown:.1f}" {style}>'
                f"{hint}</ellipse>"
            )
        else:
            left, top, wide, high = x - w / 2 - grown, y - h / 2 - grown, w + 2 * grown, h + 2 * grown
            box = f'x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}" rx="3"'
            found.append(f"<rect {box} {style}>{hint}</rect>")
    return found


def _svg_line(line: Line) -> list[str]:
    path = f"M {line.points[0][0]:.1f} {line.points[0][1]:.1f}"
    for curve in _curves(line.points):
        path += " C " + " ".join(f"{x:.1f} {y:.1f}" for x, y in curve[1:])
    dash = ' stroke-dasharray="4 3"' if line.dashed else ""
    found = [f'<path d="{path}" fill="none" stroke="{line.stroke}" stroke-width="{line.width}"{dash}/>']
    if line.arrow:
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in _head(line))
        found.append(f'<polygon points="{corners}" fill="{line.stroke}"/>')
    return found


def _svg_text(text: Text) -> str:
    x, y = text.place
    style = f'font-size="{text.size:g}" text-anchor="{text.anchor}" fill="{text.ink}"'
    style += ' font-weight="bold"' if text.bold else ""
    style += ' stroke="#ffffff" stroke-width="3" paint-order="stroke"' if text.halo else ""
    return f'<text x="{x:.1f}" y="{y + 0.36 * text.size:.1f}" {style}>{escaped(text.words)}</text>'


def _curves(points: Sequence[Point]) -> list[tuple[Point, Point, Point, Point]]:
    """Bezier curves from point to point; they leave and arrive vertically unless there is only one step."""
    if len(points) == 2:
        a, b = points
        third = ((2 * a[0] + b[0]) / 3, (2 * a[1] + b[1]) / 3), ((a[0] + 2 * b[0]) / 3, (a[1] + 2 * b[1]) / 3)
        return [(a, *third, b)]
    return [((x0, y0), (x0, (y0 + y1) / 2), (x1, (y0 + y1) / 2), (x1, y1)) for (x0, y0), (x1, y1) in pairwise(points)]


def _head(line: Line) -> tuple[Point, Point, Point]:
    """The corners of the arrow head at the end of a line."""
    (x0, y0), (x1, y1) = _curves(line.points)[-1][2:]
    length = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1e-9)
    dx, dy = (x1 - x0) / length, (y1 - y0) / length
    size = 6.0 + line.width
    back = (x1 - size * dx, y1 - size * dy)
    return (
        (x1, y1),
        (back[0] - 0.4 * size * dy, back[1] + 0.4 * size * dx),
        (back[0] + 0.4 * size * dy, back[1] - 0.4 * size * dx),
    )


def on_axes(scene: Scene, axes: Axes | None = None) -> Axes:
    """The same on matplotlib axes, by default those of a new figure of the right size."""
    if axes is None:
        figure = new_figure(scene.width / PIXELS, scene.height / PIXELS)
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, scene.width)
    axes.set_ylim(scene.height, 0)
    axes.set_aspect("equal")
    axes.set_axis_off()
    box = axes.get_window_extent()
    scale = min(box.width / scene.width, box.height / scene.height) / axes.figure.dpi * PIXELS
    for level, item in enumerate(scene.items):
        if isinstance(item, Shape):
            _put_shape(axes, item, scale, level)
        elif isinstance(item, Line):
            _put_line(axes, item, scale, level)
        else:
            _put_text(axes, item, scale, level)
    return axes


def _put_shape(axes: Any, shape: Shape, scale: float, level: int) -> None:
    patches = matplotlib("patches")
    (x, y), (w, h), look = shape.middle, shape.size, shape.look
    for grown, fill in ((3.0, "none"), (0.0, look.fill)) if look.double else ((0.0, look.fill),):
        style = {"facecolor": fill, "edgecolor": look.stroke, "linewidth": look.width * scale, "zorder": 2 + level}
        if shape.kind == "ellipse":
            patch = patches.Ellipse((x, y), w + 2 * grown, h + 2 * grown, **style)
        else:
            patch = patches.Rectangle((x - w / 2 - grown, y - h / 2 - grown), w + 2 * grown, h + 2 * grown, **style)
        axes.add_patch(patch)


def _put_line(axes: Any, line: Line, scale: float, level: int) -> None:
    patches, path = matplotlib("patches"), matplotlib("path").Path
    points, codes = [line.points[0]], [path.MOVETO]
    for curve in _curves(line.points):
        points += curve[1:]
        codes += [path.CURVE4] * 3
    style = {"edgecolor": line.stroke, "linewidth": line.width * scale, "linestyle": "--" if line.dashed else "-"}
    axes.add_patch(patches.PathPatch(path(points, codes), fill=False, zorder=2 + level, **style))
    if line.arrow:
        axes.add_patch(patches.Polygon(_head(line), color=line.stroke, linewidth=0, zorder=2 + level))


def _put_text(axes: Any, text: Text, scale: float, level: int) -> None:
    side = {"start": "left", "middle": "center", "end": "right"}[text.anchor]
    words = text.words.replace("$", r"\$")
    shown = axes.text(
        *text.place,
        words,
        fontsize=text.size * scale,
        ha=side,
        va="center_baseline",
        color=text.ink,
        weight="bold" if text.bold else "normal",
        zorder=2 + level,
    )
    if text.halo:
        effects = matplotlib("patheffects")
        shown.set_path_effects([effects.withStroke(linewidth=3 * scale, foreground="#ffffff")])
