"""Figures that are quoted in prose are those of the files that scripts wrote."""

import json
import math
import re
import shutil
import statistics
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

import margmap as mm
from margmap.bench.report import report

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "docs" / "benchmarks"
SHARED = ROOT.parent / "shared" / "data"

#: The methods of the paper's experiment, in the order of its tables.
LABELS = ["frontier", "UB regroup", "UB", "Pruned", "MaxSPN"]
#: An answer that is further below the best one, in nats, is wrong.
WRONG = 1e-6


def records(name):
    lines = (BENCHMARKS / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def plain(name):
    """The text of a page without line breaks and marks of emphasis."""
    return re.sub(r"\s+", " ", (ROOT / name).read_text(encoding="utf-8").replace("*", ""))


def tables(text):
    return [line for line in text.splitlines() if line.startswith("|")]


def solved(runs, label):
    ours = [run for run in runs if run["label"] == label]
    return sum(run["status"] == "optimal" for run in ours), len(ours), ours


def test_the_paper_experiment():
    runs = records("paper/runs.jsonl")
    ours, all_of_them, frontier = solved(runs, "frontier")
    original, as_many, _ = solved(runs, "UB")
    mean = sum(run["seconds"] for run in frontier) / len(frontier)
    assert all_of_them == as_many
    said = plain("paper/paper.md")
    assert f"solves {ours} of {all_of_them} questions, in {1e3 * mean:.0f} milliseconds on average" in said
    assert f"the corrected original solves {original} within a minute each" in said


def test_how_far_the_paper_experiment_got():
    runs, said = records("paper/runs.jsonl"), plain("docs/benchmarks/paper/README.md")
    counts = {label: solved(runs, label)[1] for label in LABELS}
    assert f"all five methods ran on all {counts['frontier']} instances with a minute each" in said
    assert set(counts.values()) == {400}
    computed = Counter(run["label"] for run in runs if run.get("computing"))
    assert f"Pruned on {computed['Pruned']} and MaxSPN on {computed['MaxSPN']} instances were made" in said
    large = records("paper/large/runs.jsonl")
    proven, all_of_them, frontier = solved(large, "frontier")
    slowest = max(run["seconds"] for run in frontier)
    assert f"frontier ran on {all_of_them} of them and solved {proven}, the slowest in {slowest:.1f} s" in said
    theirs, as_many, _ = solved(large, "UB")
    assert f"UB ran on {as_many} and solved {theirs}" in said
    assert all(run["computing"] for run in large)  # as the page says
    (limit,) = {run["time_limit"] for run in large}
    assert f"the limit is {limit:g} s of the processor" in said
    again = (BENCHMARKS / "records" / "again.txt").read_text(encoding="utf-8")
    for label in ("Pruned", "MaxSPN"):
        pairs = re.findall(rf"^{label} .* recorded +(\S+) s, again +(\S+) s$", again, re.MULTILINE)
        slower = statistics.median(float(after) / float(before) for before, after in pairs)
        assert f"Pruned and MaxSPN {slower:.1f} times" in said
    edges = sorted({run["edges"] for run in runs})
    assert f"They have {edges[0]:,} to {edges[-1]:,} edges when read back" in said


@pytest.mark.parametrize("folder", ["paper", "paper/large"])
def test_reports_are_those_of_their_records(folder, tmp_path):
    """Every table of the page in the repository, from the records in the repository."""
    if not (BENCHMARKS / folder / "runs.jsonl").exists():
        pytest.skip("not run yet")
    runs = records(f"{folder}/runs.jsonl")
    found = report(runs, tmp_path, labels=list(dict.fromkeys(run["label"] for run in runs)))
    assert found.conflicts == []
    page = (BENCHMARKS / folder / "report.md").read_text(encoding="utf-8")
    assert tables(page) == tables(found.written[0].read_text(encoding="utf-8"))
    for picture in tmp_path.glob("*.svg"):
        assert picture.read_text(encoding="utf-8") == (BENCHMARKS / folder / picture.name).read_text(encoding="utf-8")


def test_the_printed_rule_and_its_wrong_answers():
    """How often it ends on a wrong answer, wherever that is quoted; the sound rules never do."""
    runs = records("paper/ablation.jsonl")
    best = {(r["dataset"], r["instance"]): r["log_prob"] for r in runs if r["label"] == "frontier"}
    below = {}
    for run in runs:
        if run["status"] == "optimal":
            away = best[run["dataset"], run["instance"]] - run["log_prob"]
            below.setdefault(run["label"], []).append(away)
    wrong = [nats for nats in below["printed rule"] if nats > WRONG]
    assert all(nats <= WRONG for label, own in below.items() if label != "printed rule" for nats in own)
    called, number = len(below["printed rule"]), len(wrong)
    erratum = plain("docs/erratum.md")
    assert f"called {called} answers optimal; {number} of them were wrong, by up to {max(wrong):.1f} nats" in erratum
    assert f"called wrong answers optimal on {number} of {called} instances" in plain("README.md")
    assert f"on {number} of {called} instances" in plain("paper/paper.md")
    assert f"| printed rule | {called} | {number} | {max(wrong):.3g} |" in plain("docs/benchmarks/paper/ablation.md")


@pytest.mark.parametrize("weight", ["1/2", "63/100"])
def test_the_numbers_of_the_erratum(weight):
    """Both examples again, in fractions, and every number that the page has of them."""
    said, first, half = plain("docs/erratum.md"), Fraction(weight), Fraction(1, 2)
    weights = (first, 1 - first)
    x = ((Fraction(1, 10), Fraction(9, 10)), (Fraction(9, 10), Fraction(1, 10)))
    y = ((half, half), (Fraction(9, 10), Fraction(1, 10)))
    terms = {(a, b): [weights[i] * x[i][a] * y[i][b] for i in (0, 1)] for a in (0, 1) for b in (0, 1)}
    values = {state: sum(parts) for state, parts in terms.items()}
    below = [max(x[i]) * max(y[i]) for i in (0, 1)]
    root = sum(weights[i] * below[i] for i in (0, 1))
    # The edge from a distribution of the i-th product to its smaller value: printed, and with the other factor.
    printed = {"N1": root + weights[0] * (x[0][0] - max(x[0])), "N2": root + weights[1] * (x[1][1] - max(x[1]))}
    printed["S2"] = root + weights[1] * (y[1][1] - max(y[1]))
    corrected = root + weights[0] * max(y[0]) * (x[0][0] - max(x[0]))
    best, known = values[0, 0], values[1, 0]
    assert best == max(values.values()) > known
    assert printed["N1"] < best <= corrected
    if first == half:
        for (a, b), (one, two) in terms.items():
            row = f"X={a}, Y={b} | .5 · {dot(x[0][a])} · {dot(y[0][b])} = {dot(one)} "
            assert f"{row}| .5 · {dot(x[1][a])} · {dot(y[1][b])} = {dot(two)} | {dot(values[a, b])} |" in said
        assert f"have .9 · .5 = {dot(below[0])} and .9 · .9 = {dot(below[1])}" in said
        assert f"the root has {dot(half * below[0])} + {dot(half * below[1])} = {dot(root)}." in said
        assert f"r = {dot(root)} + .5 · (.1 - .9) = {dot(printed['N1'])}, which is below {dot(best)}" in said
        assert f"r = {dot(root)} + .25 · (.1 - .9) = {dot(corrected)}, here exactly the truth" in said
        assert corrected == best
        assert f"If X=1, Y=0 with {dot(known)} is the best state known" in said
        assert f"X=0, Y=0 drops to {dot(terms[0, 0][1])}" in said
    else:
        for state, value in (("X=0, Y=0", (0, 0)), ("X=1, Y=0", (1, 0))):
            one, two = terms[value]
            assert f"{state} with {dot(one)} + {dot(two)} = {dot(values[value])}" in said
        assert f"bound is {dot(first * below[0])} + {dot(weights[1] * below[1])} = {dot(root)}." in said
        assert f"{dot(root)} - .63 · .8 = {dot(printed['N1'])} for N1" in said
        assert f"{dot(root)} - .37 · .8 = {dot(printed['N2'])} for both N2" in said
        assert printed["N2"] == printed["S2"]
        assert max(printed.values()) < known
        # What is left: the first term with X=1, the second with X=0 and Y=0.
        left = [max(terms[1, 0][0], terms[1, 1][0]), terms[0, 0][1]]
        assert f"max({dot(left[0])}, {dot(left[1])}) = {dot(max(left))}. It is below the value" in said
        assert max(left) < known
        assert f'"proven optimal". But {dot(best)} is better' in said


def dot(number):
    """As the page writes it: .43."""
    text = f"{float(number):.6f}".rstrip("0")
    assert Fraction(text) == number
    return text.lstrip("0")


def test_a_few_evaluations():
    """The README's round figure is the median of the 48 instances."""
    printed = (BENCHMARKS / "records" / "instances.txt").read_text(encoding="utf-8")
    ratios = re.findall(r"^\w+ \d +\d+ +\d+ +[\d.]+ +[\d.]+ +([\d.]+) +\d+ +\d+$", printed, re.MULTILINE)
    assert len(ratios) == 48
    words = ("no", "one", "two", "three", "four", "five", "six")
    middle = words[round(statistics.median(map(float, ratios)))]
    assert f"about as long as {middle} plain evaluations of the circuit" in plain("README.md")


@pytest.mark.skipif(not (SHARED / "bif").is_dir(), reason="needs ../shared/data")
def test_a_table_over_alarm():
    network = mm.load_network(SHARED / "bif" / "alarm.bif.gz")
    entries = math.prod(variable.cardinality for variable in network.variables[:24])
    assert f"{entries * 8 / 2**30:.0f} GiB for the first 24 variables of the alarm network" in plain("README.md")


@pytest.mark.parametrize(
    ("page", "script", "given"),
    [
        ("paper/ablation.md", "ablation.py", ["report"]),
        ("paper/beyond.md", "beyond.py", ["report"]),
        ("learning.md", "learn.py", ["--write", "--results", "docs/benchmarks/learn.jsonl"]),
        ("learning.md", "latent_trees.py", ["--write", "--results", "docs/benchmarks/hclt.jsonl"]),
        ("imputation.md", "imputation.py", ["--write", "--results", "docs/benchmarks/imputation.jsonl"]),
    ],
)
def test_pages_are_what_their_scripts_write(page, script, given, tmp_path):
    """Made again from the records, in a copy, they are the same to the letter."""
    if not (BENCHMARKS / page).exists():
        pytest.skip("not run yet")
    for folder in ("benchmarks", "docs/benchmarks"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("circuits"))
    before = (tmp_path / "docs" / "benchmarks" / page).read_text(encoding="utf-8")
    command = [sys.executable, tmp_path / "benchmarks" / script, *given]
    subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "docs" / "benchmarks" / page).read_text(encoding="utf-8") == before


