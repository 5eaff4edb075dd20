"""Make the pictures of docs/gallery.md and of the tutorials, in docs/assets/gallery.

    .venv/bin/python scripts/make_gallery.py

Needs the extra "plot"; the picture of ``margmap explore`` also needs the extra "explore" and Chromium with its driver,
and stays as it is where they are not there.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import margmap as mm
from margmap import demo
from margmap.bench.browser import chromium
from margmap.demo import picture
from margmap.errors import MissingExtraError

OUT = Path(__file__).resolve().parent.parent / "docs" / "assets" / "gallery"


def figure_one() -> mm.plot.Picture:
    """The circuit of the paper's Figure 1, with the bounds on every edge and the part that the answer uses."""
    x1, x2, x3 = (mm.Variable(name) for name in ("X1", "X2", "X3"))
    upper = 0.7 * mm.bernoulli(x2, 0.9) * x3[1] + 0.3 * x2[0] * x3[0]
    lower = 0.8 * mm.bernoulli(x2, 0.8) * x3[1] + 0.2 * x2[0] * x3[0]
    circuit = mm.circuit_of(0.6 * x1[1] * upper + 0.4 * x1[0] * lower)
    return mm.plot.circuit(circuit, mm.marginal_map(circuit, ["X1", "X2"]))


def station() -> mm.plot.Picture:
    """A pump station whose alarm rings: every variable's probabilities, and the most likely faults."""
    names = ("pump", "valve", "sensor", "pressure", "alarm")
    states = [("fine", "broken")] * 3 + [("normal", "low"), ("quiet", "ringing")]
    variables = [mm.Variable(name, 2, of_it) for name, of_it in zip(names, states, strict=True)]
    network = mm.Network(
        variables,
        [
            ([0], [0.95, 0.05]),
            ([1], [0.9, 0.1]),
            ([2], [0.97, 0.03]),
            ([0, 1, 3], [[[0.99, 0.01], [0.3, 0.7]], [[0.1, 0.9], [0.05, 0.95]]]),
            ([3, 2, 4], [[[0.98, 0.02], [0.4, 0.6]], [[0.1, 0.9], [0.5, 0.5]]]),
        ],
    )
    evidence = {"alarm": "ringing"}
    result = mm.marginal_map(network, ["pump", "valve", "sensor"], evidence)
    return mm.plot.network(network, result, evidence=evidence)


def answers() -> mm.plot.Picture:
    """The eight most likely states of four variables of the clinic."""
    result = mm.marginal_map(mm.load_circuit("clinic"), ["illness", "course", "cough", "age"], demo.FEVER, k=8)
    return mm.plot.answer(result)


def closing() -> mm.plot.Picture:
    """Both bounds against time, of a question on the digits that search takes a while for."""
    query = list(range(33, 47))
    result = mm.marginal_map(mm.load_circuit("digits"), query, {1: 0, 4: 1, 5: 1}, method="branch", time_limit=60)
    return mm.plot.bounds(result)


def digits(path: Path) -> None:
    """The picture of ``margmap demo``."""
    circuit, shown = demo.load_digits(), demo.held_out()
    picture.write_demo(shown, [demo.complete_digit(circuit, digit) for digit in shown], path)


def of_tutorial(page: str, name: str, path: Path) -> None:
    """The picture that the Python blocks of a tutorial write, run here one after the other in a folder of their own."""
    text = (OUT.parents[1] / "tutorials" / page).read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "tutorial"}
    back = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for code in re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
                exec(compile(code, page, "exec"), names)
                if Path(name).exists():
                    shutil.copy(name, path)
                    return
        finally:
            os.chdir(back)
    raise AssertionError(f"{page} writes no {name}")


def explore(path: Path) -> None:
    """A screenshot of the page of ``margmap explore``, on the clinic."""
    from margmap.explore.server import Server, Settings

    asked = {"query": list(demo.QUERY), "evidence": demo.FEVER}
    link = "#q=" + base64.urlsafe_b64encode(json.dumps(asked).encode()).decode().rstrip("=")
    settings = Settings(demo.load_model(), name="clinic")
    with tempfile.TemporaryDirectory() as folder, chromium(folder) as browser, Server(settings).serving() as server:
        browser.resize(1100, 720)
        browser.visit(server.link + link)
        browser.until("return document.body.dataset.state == 'answered'", seconds=300)
        time.sleep(1)  # the answer has faded in
        browser.screenshot(path, whole=False)


def main() -> None:
    """Draw all, or those whose names are given."""
    OUT.mkdir(parents=True, exist_ok=True)
    wanted = set(sys.argv[1:])
    drawn = {"circuit.svg": figure_one, "network.svg": station, "answer.svg": answers, "bounds.svg": closing}
    for name, draw in drawn.items():
        if not wanted or name.split(".")[0] in wanted:
            made = draw()
            made.save(OUT / name)
            print(f"{name}: {made.title}. {made.description}")
    written: dict[str, Callable[[Path], None]] = {
        "digits.png": digits,
        "explore.png": explore,
        "tutorial-car.svg": partial(of_tutorial, "diagnosis.md", "car.svg"),
        "tutorial-survey.svg": partial(of_tutorial, "circuits.md", "survey.svg"),
        "tutorial-three.png": partial(of_tutorial, "images.md", "three.png"),
    }
    for name, write in written.items():
        if not wanted or name.split(".")[0] in wanted:
            try:
                write(OUT / name)
                print(name)
            except (ImportError, MissingExtraError) as error:
                print(f"{name} stays as it is: {error}")


if __name__ == "__main__":
    main()
