"""How exactly limits are kept: seconds past the time limit, and seconds from Ctrl-C to the answer.

    .venv/bin/python benchmarks/limits.py [NAME ...]             # the circuits and networks to measure on, or all
    .venv/bin/python benchmarks/limits.py --method branch --no-signals barley

Every line is one call of mm.marginal_map that did not come to its end before its limit: seconds past the limit, of the
whole call, kernels warm. The allowance is 0.2 s or 5%, whichever is more. Ctrl-C is a real SIGINT to a process of its
own; "twice" counts from the second. Without ../shared/data only generated circuits are measured.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import margmap as mm
from bayesnet import queries
from bayesnet import warm_up as warm_up_networks
from frontier import partly
from margmap.bench.generators import latent_tree, partition_tree
from margmap.io.formats import load_circuit
from margmap.solve.methods import methods_for
from margmap.solve.reduce import heaviest_state

METHODS = [method.name for method in methods_for("circuit")]

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
LIMITS = (0.05, 0.2, 1.0, 5.0)
SIGNALS = (0.1, 0.7)
ENUMERATED = 20


class Case(NamedTuple):
    """A model and the question that is asked of it."""

    model: Any
    query: list[Any] | None
    evidence: dict[Any, Any]

    def ask(self, method: str, **options: Any) -> mm.Result | None:
        """The answer, None where it stopped before there was a state."""
        query = self.query
        if method == "brute":
            query = (self.model.names if query is None else query)[:ENUMERATED]
        try:
            return mm.marginal_map(self.model, query, self.evidence, method, **options)
        except mm.LimitError as error:
            if "time limit" not in str(error) and "no state" not in str(error):
                raise
            return None


def _psdd(name: str) -> Case:
    return Case(*partly(name, load_circuit(DATA / "psdd" / f"{name}.psdd.gz"), 80, 0, seed=1)[1:4])


def _network(name: str) -> mm.Network:
    return mm.load_network(DATA / "bif" / f"{name}.bif.gz")


def _compiled(name: str) -> Case:
    network = _network(name)
    return Case(mm.compile(network), *queries(network)[0])


CASES: dict[str, Callable[[], Case]] = {
    "latent": lambda: Case(latent_tree(0, variables=150, states=128), None, {}),
    "peaked": lambda: Case(latent_tree(1, variables=150, states=64, concentration=0.1), None, {}),
    "values": lambda: Case(latent_tree(2, variables=60, states=96, values=8), None, {}),
    "crossing": lambda: Case(partition_tree(0, variables=60, levels=4), None, {}),
    "thicket": lambda: Case(partition_tree(0, variables=300, levels=7), None, {}),
    "mnist": lambda: Case(load_circuit(DATA / "other" / "mnist_cats8_181.jpc.gz"), None, {}),
    "plants": lambda: _psdd("plants"),
    "kdd": lambda: _psdd("kdd"),
    "ad": lambda: _psdd("ad"),
    "barley": lambda: _compiled("barley"),
    "mildew": lambda: _compiled("mildew"),
    **{
        f"{name} network": lambda name=name: Case(_network(name), *queries(_network(name))[0])  # type: ignore[misc]
        for name in ("barley", "diabetes", "munin", "munin1", "link", "pigs", "mildew")
    },
}
NEEDS_DATA = [name for name in CASES if name not in ("latent", "peaked", "values", "crossing", "thicket")]


def methods_of(case: Case) -> list[str]:
    """The methods that the model can be asked with."""
    if isinstance(case.model, mm.Network):
        return ["auto"]
    binary = all(v.cardinality == 2 for v in case.model.variables)
    return [
        name
        for name in METHODS
        if (name != "frontier" or case.model.properties.structured) and (name != "brute" or binary)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    parser.add_argument("--method", help="this one only")
    parser.add_argument("--limit", type=float, action="append", help=f"seconds, may be repeated; default {LIMITS}")
    parser.add_argument("--no-signals", action="store_true", help="time limits only")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.names[0], options.method)
        return
    warm_up()
    names = options.names or [name for name in CASES if DATA.is_dir() or name not in NEEDS_DATA]
    worst: dict[str, tuple[float, str]] = {}
    kept: list[bool] = []
    for name in names:
        case = CASES[name]()
        methods = [options.method] if options.method else methods_of(case)
        for method in methods:
            for limit in options.limit or LIMITS:
                over, shown = overrun(case, method, limit)
                if over is None:
                    break  # it comes to its end before
                allowed = max(0.2, 0.05 * limit)
                kept.append(over <= allowed)
                report(worst, f"{method} time", f"{name}, {limit:g} s: {shown}", over, allowed)
        if not options.no_signals:
            for method in methods:
                signals(worst, name, method)
    for what, (over, where) in sorted(worst.items()):
        print(f"worst {what:<24}{over:8.3f} s   ({where})")
    print(f"time limits kept within the allowance: {sum(kept)} of {len(kept)}")


def warm_up() -> None:
    """Compile, or load, every kernel, also those that only a solver needs which was stopped at once."""
    warm_up_networks(mm)
    for circuit in (latent_tree(0, variables=8, states=4), partition_tree(0, variables=12, levels=2)):
        codes, reals = circuit.evidence_codes({})
        heaviest_state(circuit, [0, 1], codes, reals)
        for method in METHODS:
            if method != "frontier" or circuit.properties.structured:
                mm.marginal_map(circuit, None, method=method)


def overrun(case: Case, method: str, limit: float) -> tuple[float | None, str]:
    """Seconds past the limit, None if the solver was done before, and how it ended."""
    begun = time.perf_counter()
    result = case.ask(method, time_limit=limit)
    seconds = time.perf_counter() - begun
    status = result.status if result is not None else "no state"
    return (seconds - limit if seconds > limit or status != "optimal" else None), status


def report(worst: dict[str, tuple[float, str]], what: str, where: str, seconds: float, allowed: float) -> None:
    print(f"{what:<24}{where:<50}{seconds:8.3f} s {'' if seconds <= allowed else 'OVER'}", flush=True)
    worst[what] = max(worst.get(what, (0.0, "")), (seconds, where))


def signals(worst: dict[str, tuple[float, str]], name: str, method: str) -> None:
    for times in (1, 2):
        for delay in SIGNALS:
            command = [sys.executable, __file__, "--child", "--method", method, name]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                process.stdout.readline()  # it begins to solve
                time.sleep(delay)
                if process.poll() is not None:
                    continue
                process.send_signal(signal.SIGINT)
                if times == 2:
                    time.sleep(0.03)
                    process.send_signal(signal.SIGINT)
                sent = time.perf_counter()
                ended = process.stdout.readline().strip()
                seconds = time.perf_counter() - sent
                process.kill()
            if ended and (ended != "optimal"):
                what = f"{method} Ctrl-C{' twice' if times == 2 else ''}"
                report(worst, what, f"{name}, after {delay:g} s: {ended}", seconds, 0.2)


def child(name: str, method: str) -> None:
    """Solve one case and say how it ended; the parent sends the signals."""
    warm_up()
    case = CASES[name]()
    case.ask(method, time_limit=0.01)
    print("begins", flush=True)
    try:
        result = case.ask(method, time_limit=20)
        print(result.status if result is not None else "no state", flush=True)
    except KeyboardInterrupt:
        print("stopped", flush=True)


if __name__ == "__main__":
    main()
