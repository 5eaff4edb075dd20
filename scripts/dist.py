"""Build the wheel and the source distribution, and use the wheel as a stranger would.

    python scripts/dist.py             # `make dist` does this
    python scripts/dist.py --version   # the version that would be built

Everything happens in environments of its own in a temporary folder outside of the source tree: build, ``twine check``,
then the wheel without extras (version, demo, solve, learn, a certificate and its check), then one environment for every
extra with a smoke test of what it is for. Nothing of the source tree can be imported there.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
#: Where an environment has its programs.
BIN = "Scripts" if os.name == "nt" else "bin"

#: What a newcomer does in the first hour, typed into an empty folder. The files are made by :func:`samples`.
COMMANDS = [
    "margmap --version",
    "margmap demo",
    "margmap solve coin.json --query rain,umbrella --evidence grass=wet --json --certificate proof.json",
    "margmap verify coin.json proof.json",
    "margmap info coin.json",
    "margmap learn rows.csv -o learned.json",
    "margmap solve learned.json --query 1,2 --json",
]

#: For every extra, Python that uses what it brings. An extra without an entry here is an error.
SMOKE = {
    "plot": """
        import margmap as mm
        mm.plot.answer(mm.marginal_map(mm.load("coin.json"), ["rain", "umbrella"], k=3)).save("answer.png")
        assert open("answer.png", "rb").read(4) == b"\\x89PNG"
    """,
    "learn": """
        import numpy as np
        from sklearn.model_selection import GridSearchCV
        from margmap.learn import Strudel
        rows = np.random.default_rng(0).integers(0, 2, (200, 4))
        search = GridSearchCV(Strudel(iterations=3, patience=2), {"pseudocount": [0.5, 1.0]}, cv=2).fit(rows)
        assert np.isfinite(search.best_score_)
    """,
    "tables": """
        import pandas
        import margmap as mm
        rows = [{"sky": "grey", "mm": 7.5}, {"sky": "blue", "mm": 0.0}, {"sky": "grey", "mm": 6.0}] * 20
        pandas.DataFrame(rows).to_parquet("rows.parquet")
        circuit = mm.learn.hclt("rows.parquet", latent=2, epochs=5)
        asked = pandas.DataFrame({"sky": [None, "blue"], "mm": [7.0, None]})
        filled = mm.impute(circuit, asked).table
        assert list(filled.sky) == ["grey", "blue"] and filled.mm[1] == 0.0, filled
    """,
    "bn": """
        from pgmpy.factors.discrete import TabularCPD
        from pgmpy.models import DiscreteBayesianNetwork
        import margmap as mm
        model = DiscreteBayesianNetwork([("a", "b")])
        model.add_cpds(TabularCPD("a", 2, [[0.3], [0.7]]), TabularCPD("b", 2, [[0.9, 0.2], [0.1, 0.8]], ["a"], [2]))
        assert mm.marginal_map(model, ["a"], {"b": 1}).state == {"a": 1}
    """,
    "networks": """
        import margmap as mm
        r = mm.marginal_map(mm.load_network("rain.bif"), None, method="wcsp")
        assert r.status == "optimal", r
    """,
    "explore": """
        import json, subprocess, sys
        from urllib.request import Request, urlopen
        command = [sys.executable, "-m", "margmap", "explore", "coin.json"]
        with subprocess.Popen(command, stdout=-1, text=True) as server:
            try:
                link = server.stdout.readline().strip()
                assert b"margmap" in urlopen(link).read()
                names = [variable["name"] for variable in json.load(urlopen(link + "model"))["variables"]]
                asked = {"query": [names.index("rain")], "evidence": {names.index("grass"): 1}}
                headers = {"Content-Type": "application/json"}
                events = urlopen(Request(link + "ask", json.dumps(asked).encode(), headers)).read().splitlines()
                answer = {event["kind"]: event for event in map(json.loads, events)}["answer"]
                assert (answer["status"], answer["best"]["state"]) == ("optimal", [1]), answer
            finally:
                server.terminate()
    """,
    "cluster": """
        import margmap as mm
        from distributed import Client
        if __name__ == "__main__":
            rows = [{"grass": "wet"}, {"grass": "dry"}]
            with Client(n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
                executor = client.get_executor()
                results = list(mm.marginal_map_many(mm.load("coin.json"), ["rain"], rows, executor=executor))
            assert [r.status for r in results] == ["optimal", "optimal"]
    """,
}

#: Extras that developers need and users do not; their parts are tested one by one.
NOT_FOR_USERS = {"dev", "docs"}


def main() -> None:
    """Build, check and try; the first failure ends the program with its output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="store_true", help="print the version and do nothing")
    parser.add_argument("--no-extras", action="store_true", help="only the wheel by itself")
    options = parser.parse_args()
    if options.version:
        print(version())
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="margmap-dist-") as name:
        folder = Path(name)
        wheel = build(folder)
        try_wheel(folder, wheel)
        for extra in [] if options.no_extras else extras():
            try_extra(folder, wheel, extra)
    print(f"dist: {', '.join(path.name for path in sorted(DIST.iterdir()))} work; {time.monotonic() - began:.0f} s")


