"""How long a newcomer waits: empty caches, a new Python for each figure. Run it on a quiet machine with two cores.

Every figure is wall time from the start of Python, with the CPU seconds of that process behind it. The caches are those
of a folder of their own (``NUMBA_CACHE_DIR``), so that nothing that was compiled before is found, and nothing is left.

    python benchmarks/cold_start.py            all of it, some five minutes
    python benchmarks/cold_start.py --quick    without the circuits of the shared data and the demo's installation
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
CLINIC = ROOT / "src" / "margmap" / "models" / "clinic.json"

ASK = """
import json, sys, time
from pathlib import Path
import margmap as mm
path = Path(sys.argv[1])
model = (mm.load_network if "bif" in path.name else mm.load)(path)
names = {str(v.name): v.name for v in model.variables}
query, evidence = [*names.values()][:8:2], {}
instances = path.parents[1] / "mmap_instances" / (path.name.split(".")[0] + ".json")
if path.name.endswith(".psdd.gz") and path.name.count(".") == 2 and instances.exists():
    instance = json.loads(instances.read_text())["instances"][0]
    query = [names[str(name)] for name in instance["query"]]
    evidence = {names[name]: value for name, value in instance["evidence"].items()}
result = mm.marginal_map(model, query, evidence)
times = [time.perf_counter()]
for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 0):
    mm.marginal_map(model, query, evidence)
    times.append(time.perf_counter())
print(json.dumps([result.status, result.details["tier"], [b - a for a, b in zip(times, times[1:])]]))
"""

COUNT = """
import json, sys, time
from margmap.foundation.jit import compiled_kernels
sys.argv = ["ask", *sys.argv[1:]]
exec(open(0).read())
print(compiled_kernels())
"""


def run(command: list[str], environment: dict[str, str], text: str | None = None) -> tuple[float, float, str]:
    """Wall seconds, CPU seconds and output of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, input=text, check=False)
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command[:3])} failed:\n{done.stderr}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def environment_with(cache: str, **settings: str) -> dict[str, str]:
    """The environment with this cache and with nothing that changes the tier."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("MARGMAP_", "NUMBA_")) and key != "CI"
    }
    return {**kept, "NUMBA_CACHE_DIR": cache, **settings}


def say(what: str, wall: float, cpu: float, most: float | None, more: str = "") -> None:
    allowed = "" if most is None else f"  (at most {most:g} s: {'holds' if wall <= most else 'DOES NOT HOLD'})"
    print(f"{what:<44} {wall:7.2f} s wall {cpu:7.2f} s CPU{allowed} {more}", flush=True)


def first_answers(names: list[str], most: float) -> None:
    """The first answer on each model, with an empty cache and nothing behind it."""
    for name in names:
        path = DATA / name
        if not path.exists():
            print(f"{name}: not in {DATA}")
            continue
        with tempfile.TemporaryDirectory() as cache:
            wall, cpu, out = run(
                [sys.executable, "-c", ASK, str(path)], environment_with(cache, MARGMAP_BACKGROUND="0")
            )
        status, tier, _ = json.loads(out)
        say(f"first answer, {name}", wall, cpu, most, f"{status}, {tier}")


def behind(name: str) -> None:
    """The process behind: how long it takes, what it costs the foreground, and what it leaves to compile."""
    path = str(DATA / name) if (DATA / name).exists() else str(CLINIC)
    with tempfile.TemporaryDirectory() as cache:
        alone = environment_with(cache, MARGMAP_BACKGROUND="0", MARGMAP_TIER="interpret")
        ask = [sys.executable, "-c", ASK, path, "12"]
        quiet = sorted(json.loads(run(ask, alone)[2])[2])
        begun = time.perf_counter()
        run([sys.executable, "-c", ASK, path], environment_with(cache))
        busy = sorted(json.loads(run(ask, alone)[2])[2])
        while not list(Path(cache).glob("margmap-*.warm")) and time.perf_counter() - begun < 600:
            time.sleep(0.1)
        say("compiled behind, from the first question on", time.perf_counter() - begun, 0.0, 60.0)
        if quiet:
            middle = len(quiet) // 2
            slower = busy[middle] / quiet[middle] - 1
            print(f"the foreground meanwhile: {100 * slower:+.0f} % (median of {len(quiet)}; at most +15 %)")
        for other in ("psdd/nltcs.psdd.gz", "psdd/tretail.psdd.gz", "bif/alarm.bif.gz"):
            if (DATA / other).exists():
                compiled = environment_with(cache, MARGMAP_TIER="compile")
                wall, cpu, out = run([sys.executable, "-c", COUNT, str(DATA / other)], compiled, ASK)
                say(f"then, compiled, {other}", wall, cpu, None, f"{out.split()[-1]} kernels left to compile")
        command = [sys.executable, "-m", "margmap", "solve", str(CLINIC), "-q", "illness,course", "-e", "season=winter"]
        best = min(run(command, environment_with(cache)) for _ in range(5))
        say("warm `margmap solve` on the clinic, best of 5", best[0], best[1], 0.4)


def count_compilations() -> None:
    """The kernels that the first query of a PSDD compiles when it has to."""
    path = DATA / "psdd/nltcs.psdd.gz"
    if path.exists():
        with tempfile.TemporaryDirectory() as cache:
            wall, cpu, out = run(
                [sys.executable, "-c", COUNT, str(path)], environment_with(cache, MARGMAP_TIER="compile"), ASK
            )
        say("nltcs, everything compiled first", wall, cpu, None, f"{out.split()[-1]} compilations")


def demo() -> None:
    """``make demo`` after the installation."""
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, "-m", "margmap", "demo", "--output", str(Path(cache) / "digits.png")]
        wall, cpu, _ = run(command, environment_with(cache, MARGMAP_BACKGROUND="0"))
    say("`margmap demo`, all answers", wall, cpu, 10.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    timed = "import time; b = time.perf_counter(); import margmap; print(time.perf_counter() - b)"
    best = min(float(run([sys.executable, "-c", timed], dict(os.environ))[2]) for _ in range(5))
    say("`import margmap`, best of 5", best, best, 0.05)
    first_answers(["psdd/nltcs.psdd.gz", "psdd/tretail.psdd.gz", "bif/alarm.bif.gz"], 3.0)
    demo()
    if not quick:
        first_answers(sorted(f"psdd/{path.name}" for path in (DATA / "psdd").glob("*.psdd.gz")), 6.0)
        count_compilations()
    behind("psdd/nltcs.psdd.gz")


if __name__ == "__main__":
    main()
