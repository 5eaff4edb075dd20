"""How long a newcomer waits: empty caches, a new Python for each figure. Run it on a quiet machine with two cores.

Every figure is wall time from the start of Python, with the CPU seconds of that process behind it: on a busy machine
only those say something. The caches are those of a folder of their own (``NUMBA_CACHE_DIR``), so that nothing that was
compiled before is found, and nothing is left. Python's own byte code is there, as an installation leaves it.

    python benchmarks/cold_start.py            all of it, some five minutes
    python benchmarks/cold_start.py --quick    of the circuits of the shared data only the two largest
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
CLINIC = ROOT / "src" / "margmap" / "models" / "clinic.json"

#: Seconds after which the process behind is not waited for any longer.
MOST_BEHIND = 900.0

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
times = []
for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 0):
    wall, cpu = time.perf_counter(), time.process_time()
    mm.marginal_map(model, query, evidence)
    times.append((time.perf_counter() - wall, time.process_time() - cpu))
print(json.dumps([result.status, result.details["tier"], times]))
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
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
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


def cpu_of_process_behind(cache: str) -> float | None:
    """CPU seconds of the process that holds the lock of a cache; None if there is none, or where there is no /proc."""
    try:
        inode = f":{(Path(cache) / 'margmap-warmup.lock').stat().st_ino}"
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        holders = [fields[4] for fields in held if fields[1] == "FLOCK" and fields[5].endswith(inode)]
        fields = Path(f"/proc/{holders[0]}/stat").read_text().rpartition(")")[2].split()
    except (OSError, IndexError):
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def columns(rows: list[list[float]]) -> list[tuple[float, ...]]:
    """Wall and CPU seconds of several runs, each as a column."""
    return [*zip(*rows, strict=True)]


def behind(name: str) -> None:
    """The process behind: how long it takes, what it costs the foreground, and what it leaves to compile."""
    path = str(DATA / name) if (DATA / name).exists() else str(CLINIC)
    with tempfile.TemporaryDirectory() as cache:
        alone = environment_with(cache, MARGMAP_BACKGROUND="0", MARGMAP_TIER="interpret")
        ask = [sys.executable, "-c", ASK, path, "12"]
        quiet = json.loads(run(ask, alone)[2])[2]
        begun = time.perf_counter()
        run([sys.executable, "-c", ASK, path], environment_with(cache))
        cpu = cpu_of_process_behind(cache) or 0.0
        busy = json.loads(run(ask, alone)[2])[2]
        under_way = cpu_of_process_behind(cache) is not None
        while not list(Path(cache).glob("margmap-*.warm")) and time.perf_counter() - begun < MOST_BEHIND:
            time.sleep(0.1)
            cpu = cpu_of_process_behind(cache) or cpu
        say("compiled behind, from the first question on", time.perf_counter() - begun, cpu, 60.0)
        before, meanwhile = ([statistics.median(column) for column in columns(rows)] for rows in (quiet, busy))
        slower = [100 * (after / first - 1) for first, after in zip(before, meanwhile, strict=True)]
        beside = "" if under_way else " (but the process behind had ended before)"
        print(f"the foreground meanwhile: {slower[0]:+.0f} % wall, {slower[1]:+.0f} % CPU (at most +15 %){beside}")
        for other in ("psdd/nltcs.psdd.gz", "psdd/tretail.psdd.gz", "bif/alarm.bif.gz"):
            if (DATA / other).exists():
                compiled = environment_with(cache, MARGMAP_TIER="compile")
                wall, cpu, out = run([sys.executable, "-c", COUNT, str(DATA / other)], compiled, ASK)
                say(f"then, compiled, {other}", wall, cpu, None, f"{out.split()[-1]} kernels left to compile")
        command = [sys.executable, "-m", "margmap", "solve", str(CLINIC), "-q", "illness,course", "-e", "season=winter"]
        runs = [[*run(command, environment_with(cache))[:2]] for _ in range(5)]
        say("warm `margmap solve` on the clinic, best of 5", *map(min, columns(runs)), 0.4)


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
    compileall.compile_dir(ROOT / "src", quiet=2)
    timed = "import time; w, c = time.perf_counter(), time.process_time(); import margmap; "
    timed += "print(time.perf_counter() - w, time.process_time() - c)"
    runs = [run([sys.executable, "-c", timed], environment_with(tempfile.gettempdir()))[2].split() for _ in range(5)]
    say("`import margmap`, best of 5", *map(min, columns([[*map(float, one)] for one in runs])), 0.05)
    first_answers(["psdd/nltcs.psdd.gz", "psdd/tretail.psdd.gz", "bif/alarm.bif.gz"], 3.0)
    demo()
    largest = sorted((DATA / "psdd").glob("*.psdd.gz"), key=lambda path: -path.stat().st_size)
    first_answers([f"psdd/{path.name}" for path in largest[: 2 if quick else None]], 6.0)
    if not quick:
        count_compilations()
    behind("psdd/nltcs.psdd.gz")


if __name__ == "__main__":
    main()
