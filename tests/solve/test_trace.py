"""The trace of a run: its rows, the callback, the CSV file and the figure."""

import csv
import math
import subprocess
import sys

import pytest

import margmap as mm
from enumeration import mixture
from margmap.plot import read_trace, save, trace_lines
from margmap.solve.methods.iter_solve import Iteration, Snapshot

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

COLUMNS = [
    "iteration",
    "prune_seconds",
    "split_seconds",
    "total_seconds",
    "prune_rounds",
    "split_variable",
    *(
        f"{when}_{what}"
        for when in ("pruned", "split")
        for what in ("nodes", "edges", "sums", "maxes", "upper", "lower")
    ),
]
CIRCUIT, _ = mixture(10, 8, spread=0.3)
COIN = mm.circuit_of(mm.bernoulli(mm.Variable("coin"), 0.4))


@pytest.fixture(scope="module", params=["UB", "Pruned"])
def result(request):
    return mm.marginal_map(CIRCUIT, None, method="iterative", heuristic=request.param)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def test_rows(result):
    assert len(result.trace) > 2
    assert [row.iteration for row in result.trace] == list(range(1, len(result.trace) + 1))
    clock = 0.0
    for row in result.trace:
        assert isinstance(row, Iteration)
        assert row.prune_seconds >= 0
        assert row.split_seconds >= 0
        assert row.total_seconds >= clock + row.prune_seconds
        clock = row.total_seconds
        for shot in (row.pruned, row.split):
            assert isinstance(shot, Snapshot)
            assert shot.lower <= shot.upper
            assert 0 <= shot.sums + shot.maxes <= shot.nodes
        assert row.split_variable in (*CIRCUIT.names, None)
    assert clock <= result.seconds
    last = result.trace[-1].split
    assert last.lower == pytest.approx(result.log_prob, abs=1e-9)
    assert last.upper == pytest.approx(result.log_upper, abs=1e-9)


def test_rows_as_dictionaries(result):
    for row in result.trace:
        plain = row.to_dict()
        assert sorted(plain) == sorted(COLUMNS)
        assert plain["split_edges"] == row.split.edges
        assert plain["pruned_upper"] == row.pruned.upper


def test_bounds_include_the_evidence():
    """Rows are about log p(q, e), as the result is, not about p(q | e)."""
    r = mm.marginal_map(
        CIRCUIT, list(range(8)), {8: 1, 9: 0}, method="iterative", regroup=False, climb=False, fix=False
    )
    assert r.trace[-1].split.lower == pytest.approx(r.log_prob, abs=1e-9)


def test_callback():
    seen = []
    r = mm.marginal_map(CIRCUIT, None, method="iterative", on_iteration=seen.append)
    assert tuple(seen) == tuple(r.trace)


def test_no_iteration_no_row():
    r = mm.marginal_map(COIN, None, method="iterative")
    assert r.status == "optimal"
    assert tuple(r.trace) == ()
    assert sorted(trace_lines(r.trace)[0].split(",")) == sorted(COLUMNS)


def test_other_methods_have_none():
    assert tuple(mm.marginal_map(CIRCUIT, None, method="brute").trace) == ()


def test_csv(result, tmp_path):
    lines = trace_lines(result.trace)
    assert sorted(lines[0].split(",")) == sorted(COLUMNS)
    assert len(lines) == 1 + len(result.trace)
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    rows = read_trace(tmp_path / "t.csv")
    for row, found in zip(result.trace, rows, strict=True):
        assert found["iteration"] == row.iteration
        assert found["split_upper"] == row.split.upper
        assert found["pruned_edges"] == row.pruned.edges


