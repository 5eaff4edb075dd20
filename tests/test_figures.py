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
    assert f"frontier, UB regroup and UB ran on all {counts['frontier']} instances" in said
    assert counts["frontier"] == counts["UB regroup"] == counts["UB"] == 400
    for label in ("Pruned", "MaxSPN"):
        assert counts[label] == 400 or f"{label} on {counts[label]}" in said
    short = records("paper/short/runs.jsonl")
    left = {label: solved(short, label)[1] for label in ("Pruned", "MaxSPN")}
    if sum(left.values()):
        assert f"with 2 s each, Pruned on {left['Pruned']} and MaxSPN on {left['MaxSPN']} instances" in said
        everywhere = all(counts[label] + left[label] == 400 for label in left)
        assert ("within 2 s every method has all 400" in said) == everywhere
    computed = Counter(run["label"] for run in runs if run.get("computing"))
    assert f"Pruned on {computed['Pruned']} and MaxSPN on {computed['MaxSPN']} instances, and all" in said
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


@pytest.mark.parametrize("folder", ["paper", "paper/short", "paper/large"])
def test_reports_are_those_of_their_records(folder, tmp_path):
    """Every table of the page in the repository, from the records in the repository."""
    if not (BENCHMARKS / folder / "runs.jsonl").exists():
        pytest.skip("not run yet")
    runs, within = records(f"{folder}/runs.jsonl"), None
    if folder == "paper/short":  # the others are those of a minute, cut
        runs, within = [*runs, *records("paper/runs.jsonl")], 2.0
        runs.sort(key=lambda run: LABELS.index(run["label"]))
    found = report(runs, tmp_path, labels=list(dict.fromkeys(run["label"] for run in runs)), within=within)
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


def test_five_evaluations():
    """The README's round figure, and the summary of the page, from the lines that the script printed."""
    page = (BENCHMARKS / "solvers.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\w+ \d +\d+ +\d+ +[\d.]+ +[\d.]+ +([\d.]+) +\d+ +\d+$", page, re.MULTILINE)
    ratios = [float(ratio) for ratio in rows]
    assert len(ratios) == 48
    middle = statistics.median(ratios)
    assert f"| 48 instances, median and worst ratio | {middle:.1f} and {max(ratios):.1f} evaluations |" in page
    assert round(middle) == 5
    assert "about as long as five evaluations of the circuit" in plain("README.md")


def test_the_summary_of_the_solvers():
    """Its figures are in the output of the script below it on the page."""
    page = (BENCHMARKS / "solvers.md").read_text(encoding="utf-8")
    summary, rest = page.split("```text\n", 1)
    printed = rest.split("```", 1)[0]

    def seen(pattern):
        return [float(number) for number in re.findall(pattern, printed, re.MULTILINE)]

    (mnist,) = re.findall(r"^MNIST 100/0 +\d+ +\d+ +([\d.]+) +[\d.]+ +([\d.]+)", printed, re.MULTILINE)
    latent = [ms / 1e3 for ms in seen(r"^latent [\d.]+ \d+/\d+ +\d+ +\d+ +([\d.]+)")]
    crossing = {part: seen(rf"edges, {part}, seed \d: +([\d.]+) s") for part in ("all 40", "30/30/40", "50/20/30")}
    whole, nodes = sorted(crossing["all 40"]), seen(r"all 40, seed \d: +[\d.]+ s, (\d+) search nodes")
    slowest = max(seen(r"^nltcs \d +\d+ +\d+ +([\d.]+)"))
    (as_it_is,) = seen(r"faster than iterative as it is, in total: ([\d.]+)")
    memory = max(seen(r"memory of the process so far, in GB +([\d.]+)"))
    (faster,) = seen(r"faster than iterative without fixing, in total +([\d.]+)")
    for said in (
        f"| the slowest nltcs call | {slowest:.2f} ms |",
        f"| {float(mnist[0]):.0f} ms, {float(mnist[1]):.0f} evaluations |",
        f"| {min(latent):.2f} to {max(latent):.2f} s |",
        f"| {faster:,.0f} times faster in total |",
        f"| {as_it_is:.0f} times faster in total |",
        f"| at most {max(crossing['30/30/40'] + crossing['50/20/30']):.2f} s |",
        f"| {whole[0]:.2f} to {whole[-1]:.1f} s, median {statistics.median(whole):.1f} s |",
        f"| {memory:.2f} GB |",
        f"{min(nodes):.0f} to {max(nodes):,.0f} nodes",
    ):
        assert said in re.sub(r"\s+", " ", summary), said


def test_more_than_one_core():
    """What the page on large circuits says of processes is in the tables of the benchmarks."""
    page = (BENCHMARKS / "scale.md").read_text(encoding="utf-8")
    local, dask = (re.findall(rf"^\| .*\| 2 {who} \| ([\d.]+) \|", page, re.MULTILINE) for who in WORKERS)
    shares = [float(there) / float(here) for here, there in zip(local, dask, strict=True)]
    assert f"are at {100 * min(shares):.0f} % of local processes" in plain("docs/scale.md")
    ratios = re.findall(r"^\| [^|]+ \| [\d.]+ s \| [\d.]+ s \| ([\d.]+) \| [\d.]+ s \|", page, re.MULTILINE)
    least, most = min(map(float, ratios)), max(map(float, ratios))
    assert f"it was {math.floor(10 * least) / 10} to {math.floor(10 * most) / 10} times faster" in plain(
        "docs/scale.md"
    )


WORKERS = ("processes", "Dask workers")


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


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
QUOTED = re.compile(r"<!-- figures of (\S+) -->(.*?)<!-- end of figures -->", re.DOTALL)


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


def test_latent_trees_beside_strudel():
    page = plain("docs/benchmarks/learning.md")
    verdicts = dict(re.findall(r"\| (\w+)(?: \(earlier step\))? \| -[\d.]+ \| -[\d.]+ \| (yes|no) \|", page))
    assert len(verdicts) == sum("dataset" in run for run in records("hclt.jsonl")) == 20
    worse = [name for name, better in verdicts.items() if better == "no"]
    assert f"better on nineteen of the twenty datasets, and worse on {worse[0]}" in page
    assert len(worse) == 1


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


def test_every_row_of_the_networks_is_a_run():
    """State and bound of each row of the page are those that a run ended with."""
    runs = records("networks.jsonl")
    ends = {(run["name"], figure(run["log_prob"]), figure(run["log_upper"])) for run in runs}
    page = (BENCHMARKS / "bayesnet.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Za-z]+_\d+) \| (-?[\d.]+|-) \| (-?[\d.]+) \|", page, re.MULTILINE)
    assert len(rows) == len({run["name"] for run in runs})
    assert [row for row in rows if row not in ends] == []


def figure(number):
    return "-" if number is None else f"{number:.6f}"


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
