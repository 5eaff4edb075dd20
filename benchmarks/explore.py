"""Questions in a row: how soon the page of ``margmap explore`` shows an answer, and what a session saves.

    python benchmarks/explore.py              # everything
    python benchmarks/explore.py --only page  # or: session

*page* drives real Chromium (Debian: chromium and chromium-driver): 200 clicks, one at a time, on the network alarm and
on the bundled digits, each timed by the page from the click to the frame that shows the answer, and 50 rapid clicks,
after which one query may be under way at most and the last answer must be shown. Goal: a median of at most 150 ms.

*session* changes the evidence of a query on plants 100 times, one variable at a time, and compares ``mm.Session`` with
``mm.marginal_map`` from scratch. Goal: a median of at most 0.3 times. Models come from ../shared/data; what is not
there is left out, and said.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import margmap as mm
from margmap import demo
from margmap.bench.browser import chromium
from margmap.errors import MissingExtraError
from margmap.explore.server import Server, Settings

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
CLICKS, RAPID, CHANGES = 200, 50, 100

# Query and evidence as parts of all variables.
SPLITS = ((0.1, 0.1), (0.3, 0.3), (0.5, 0.2))


def models() -> Iterator[tuple[str, Any, dict[str, Any], list[str], list[str]]]:
    """Name, model, settings, the query and the variables whose states are clicked."""
    path = DATA / "bif" / "alarm.bif.gz"
    if path.exists():
        network = mm.load_network(path)
        names = [str(name) for name in network.names]
        yield "alarm", network, {}, names[:3], names[3:]
    else:
        print(f"alarm left out: no {path}")
    names = [str(name) for name in demo.digit_query()]
    seen = [str(i + 1) for i in range(demo.SIDE * demo.SIDE // 2)]
    yield "digits", demo.load_digits(), {"grid": (demo.SIDE, demo.SIDE)}, names, seen


def page() -> None:
    with tempfile.TemporaryDirectory() as folder, chromium(folder) as browser:
        for name, model, settings, query, seen in models():
            with Server(Settings(model, name, **settings)).serving() as server:
                browser.visit(server.link)
                settled = "return document.body.dataset.state === 'answered'"
                browser.until(settled)
                for one in query:
                    browser.run(_CLICK, one, "[data-role=asked]")
                    browser.until(settled)
                times = []
                for i in range(CLICKS):
                    browser.run("performance.clearMeasures()")
                    click = (seen[(7 * i) % len(seen)], f".state[data-code='{(i // len(seen)) % 2}']")
                    browser.run(_CLICK, *click)
                    times.append(browser.until("return performance.getEntriesByName('answer')[0]?.duration"))
                    browser.until("return document.body.dataset.state !== 'asking'")
                    if browser.run("return document.body.dataset.state") == "error":  # impossible: take it back
                        browser.run(_CLICK, *click)
                        browser.until("return document.body.dataset.state !== 'asking'")
                low, high = np.percentile(times, [10, 90])
                print(
                    f"{name}: click to answer, {CLICKS} clicks: median {statistics.median(times):.0f} ms, "
                    f"10 % {low:.0f} ms, 90 % {high:.0f} ms, longest {max(times):.0f} ms"
                )
                running = browser.run(_RAPID, seen[0], RAPID)
                browser.until("return document.body.dataset.state !== 'asking'")
                shown = browser.run("return document.querySelector('.probability')?.innerText")
                browser.run("document.querySelector('#k').onchange({target: {value: 5}})")
                browser.until("return document.body.dataset.state !== 'asking'")
                again = browser.run("return document.querySelector('.probability')?.innerText")
                print(
                    f"{name}: {RAPID} rapid clicks: {running} running after them, last answer shown: {shown == again}"
                )


_CLICK = """
  const row = [...document.querySelectorAll("#variables li")]
    .find(one => one.querySelector(".name").textContent === arguments[0]);
  row.querySelector(arguments[1]).click();
"""
_RAPID = """
  const row = [...document.querySelectorAll("#variables li")]
    .find(one => one.querySelector(".name").textContent === arguments[0]);
  const states = row.querySelectorAll(".state");
  for (let i = 0; i < arguments[1]; i++) { states[i % 2].click(); await new Promise(done => setTimeout(done, 2)); }
  return (await (await fetch("status")).json()).running;
"""


def session() -> None:
    path = DATA / "psdd" / "plants.psdd.gz"
    if not path.exists():
        print(f"session left out: no {path}")
        return
    circuit = mm.load(path)
    for asked, given in SPLITS:
        rng = np.random.default_rng(0)
        order = rng.permutation(len(circuit.names))
        first, last = int(asked * order.size), int((asked + given) * order.size)
        query = [circuit.names[i] for i in order[:first]]
        row = mm.sample(circuit, 1, seed=1)[0]
        evidence = {circuit.names[i]: int(row[i]) for i in order[first:last]}
        kept = mm.Session(circuit)
        mm.marginal_map(circuit, query, evidence)
        kept.marginal_map(query, evidence)
        scratch, again = [], []
        while len(again) < CHANGES:
            name = list(evidence)[rng.integers(len(evidence))]
            changed = {**evidence, name: 1 - evidence[name]}
            if mm.log_marginal(circuit, changed) == -np.inf:
                continue
            evidence = changed
            begun = time.perf_counter()
            expected = mm.marginal_map(circuit, query, evidence)
            scratch.append(time.perf_counter() - begun)
            begun = time.perf_counter()
            found = kept.marginal_map(query, evidence)
            again.append(time.perf_counter() - begun)
            assert found.log_prob == expected.log_prob
        a, b = 1e3 * statistics.median(again), 1e3 * statistics.median(scratch)
        print(
            f"plants {asked:.0%} asked, {given:.0%} observed, {CHANGES} changes: session {a:.2f} ms, "
            f"from scratch {b:.2f} ms, ratio {a / b:.2f}; {kept.nbytes / 1e6:.1f} MB kept"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("page", "session"))
    only = parser.parse_args().only
    for part in (page, session):
        if only in (None, part.__name__):
            try:
                part()
            except MissingExtraError as error:
                print(f"{part.__name__} left out: {error}")