def version() -> str:
    """The version in the one place where it stands."""
    text = (ROOT / "src" / "margmap" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    assert found
    return found[1]


def extras() -> list[str]:
    """The extras of pyproject.toml that users may ask for."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table = text.split("[project.optional-dependencies]")[1].split("\n[")[0]
    found = [name for name in re.findall(r"^([a-z]+) = \[", table, re.MULTILINE) if name not in NOT_FOR_USERS]
    if missing := set(found) - SMOKE.keys():
        sys.exit(f"scripts/dist.py: no smoke test for the extras {', '.join(sorted(missing))}")
    return found


def build(folder: Path) -> Path:
    """The wheel; it and the source distribution are in dist/ afterwards, both passed by twine."""
    shutil.rmtree(DIST, ignore_errors=True)
    python = environment(folder / "build", ["build", "twine"])
    run([python, "-m", "build", "--outdir", str(DIST), str(ROOT)], folder)
    made = sorted(DIST.iterdir())
    run([python, "-m", "twine", "check", "--strict", *map(str, made)], folder)
    (wheel,) = (path for path in made if path.suffix == ".whl")
    assert f"-{version()}-" in wheel.name, f"{wheel.name} is not version {version()}"
    return wheel


def try_wheel(folder: Path, wheel: Path) -> None:
    """The wheel without extras in an empty environment: every command of :data:`COMMANDS`."""
    python = environment(folder / "plain", [str(wheel)])
    room = samples(folder / "plain-work")
    code = "import margmap, pathlib; print(pathlib.Path(margmap.__file__).parent)"
    where = run([python, "-c", code], room).strip()
    assert not Path(where).is_relative_to(ROOT), f"the source tree was imported: {where}"
    for command in COMMANDS:
        words = command.split()
        run([str(Path(python).parent / words[0]), *words[1:]], room)


def try_extra(folder: Path, wheel: Path, extra: str) -> None:
    """The wheel with one extra in an empty environment: its smoke test."""
    python = environment(folder / extra, [f"margmap[{extra}] @ {wheel.as_uri()}"])
    room = samples(folder / f"{extra}-work")
    (room / "smoke.py").write_text(textwrap.dedent(SMOKE[extra]))
    run([python, "smoke.py"], room)


def environment(folder: Path, packages: list[str]) -> str:
    """An empty environment with these packages and not even pip; the path of its Python.

    The pip of the first environment, the one that builds, installs into all of them. It leaves out to compile what most
    of the packages' modules are never asked for here, which takes longer than everything else.
    """
    first = folder.parent / "build"
    venv.create(folder, with_pip=folder == first)
    python = str(folder / BIN / "python")
    pip = [str(first / BIN / "python"), "-m", "pip", "--python", python, "install", "--no-compile"]
    run([*pip, "--quiet", "--disable-pip-version-check", *packages], folder)
    return python


def samples(folder: Path) -> Path:
    """A folder with a circuit, a network and a table of our own."""
    folder.mkdir()
    (folder / "make.py").write_text(
        textwrap.dedent("""
        import margmap as mm
        rain, umbrella = mm.Variable("rain"), mm.Variable("umbrella")
        grass = mm.Variable("grass", 2, ("dry", "wet"))
        wet = 0.3 * rain[1] * mm.bernoulli(umbrella, 0.9) * mm.bernoulli(grass, 0.95)
        dry = 0.7 * rain[0] * mm.bernoulli(umbrella, 0.1) * mm.bernoulli(grass, 0.2)
        mm.save(mm.circuit_of(wet + dry), "coin.json")
        """)
    )
    (folder / "rain.bif").write_text(
        "network rain {}\n"
        "variable rain { type discrete [ 2 ] { no, yes }; }\n"
        "variable wet { type discrete [ 2 ] { no, yes }; }\n"
        "probability ( rain ) { table 0.7, 0.3; }\n"
        "probability ( wet | rain ) { (no) 0.8, 0.2; (yes) 0.05, 0.95; }\n"
    )
    (folder / "rows.csv").write_text("".join(f"{i % 2},{(i // 2) % 2},{i % 3 % 2}\n" for i in range(60)))
    run([str(folder.parent / folder.name.removesuffix("-work") / BIN / "python"), "make.py"], folder)
    return folder


def run(command: list[str], folder: Path) -> str:
    """What the command printed; its failure ends the program with all of it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MARGMAP"))}
    clean["MARGMAP_BACKGROUND"] = "0"  # the environment is gone before such a process would have compiled everything
    shown = " ".join(command)
    print(f"  {shown[:150]}", flush=True)
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"failed with exit code {done.returncode}: {shown}\n{done.stdout}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