PAGES = [ROOT / "README.md", ROOT / "paper" / "paper.md", *sorted((ROOT / "docs").rglob("*.md"))]
QUOTED = re.compile(r"<!-- figures of (\S+) -->(.*?)<!-- end of figures -->", re.DOTALL)


#: Tables that a script writes between such marks; tests of this file make them again from the records.
MARKS = ("twenty", "sizes", "hclt", "imputed", "speed", "families", "instances")
WRITTEN = {mark: re.compile(rf"<!-- {mark} -->(.*?)<!-- end -->", re.DOTALL) for mark in MARKS}


@pytest.mark.parametrize("page", [p for p in PAGES if "<!-- figures of" in p.read_text(encoding="utf-8")], ids=str)
def test_figures_of_a_record_are_in_it(page):
    """Every number between the marks is one that the benchmark printed, as `benchmarks/keep.py` kept it."""
    text = page.read_text(encoding="utf-8")
    parts = QUOTED.findall(text)
    assert len(parts) == text.count("<!-- figures of") == text.count("<!-- end of figures -->")
    for name, quoted in parts:
        record = (BENCHMARKS / "records" / f"{name}.txt").read_text(encoding="utf-8")
        printed = {number.replace(",", "") for number in NUMBER.findall(record)}
        assert [number for number in NUMBER.findall(quoted) if number.replace(",", "") not in printed] == [], name


NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?!\w)")


def test_the_summary_of_the_learners():
    learned = {run["dataset"]: run for run in records("learn.jsonl") if "dataset" in run}
    latent = {run["dataset"]: run["hclt"] for run in records("hclt.jsonl") if "dataset" in run}
    page = plain("docs/benchmarks/learning.md")
    assert len(latent) == 20
    assert all(run["strudel"] > run["chow_liu"] for run in learned.values())
    assert page.count("| yes |") + page.count("| no |") == 2 * len(learned)  # holds, and better
    assert f"better than the Chow-Liu tree on all {len(learned)} datasets that it was run on, and on none more" in page
    worse = [name for name, run in learned.items() if latent[name] <= run["strudel"]]
    assert f"better than Strudel on {len(learned) - len(worse)} of these, and worse on {' and '.join(worse)}." in page


def test_imputers():
    page = plain("docs/benchmarks/imputation.md")
    said = {row["imputed"]: row for row in records("imputation.jsonl") if "imputed" in row}
    ahead, behind, count = [], [], []
    for name, row in said.items():
        others = [row[other] for other in ("mode", "iterative", "neighbours")]
        mean, error = max(others, key=lambda other: other["whole_rows"])["behind"]
        if abs(mean) > 2 * error:
            (ahead if mean > 0 else behind).append(name)
        elif mean > 0:
            count.append(name)
    (found,) = re.findall(r"ahead beyond noise on ([\w, ]+), and behind beyond noise on ([\w ]+)\.", page)
    assert [sorted(names_in(text)) for text in found] == [sorted(ahead), sorted(behind)]
    (found,) = re.findall(r"ahead by count on ([\w ]+), behind or level", page)
    assert sorted(names_in(found)) == sorted(count)


