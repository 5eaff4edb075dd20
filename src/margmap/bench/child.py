"""Where runs happen: a process that has the kernels loaded and forks one of its own for each task on its stdin.

What it says, a line of JSON each: the number of the new process, ``"ready"`` when that begins to solve, its answer if
it lived to give one, and how it ended.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from operator import add, mul
from typing import TYPE_CHECKING, Any

from margmap.errors import MargmapError
from margmap.foundation.memory import peak_memory

if TYPE_CHECKING:
    from margmap.solve.methods import MethodName

#: How often the end of a run, or of whoever asked for it, is looked for.
WATCH_MILLISECONDS = 5


def main() -> None:
    """Do one task after the other. When stdin ends, whoever asked has gone: so does this process and its run."""
    out, sys.stdout = os.fdopen(os.dup(sys.stdout.fileno()), "w"), sys.stderr
    known = set()

    def say(message: Any) -> None:
        print(json.dumps(message), file=out, flush=True)

    while line := sys.stdin.readline():
        task = json.loads(line)
        kernels = json.dumps([task["method"], task["options"]])
        if kernels not in known:
            known.add(kernels)
            with suppress(MargmapError):  # the run will tell
                warm_up(task["method"], task["options"])
        if not hasattr(os, "fork"):
            say({"pid": os.getpid()})
            say(answer_of(task, say))
            return
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one who decides, at the other end
            say(answer_of(task, say))
            os._exit(0)
        say({"pid": pid})
        say({"ended": _wait(pid)})


def _wait(pid: int) -> int:
    """How the process ended: an exit code, or minus a signal. It is killed if nobody is left to be told."""
    alone = select.poll()
    alone.register(sys.stdin, select.POLLHUP)
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if any(event & select.POLLHUP for _, event in alone.poll(WATCH_MILLISECONDS)):
            os.kill(pid, signal.SIGKILL)
            os._exit(1)


def answer_of(task: dict[str, Any], say: Callable[[Any], None]) -> dict[str, Any]:
    """The result of the task, or what went wrong, as a part of its record."""
    try:
        return _solve(task, lambda: say("ready"))
    except MargmapError as error:
        return {"status": "failed", "error": str(error)}
    except MemoryError:
        return {"status": "memory_limit", "error": "out of memory"}
    except Exception as error:  # a record must tell what went wrong, whatever it was
        return {"status": "failed", "error": f"{type(error).__name__}: {error}"}


def _solve(task: dict[str, Any], ready: Callable[[], None]) -> dict[str, Any]:
    from margmap.bench.instances import read
    from margmap.foundation.limits import count_computing
    from margmap.io.formats import load_circuit
    from margmap.solve.marginal_map import marginal_map

    begun = time.perf_counter()
    circuit = load_circuit(task["model"])
    load_seconds = time.perf_counter() - begun
    instance = read(task["instances"]).instances[task["instance"]]
    if task["computing"]:
        count_computing()
    ready()
    limits = {} if task["memory_limit"] is None else {"memory_limit": task["memory_limit"]}
    cpu = time.process_time()
    result = marginal_map(
        circuit, instance.query, instance.evidence, task["method"], task["time_limit"], **limits, **task["options"]
    )
    answer = {name: _plain(value) for name, value in result.to_dict().items() if name != "method"}
    answer |= {
        "cpu_seconds": time.process_time() - cpu,
        "load_seconds": load_seconds,
        "peak_bytes": peak_memory(),
        "edges": circuit.num_edges,
        "variables": len(circuit.variables),
    }
    if task["trace"] and result.trace:
        answer["trace"] = [{name: _plain(value) for name, value in row.to_dict().items()} for row in result.trace]
    return answer


def warm_up(method: MethodName, options: dict[str, Any]) -> None:
    """Load the kernels, and on a new machine compile them, before the clock is looked at.

    On a problem of no size, but one that every method has to work on: a mixture of coins that exclude nothing.
    """
    from margmap.circuit import Variable
    from margmap.circuit.formula import bernoulli, circuit_of
    from margmap.solve.marginal_map import marginal_map

    chances = [[0.15 + 0.07 * ((7 * i + 3 * k + i * k) % 11) for i in range(9)] for k in range(5)]
    parts = [reduce(mul, (bernoulli(Variable(i), p) for i, p in enumerate(row))) for row in chances]
    marginal_map(circuit_of(reduce(add, (0.2 * part for part in parts))), None, {}, method, **options)


def _plain(value: Any) -> Any:
    """A number that JSON has, with -inf as margmap's other JSON writes it."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    main()
