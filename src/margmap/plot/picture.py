"""Pictures: what every one of them has (title, text alternative, file, HTML), drawn by matplotlib or as plain SVG."""

from __future__ import annotations

import base64
import io
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from margmap.errors import FormatError, MissingExtraError
from margmap.foundation.html import escaped
from margmap.foundation.wording import did_you_mean
from margmap.io.files import write_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Dots per inch of a PNG.
DPI = 150


def matplotlib(module: str) -> Any:
    """A module of matplotlib, which is an extra."""
    try:
        return import_module(f"matplotlib.{module}")
    except ImportError as error:
        raise MissingExtraError("figures need matplotlib: pip install 'margmap[plot]'") from error


def new_figure(width: float, height: float) -> Any:
    """An empty figure of this size in inches that no window and no notebook shows by itself."""
    return matplotlib("figure").Figure(figsize=(width, height), layout="constrained")


def check_format(path: Path, formats: Sequence[str]) -> str:
    """The kind of figure that a file's suffix says, refused if it is none of these."""
    form = path.suffix[1:].lower()
    if form not in formats:
        known = ", ".join(f".{name}" for name in formats)
        near = did_you_mean(form, formats)
        raise FormatError(f"unknown kind of figure {path.suffix!r}: {near}use {known}", path=path)
    return form


class Picture(ABC):
    """A picture that shows itself in notebooks, can be saved, and says in words what is on it."""

    #: What files can be written, by suffix.
    formats: tuple[str, ...] = ("svg", "png", "pdf")

    def __init__(self, title: str, description: str) -> None:
        self.title = title
        #: What the picture shows, for those who cannot see it.
        self.description = description

    @property
    @abstractmethod
    def axes(self) -> Axes:
        """The matplotlib axes with the picture on them."""

    @abstractmethod
    def svg(self) -> str:
        """The picture as the text of an SVG file."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture into a file, by its suffix; the file appears whole or not at all."""
        path = Path(path)
        write_bytes(path, self._bytes(check_format(path, self.formats)))

    def _bytes(self, form: str) -> bytes:
        if form == "svg":
            return self.svg().encode()
        image = io.BytesIO()
        known = {"png": {"Title": self.title, "Description": self.description}, "pdf": {"Title": self.title}}
        figure: Any = self.axes.figure
        figure.savefig(image, format=form, dpi=DPI, metadata=known[form])
        return image.getvalue()

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.svg().encode()).decode()
        alt = escaped(f"{self.title}. {self.description}")
        return f'<img src="data:image/svg+xml;base64,{data}" alt="{alt}" style="max-width: 100%; background: white">'

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title}>"


class Chart(Picture):
    """A picture made with matplotlib."""

    def __init__(self, axes: Axes, title: str, description: str) -> None:
        super().__init__(title, description)
        self._axes = axes

    @property
    def axes(self) -> Axes:
        """The matplotlib axes with the picture on them."""
        return self._axes

    def svg(self) -> str:
        """The picture as the text of an SVG file, its texts as text."""
        image = io.StringIO()
        known = {"Title": self.title, "Description": self.description, "Date": None}
        with import_module("matplotlib").rc_context({"svg.fonttype": "none", "svg.hashsalt": "margmap"}):
            figure: Any = self._axes.figure
            figure.savefig(image, format="svg", metadata=known)
        return image.getvalue()