def names_in(text):
    return [name for name in re.findall(r"\w+", text) if name != "and"]


def test_the_tables_of_the_competition():
    """Both tables of the page are what the script makes of the records."""
    command = [sys.executable, ROOT / "benchmarks" / "networks.py", "--table", BENCHMARKS / "networks.jsonl"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    page = (BENCHMARKS / "bayesnet.md").read_text(encoding="utf-8")
    written = [part for mark in ("families", "instances") for part in WRITTEN[mark].findall(page)]
    assert [line for part in written for line in tables(part)] == tables(printed)


def test_no_bound_is_under_a_state():
    """Of any run on the same instance, at any moment."""
    best, least = {}, {}
    for run in records("networks.jsonl"):
        for _, state, bound in run["trace"]:
            best[run["name"]] = max(best.get(run["name"], -math.inf), -math.inf if state is None else state)
            least[run["name"]] = min(least.get(run["name"], math.inf), bound)
    assert [name for name in best if least[name] < best[name] - 1e-9 * max(1.0, abs(best[name]))] == []
    assert "At no moment of any run is a bound under the value of a state" in plain("docs/benchmarks/bayesnet.md")


def test_hard_networks():
    runs = [run for run in records("networks.jsonl") if run["method"] == "auto" and run["limit"] <= 60]
    names = {run["name"] for run in runs}
    proven = len({run["name"] for run in runs if run["status"] == "optimal"})
    assert f"{proven} are proven within 60 s" in plain("docs/benchmarks/bayesnet.md")
    assert f"{proven} of the {len(names)} instances are proven within 60 s" in plain("CHANGELOG.md")


def test_the_clinic():
    """Three percent and sixty-seven percent, wherever they are quoted."""
    clinic, evidence = mm.load("clinic"), {"season": "spring", "fever": "high"}
    best = mm.marginal_map(clinic, ["illness", "course"], evidence)
    complete = mm.mpe(clinic, evidence).state
    suggested = {name: complete[name] for name in ("illness", "course")}
    shares = [100 * math.exp(x) for x in (mm.log_conditional(clinic, suggested, evidence), best.log_conditional)]
    small, large = (f"{share:.0f} percent" for share in shares)
    for page in ("paper/paper.md", "docs/why-not-mpe.md"):
        assert small in plain(page), page
        assert large in plain(page), page
    assert large in plain("docs/tour.md")
    small, large = (f"{share:.0f} %" for share in shares)
    assert f"which has {small} where severe flu has {large}" in plain("README.md")


#: A number with a unit of time or memory, or a ratio. Powers of ten, such as 1e-9 nats, are tolerances.
MEASURED = re.compile(
    r"(?<![\w.^-])(?!1e-)\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
    r"(?: ?(?:ms|µs|s|min|h|[kMG]i?B|%|nats?)(?![\w/])"
    r"|[ -](?:(?:milli|micro)?seconds?|minutes?|hours?|times|percent|evaluations|bytes|rows a second)(?!\w))"
)
#: On a page of benchmarks, a row of a table with a number that is not whole, and a block of output, are measured too.
ROW = re.compile(r"^\|.*\d\.\d.*$", re.MULTILINE)
OUTPUT = re.compile(r"^```text\n.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
#: The attack's tables, compared below, and the list of breaks, whose texts are those of scripts/mutations.py.
BETWEEN = re.compile(r"<!-- (adversary|mutate):begin.*?<!-- \1:end -->", re.DOTALL)
#: Pages that scripts wrote whole, compared with their records above.
WHOLE = ("paper/report.md", "paper/large/report.md", "paper/ablation.md", "paper/beyond.md")
#: Figures without marks, by the reason why they need none.
ALLOWED = {
    "a test compares it": {
        "README.md": ("coverage: 96.3 %", "3 % where severe flu has 67 %", "43 GiB for the first 24 variables"),
        "paper/paper.md": ("3 percent, while another one has 67 percent", "in 9 milliseconds on average"),
        "docs/benchmarks/learning.md": (
            "89 and 173 s of the processor",
            "-91.47 after 71.5 s on two cores (93 s of the processor) and in 465 MB at most",
        ),
        "docs/benchmarks/paper/README.md": ("the slowest in 3.0 s", "MaxSPN* 1.7 times"),
        "docs/erratum.md": ("by up to 2.2 nats",),
        "docs/releasing.md": ("[96.3 %]",),
        "docs/reliability.md": ("without kernels: **96.3 %**",),
        "docs/tour.md": ("67 percent among such patients",),
        "docs/tutorials/diagnosis.md": ("a probability of 34 percent",),  # test_docs.py runs the page and its output
        "docs/why-not-mpe.md": ("a probability of 3 percent", "severe flu, with 67 percent"),
    },
    "a limit, a default, an aim or a tolerance": {
        "docs/algorithms.md": (
            "at least 5% of the edges",
            "Sweeps have 0.1 s for themselves",
            "within 4 s of a limit of 20 s",
            "It has 2 s to itself",
            "70 % of the time (at most 60 s)",
            "looks at the clock every 20 ms",
            "at most every 5 ms",
            "are limited, to 2 GiB",
        ),
        "docs/architecture.md": ("with 20 s or more left, step 3 begins after 4 s",),
        "docs/benchmarks/bayesnet.md": (
            "proven within 10 s straight",
            "41 are proven within 60 s",
            "at most 5 s each",
            "at most 10 s each",
            "proven within 5 s on",
            "with 60 s of the clock each",
            "in turn, limit 20 s",
            "60 s of the clock for each instance",
            "the same 60 s)",
            "The gaps at 1 s and at 10 s",
            "more than 2 GiB by multiplying",
        ),
        "docs/benchmarks/learning.md": ("within 1 % of LearnPSDD", "on none more than 1 % below LearnPSDD"),
        "docs/benchmarks/paper/README.md": (
            "the limit is 5 s of the processor",
            "with 10 s of the processor for each run",
        ),
        "docs/benchmarks/scale.md": (
            "The aim is 0.2 s or 5 %",
            "limits of 0.05 s",
            "The aim, 1.5 times as fast",
            "the aim of 8 evaluations",
            "at most 1.1 times the smallest gap",
        ),
        "docs/certificates.md": ("unpack to 1 MiB, or 200 times its size", "more than 256 MB, a sum"),
        "docs/formats.md": (
            "more than 4 GiB, or to more than 64 MiB and 200 times",
            "replace the 4 GiB",
            "or 4 times its",
        ),
        "docs/howto/benchmark.md": ("fails 100 times",),
        "docs/howto/explore.md": ("may take 60 seconds and 2 GB", "at most 256 MB beside"),
        "docs/reliability.md": ("a time limit of 10 µs to 3 ms", "fails below 92 %"),
        "docs/scale.md": ("(256 MB unless", "at most 0.8 times the nodes and edges"),
    },
    "how the question or the machine was chosen": {
        "docs/benchmarks/bayesnet.md": (
            "and 24 GB",
            "(AMD EPYC, 23 GB)",
            ", AMD EPYC, 23 GB)",
            "30 % of",
            "and 10 % are",
        ),
        "docs/benchmarks/scale.md": (
            "and 24 GB",
            "30 % of the variables queried and 30 % observed",
            "30 % of the variables are queried, 30 % observed",
        ),
        "docs/benchmarks/solvers.md": ("with 24 GB",),
        "docs/howto/benchmark.md": ("makes 30 % of them query, observes 30 %",),
        "docs/reliability.md": ("(0.01 nats too early", "a gap of 0.2 nats"),
    },
    "arithmetic": {
        "docs/formats.md": ("multiples of 64 bytes", "a chain of 50,000 variables takes some 300 MB"),
        "docs/glossary.md": ("A difference of 1 nat", "0.1 nat one of", "0.001 nat is 0.1 percent"),
        "docs/scale.md": (
            "take 12 bytes an edge",
            "size, 12 bytes an edge",
            "some 4 bytes an edge",
            "256 states 131 kB",
        ),
    },
}


def unrecorded(page):
    """What a page says that was measured, outside of marks and of what is allowed; the latter must be on the page."""
    name = page.relative_to(ROOT).as_posix()
    text = BETWEEN.sub(" ", QUOTED.sub(" ", page.read_text(encoding="utf-8")))
    for pattern in WRITTEN.values():
        text = pattern.sub(" ", text)
    rows = [*ROW.findall(text), *OUTPUT.findall(text)] if BENCHMARKS in page.parents else []
    text = re.sub(r"\s+", " ", CODE.sub(" ", text))
    for reason, pages in ALLOWED.items():
        for said in pages.get(name, ()):
            assert said in text, f"{name} no longer says {said!r} ({reason}): take it out of the list"
            text = text.replace(said, " ")
    return rows + [text[max(0, found.start() - 60) : found.end() + 20] for found in MEASURED.finditer(text)]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page not in {BENCHMARKS / name for name in WHOLE}],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_every_measured_figure_has_a_record(page):
    """It is quoted between marks, or a test compares it, or it was not measured."""
    assert unrecorded(page) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It took 3.2 s, which is 1.7 times as fast and 40 % of it, in 12 MB.", 4),
        ("a gap of at most 1e-9 nats in 2026 with 30/30/40", 0),
        ("`--limit 3 s`", 0),
    ],
)
def test_what_counts_as_measured(text, found):
    assert len(MEASURED.findall(CODE.sub(" ", text))) == found


