"""Graphs of nodes and edges as pictures: what circuits and networks have in common when they are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from margmap.plot.layered import layered
from margmap.plot.picture import Picture
from margmap.plot.scene import Line, Look, Scene, Shape, Text, along, on_axes, shortened_to, svg_of, width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The looks of nodes. Each differs from the others in brightness or outline too, not only in colour.
LOOKS = {
    "sum": Look("#fbd9b5", "#8a4b08"),
    "max": Look("#1f5f99", "#0b2c4a", 1.2, "#ffffff", True),
    "product": Look("#ffffff", "#333333"),
    "leaf": Look("#eeeeee", "#777777"),
    "plain": Look("#ffffff", "#777777"),
    "observed": Look("#d5d5d5", "#000000", 2.0),
    "asked": Look("#fff6d6", "#0b2c4a", 2.0, "#000000", True),
}
_EDGE, _STRONG = "#8a8a8a", "#000000"

#: Font sizes in pixels, and the space around the picture.
TITLE, SMALL, LABEL, MARGIN = 16.0, 10.0, 11.0, 18.0
_BAR_HEIGHT, _BAR_WIDTH = 14.0, 60.0


class Bar(NamedTuple):
    """A line inside a node: a name, a bar filled from 0 to 1, a number; it may be marked."""

    label: str
    part: float
    number: str
    marked: bool = False


class Node(NamedTuple):
    """A node: a circle with a sign in it, or a box with a label and perhaps bars."""

    label: str
    look: str = "plain"
    round: bool = False
    bars: tuple[Bar, ...] = ()
    #: What is shown when the pointer rests on it.
    hint: str = ""
    #: Part of what is highlighted.
    strong: bool = False


class Edge(NamedTuple):
    """An edge from the node above to the one below."""

    above: int
    below: int
    label: str = ""
    strong: bool = False


class Graph(NamedTuple):
    """All that a picture of a graph says."""

    title: str
    subtitle: str
    description: str
    nodes: Sequence[Node]
    edges: Sequence[Edge]
    #: The looks that are explained below the picture, and what they mean; "strong" is that of strong edges.
    legend: Sequence[tuple[str, str]] = ()
    arrows: bool = False
    #: The layer of each node, if the drawing is not to find them by the edges.
    layers: Sequence[int] | None = None


class Drawing(Picture):
    """A picture of a graph: SVG and dot without other programs, PNG and PDF with matplotlib."""

    formats = ("svg", "png", "pdf", "dot")

    def __init__(self, graph: Graph, axes: Axes | None = None) -> None:
        super().__init__(graph.title, graph.description)
        self.graph = graph
        self._given = axes
        if axes is not None:
            on_axes(self.scene, axes)

    @cached_property
    def scene(self) -> Scene:
        """Shapes, lines and texts with their places."""
        return _scene_of(self.graph)

    @cached_property
    def axes(self) -> Axes:
        """The matplotlib axes with the picture on them."""
        return on_axes(self.scene) if self._given is None else self._given

    def svg(self) -> str:
        """The picture as the text of an SVG file."""
        return svg_of(self.scene, self.title, self.description)

    def dot(self) -> str:
        """The graph in the language of Graphviz."""
        return dot_of(self.graph)

    def _bytes(self, form: str) -> bytes:
        return self.dot().encode() if form == "dot" else super()._bytes(form)


def size_of(node: Node) -> tuple[float, float]:
    """The width and height of a node on the page."""
    if node.round:
        return (30.0, 30.0) if node.look in ("sum", "max") else (24.0, 24.0)
    width = width_of(node.label, LABEL, bold=bool(node.bars or node.strong)) + 14
    if node.bars:
        names, numbers = _columns(node)
        width = max(width, names + numbers + _BAR_WIDTH + 24)
    return width, 22.0 + _BAR_HEIGHT * len(node.bars) + (4.0 if node.bars else 0.0)


def _columns(node: Node) -> tuple[float, float]:
    """The widths of the names and the numbers beside the bars of a node."""
    names = max(width_of(bar.label, SMALL, bold=bar.marked) for bar in node.bars)
    return names, max(width_of(bar.number, SMALL, bold=bar.marked) for bar in node.bars)


def _scene_of(graph: Graph) -> Scene:
    sizes = [size_of(node) for node in graph.nodes]
    labelled = any(edge.label for edge in graph.edges)
    # Where edges have labels, two of them side by side must find room, and a line between the layers too.
    gap = (34.0, 58.0) if labelled else (22.0, 40.0)
    place = layered(sizes, [(edge.above, edge.below) for edge in graph.edges], gap, graph.layers)
    top = MARGIN + TITLE + (SMALL + 10 if graph.subtitle else 0) + 16
    legend_width = max((width_of(words, SMALL) + 36 for _, words in graph.legend), default=0.0)
    width = max(
        place.width,
        width_of(graph.title, TITLE) * 1.1,
        width_of(graph.subtitle, SMALL),
        min(legend_width * len(graph.legend), 640.0),
    )
    width += 2 * MARGIN
    left = (width - place.width) / 2

    def put(point: tuple[float, float]) -> tuple[float, float]:
        return point[0] + left, point[1] + top

    items: list[Shape | Line | Text] = [Text((width / 2, MARGIN + TITLE / 2), graph.title, TITLE, bold=True)]
    if graph.subtitle:
        items.append(Text((width / 2, MARGIN + TITLE + SMALL), graph.subtitle, SMALL, ink="#333333"))
    labels: list[Text] = []
    for edge, points in sorted(zip(graph.edges, place.edges, strict=True), key=lambda pair: pair[0].strong):
        way = [put(point) for point in points]
        way[0] = _border(way[0], way[1], graph.nodes[edge.above], leaving=True)
        way[-1] = _border(way[-1], way[-2], graph.nodes[edge.below], leaving=False)
        stroke, thick = (_STRONG, 2.4) if edge.strong else (_EDGE, 1.0)
        items.append(Line(tuple(way), stroke, thick, graph.arrows))
        if edge.label:
            labels.append(_edge_label(edge, way, labels))
    for node, point in zip(graph.nodes, place.nodes, strict=True):
        items += _node_items(node, put(point))
    items += labels
    below = top + place.height + 20
    legend, height = _legend_items(graph.legend, width, below)
    return Scene(width, below + height + MARGIN / 2, (*items, *legend))


def _edge_label(edge: Edge, way: Sequence[tuple[float, float]], others: Sequence[Text]) -> Text:
    """The label of an edge, below its middle, where edges lie further apart, or wherever it covers no other label."""
    best, least = None, 1e9
    for part in (0.58, 0.48, 0.68, 0.38, 0.78, 0.28):
        text = Text(along(way, part), edge.label, SMALL, bold=edge.strong, ink="#222222", halo=True)
        covered = sum(_overlap(text, other) for other in others)
        if covered < least:
            best, least = text, covered
    assert best is not None
    return best


def _overlap(one: Text, other: Text) -> float:
    """How much of two labels lies over each other."""
    wide = (width_of(one.words, SMALL, bold=True) + width_of(other.words, SMALL, bold=True)) / 2
    across = wide - abs(one.place[0] - other.place[0])
    down = 1.2 * SMALL - abs(one.place[1] - other.place[1])
    return across * down if across > 0 and down > 0 else 0.0


def _border(
    middle: tuple[float, float], towards: tuple[float, float], node: Node, *, leaving: bool
) -> tuple[float, float]:
    """Where an edge meets the outline of a node."""
    w, h = size_of(node)
    extra = 3.5 if LOOKS[node.look].double else 0.5
    dx, dy = towards[0] - middle[0], towards[1] - middle[1]
    if node.round:
        length = max((dx * dx + dy * dy) ** 0.5, 1e-9)
        return middle[0] + dx / length * (w / 2 + extra), middle[1] + dy / length * (h / 2 + extra)
    # Edges meet boxes at the top and at the bottom, not too far from the middle.
    side = h / 2 + extra if dy > 0 else -h / 2 - extra
    reach = side / dy * dx if abs(dy) > 1e-9 else 0.0
    return middle[0] + max(-w / 3, min(w / 3, reach)), middle[1] + side


def _node_items(node: Node, middle: tuple[float, float]) -> list[Shape | Line | Text]:
    (x, y), (w, h) = middle, size_of(node)
    look = LOOKS[node.look]
    if node.strong:
        look = look._replace(width=2.4, stroke="#000000")
    items: list[Shape | Line | Text] = [Shape("ellipse" if node.round else "box", middle, (w, h), look, node.hint)]
    if node.round:
        return [*items, Text(middle, node.label, 15.0 if len(node.label) == 1 else 10.0, ink=look.ink, bold=True)]
    if not node.bars:
        return [*items, Text(middle, node.label, LABEL, ink=look.ink, bold=node.strong)]
    items.append(Text((x, y - h / 2 + 12), node.label, LABEL, bold=True, ink=look.ink))
    names, numbers = _columns(node)
    inner = names + numbers + _BAR_WIDTH + 12
    left = x - inner / 2
    for i, bar in enumerate(node.bars):
        at = y - h / 2 + 22 + _BAR_HEIGHT * (i + 0.5)
        start, full = left + names + 4, _BAR_WIDTH * max(0.0, min(1.0, bar.part))
        items.append(Text((left + names, at), bar.label, SMALL, "end", bold=bar.marked))
        items.append(Shape("box", (start + _BAR_WIDTH / 2, at), (_BAR_WIDTH, 9.0), Look("#ffffff", "#bbbbbb", 0.6)))
        if full > 0.3:
            ink = "#12395c" if bar.marked else "#8fb3d1"
            items.append(Shape("box", (start + full / 2, at), (full, 9.0), Look(ink, ink, 0.6)))
        items.append(Text((start + _BAR_WIDTH + 8 + numbers, at), bar.number, SMALL, "end", bold=bar.marked))
    return items


def _legend_items(
    legend: Sequence[tuple[str, str]], width: float, top: float
) -> tuple[list[Shape | Line | Text], float]:
    """What the looks mean, in as many lines as it takes; and how high that is."""
    items: list[Shape | Line | Text] = []
    if not legend:
        return items, 0.0
    x, y = MARGIN, top + 8
    for look, words in legend:
        wide = 30 + width_of(words, SMALL) + 14
        if x > MARGIN and x + wide > width - MARGIN / 2:
            x, y = MARGIN, y + 22
        if look == "strong":
            items.append(Line(((x, y), (x + 20, y)), _STRONG, 2.4))
        elif look == "bar":
            items.append(Shape("box", (x + 10, y), (20, 9), Look("#12395c", "#12395c", 0.6)))
        else:
            kind = "ellipse" if look in ("sum", "max", "product") else "box"
            items.append(Shape(kind, (x + 10, y), (16, 14), LOOKS[look]))  # type: ignore[arg-type]
        items.append(Text((x + 28, y), words, SMALL, "start"))
        x += wide
    return items, y - top + 18


def dot_of(graph: Graph) -> str:
    """The graph in the language of Graphviz, for whoever has it; all texts quoted."""
    lines = [f"digraph {_quoted(graph.title)} {{", f"  label={_quoted(graph.title)};", "  labelloc=t;"]
    for number, node in enumerate(graph.nodes):
        look = LOOKS[node.look]
        words = "\n".join([node.label, *(f"{bar.label} {bar.number}{' *' if bar.marked else ''}" for bar in node.bars)])
        shape = ("doublecircle" if look.double else "circle") if node.round else "box"
        style = f'style=filled, fillcolor="{look.fill}", fontcolor="{look.ink}", penwidth={2.4 if node.strong else 1}'
        lines.append(f"  n{number} [label={_quoted(words)}, shape={shape}, {style}];")
    for edge in graph.edges:
        label = f"label={_quoted(edge.label)}, " if edge.label else ""
        thick = "penwidth=2.4" if edge.strong else "penwidth=1"
        arrow = "" if graph.arrows else ", dir=none"
        lines.append(f"  n{edge.above} -> n{edge.below} [{label}{thick}{arrow}];")
    return "\n".join([*lines, "}", ""])


def _quoted(words: str) -> str:
    plain = "\n".join(shortened_to(line, 200) for line in words.split("\n"))
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