def test_csv_quotes_names():
    shot = Snapshot(1, 2, 3, 4, -1.0, -math.inf)
    lines = trace_lines([Iteration(1, 0.1, 0.2, 0.3, 2, shot, 'a,"b"', shot)])
    (row,) = csv.DictReader(lines)
    assert row["split_variable"] == 'a,"b"'
    assert float(row["split_lower"]) == -math.inf


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("a,b\n1,2\n", "no column 'iteration'"),
        ("HEADER\nROW,9\n", "line 2: not as many cells"),
        ("HEADER\n1,2\n", "line 2: not as many cells"),
        ("HEADER\nBAD\n", "line 2: 'x' in column"),
    ],
)
def test_bad_csv(text, message, result, tmp_path):
    header, row, *_ = trace_lines(result.trace)
    bad = ",".join("x" for _ in row.split(","))
    (tmp_path / "t.csv").write_text(text.replace("HEADER", header).replace("ROW", row).replace("BAD", bad))
    with pytest.raises(mm.FormatError, match=message):
        read_trace(tmp_path / "t.csv")


def test_figure(result):
    from matplotlib.axes import Axes

    top, bottom = mm.plot.trace(result)
    assert isinstance(top, Axes)
    assert isinstance(bottom, Axes)
    assert top.figure is bottom.figure
    upper, lower = top.get_lines()
    assert len(upper.get_xdata()) == 2 * len(result.trace)
    assert upper.get_ydata()[0] == result.trace[0].pruned.upper
    assert lower.get_ydata()[-1] == result.trace[-1].split.lower
    edges = bottom.get_lines()[0].get_ydata()
    assert list(edges) == [shot.edges for row in result.trace for shot in (row.pruned, row.split)]
    assert top.get_ylabel() == "log p(q, e) (nats)"
    assert bottom.get_xlabel() == "iteration"


def test_figure_on_given_axes(result):
    from matplotlib.figure import Figure

    axes = Figure().subplots(2)
    assert mm.plot.trace(result, axes) == tuple(axes)
    top, bottom = mm.plot.trace([row.to_dict() for row in result.trace], Figure().subplots(1, 2))
    assert len(top.get_lines()) == 2
    assert len(bottom.get_lines()) == 3


def test_nothing_to_draw():
    with pytest.raises(mm.QueryError, match="no iterations to draw"):
        mm.plot.trace(mm.marginal_map(COIN, None, method="iterative"))
    with pytest.raises(mm.QueryError, match="no iterations to draw"):
        mm.plot.trace([])


@pytest.mark.parametrize(
    ("suffix", "magic"),
    [("png", b"\x89PNG\r\n\x1a\n"), ("PDF", b"%PDF-"), ("svg", b"<?xml")],
    ids=["png", "pdf", "svg"],
)
def test_save(result, suffix, magic, tmp_path):
    target = tmp_path / f"figure.{suffix}"
    target.write_text("old")
    save(result, target)
    assert target.read_bytes().startswith(magic)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


def test_save_leaves_nothing_behind_when_it_fails(result, tmp_path):
    target = tmp_path / "figure.png"
    target.write_text("old")
    with pytest.raises(mm.QueryError, match="no iterations"):
        save([], target)
    with pytest.raises(mm.FormatError, match=r"unknown kind of figure '\.gif': use \.png, \.svg, \.pdf"):
        save(result, tmp_path / "figure.gif")
    with pytest.raises(mm.FormatError, match="cannot be written"):
        save(result, tmp_path / "no" / "figure.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(mm.FormatError, match="folder"):
        save(result, tmp_path / "folder.png")
    assert target.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure.png", "folder.png"]


def test_matplotlib_is_imported_late():
    code = """
import sys
import margmap as mm
assert "plot" in dir(mm)
mm.plot.trace
assert "matplotlib" not in sys.modules
sys.modules["matplotlib"] = None
x = mm.Variable("x"), mm.Variable("y")
c = mm.circuit_of(0.5 * mm.bernoulli(x[0], 0.9) * mm.bernoulli(x[1], 0.5) + 0.5 * mm.bernoulli(x[0], 0.1) * x[1][0])
r = mm.marginal_map(c, None, method="iterative", climb=False)
assert r.trace
try:
    mm.plot.trace(r)
except mm.MissingExtraError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "figures need matplotlib: pip install 'margmap[plot]'\n"
