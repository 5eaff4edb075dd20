"""``margmap explore``: a page on this machine to ask a model questions on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from margmap.cli.inputs import load_model
from margmap.cli.options import Format, argument, flag, option
from margmap.cli.output import printable, spinner
from margmap.errors import QueryError

if TYPE_CHECKING:
    from margmap.circuit import Circuit
    from margmap.network.network import Network

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def explore(
    model: Annotated[Path | None, argument("[MODEL]", "A circuit or a network. Without: bundled digits.")] = None,
    grid: Annotated[str | None, option("ROWSxCOLUMNS", "Show the variables as a grid to paint on, as 8x8.")] = None,
    time_limit: Annotated[float, option("S", "Seconds that a query may take.", min=0.001)] = 60.0,
    memory_limit: Annotated[float, option("GB", "How much memory a query may take.", min=0.001)] = 2.0,
    port: Annotated[int, option("N", "The port; 0 is any that is free.", min=0, max=65535)] = 0,
    host: Annotated[str, option("ADDRESS", "Who may connect: by default this machine only.")] = "127.0.0.1",
    browser: Annotated[bool, flag("--browser", "Open the page in the browser.")] = False,
    format: Format = None,
) -> None:
    """Open a page to ask a model questions on: click what is observed and what is asked, and see the exact answer."""
    places = _grid(grid)
    with spinner("Starting ..."):
        from margmap.explore.server import Server, Settings
    if model is None:
        from margmap import demo

        loaded: Circuit | Network
        loaded, name, path, places = demo.load_digits(), "Digits", "digits", places or (demo.SIDE, demo.SIDE)
    else:
        loaded, name, path = load_model(model, format), model.name, str(model.resolve() if model.exists() else model)
    settings = Settings(loaded, name, path, places, time_limit, int(memory_limit * (1 << 30)), host, port)
    server = Server(settings)
    if host not in _LOOPBACK:
        print(f"Anybody who can reach {printable(host)} and has this link can ask:", flush=True)
    print(f"{server.link}\nCtrl-C ends it.", flush=True)
    if browser:
        import webbrowser

        webbrowser.open(server.link)
    server.run()


def _grid(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"([1-9][0-9]{0,3})[xX]([1-9][0-9]{0,3})", text)
    if not found:
        raise QueryError(f"--grid {text}: write rows and columns, such as 8x8")
    return int(found[1]), int(found[2])