def test_the_attack():
    """What came out of it is what the script makes of its log."""
    command = [sys.executable, ROOT / "scripts" / "adversary.py", "--table", BENCHMARKS / "records" / "adversary.jsonl"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert page.split("<!-- adversary:begin", 1)[1].partition("-->\n")[2].startswith(printed)


def test_coverage():
    percent = json.loads((ROOT / "docs" / "coverage.json").read_text(encoding="utf-8"))["percent"]
    assert f"![coverage: {percent} %]" in plain("README.md")
    assert f"without kernels: {percent} %." in plain("docs/reliability.md")
    assert f"under coverage ([{percent} %]" in plain("docs/releasing.md")


def test_the_prose_on_latent_trees():
    runs, page = records("hclt.jsonl"), plain("docs/benchmarks/learning.md")
    (digits,) = (run for run in runs if "digits" in run)
    seconds = f"{digits['seconds']:.1f} s on two cores ({digits['processor_seconds']:.0f} s of the processor)"
    assert f"log-likelihood of {digits['hclt']:.2f} after {seconds} and in {digits['peak_mb']:.0f} MB at most" in page
    used = {run["dataset"]: f"{run['processor_seconds']:.0f}" for run in runs if "dataset" in run}
    assert f"of which they had {used['cr52']} and {used['msweb']} s of the processor" in page
