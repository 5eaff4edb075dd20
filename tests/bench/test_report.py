"""Reports: what tables say of runs whose outcome is known, that contradictions are found, that all is escaped."""

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from made_records import LABELS, record, solved_records
from margmap.bench import analysis
from margmap.bench.analysis import Study
from margmap.bench.document import plain
from margmap.bench.figure import Axis, Plot, Series, short, svg_lines
from margmap.bench.records import latest, read_records, runs_of
from margmap.bench.report import report
from margmap.errors import FormatError, QueryError

HOSTILE = "</script><img src=x onerror=alert(1)>|`*_[a](b)\"'&\n# x"


@pytest.fixture(scope="module")
def solved():
    return solved_records()


def study(*records, **options):
    return Study(runs_of(records), options.pop("reference", "frontier"), **options)


def cells(table, row):
    return [(cell.text, cell.note) for cell in table.rows[row]]


def unsolved(**options):
    given = {"status": "time_limit", "seconds": 60.3, "log_prob": -4.0, "log_upper": -2.0, "gap": 2.0, **options}
    return record(**given)


def test_an_unsolved_run_counts_as_its_limit_whatever_ended_it():
    table = analysis.times_table(
        study(
            record(instance=0, seconds=2.0),
            record(instance=1, seconds=4.0),
            record(instance=0, label="slow", seconds=10.0),
            unsolved(instance=1, label="slow"),
            record(instance=0, label="never", status="failed", seconds=None, log_prob=None, log_upper=None),
            record(instance=1, label="never", status="memory_limit", seconds=0.5),
        ),
        (0.3, 0.3, 0.4),
    )
    assert cells(table, 0) == [
        ("a", ""),
        ("3.00", "(2/2)"),
        ("≥ 11.7", "(slow)"),
        ("35.0", "(1/2)"),
        ("–", "(0/2)"),
        ("10", ""),
        ("100", ""),
    ]
    assert [cell.strong for cell in table.rows[0]] == [False, True, False, False, False, False, False]
    assert [cell.text for cell in table.foot[0]] == ["all", "3.00", "≥ 11.7", "35.0", "–", "", ""]


def test_without_a_limit_an_unsolved_run_counts_as_long_as_it_lasted():
    (run,) = runs_of([unsolved(time_limit=None, seconds=7.0, wall_seconds=8.0)])
    assert run.counted == 8.0


@pytest.mark.parametrize(
    ("mine", "theirs", "sign"), [(True, True, ""), (True, False, "≥"), (False, True, "≤"), (False, False, "≈")]
)
def test_how_sure_the_factor_is(mine, theirs, sign):
    runs = [record(instance=0), record(instance=0, label="x", seconds=3.0)]
    runs += [(record if ok else unsolved)(instance=1, label=label) for ok, label in ((mine, "frontier"), (theirs, "x"))]
    assert study(*runs).faster("a").sign == sign


def test_the_next_best_is_compared_on_the_instances_that_both_ran():
    found = study(
        record(instance=0, seconds=1.0),
        record(instance=1, seconds=100.0),
        record(instance=0, label="x", seconds=5.0),
        record(instance=0, label="y", seconds=4.0),
        record(instance=1, label="y", seconds=1000.0),
    ).faster("a")
    assert (found.label, found.ratio, found.instances) == ("x", 5.0, 1)


def test_groups_datasets_and_methods_are_in_order():
    half = {"proportions": [0.5, 0.2, 0.3]}
    runs = [
        record("big", variables=50, label="b"),
        record("small", variables=5, label="a", instance=7, **half),
        record("middle", variables=5, edges=200, label="frontier"),
    ]
    found = study(*runs)
    assert found.datasets == ["small", "middle", "big"]
    assert found.groups == [(0.3, 0.3, 0.4), (0.5, 0.2, 0.3)]
    assert found.labels == ["frontier", "b", "a"]
    assert study(*runs, reference="nothing").labels == ["b", "a", "frontier"]
    assert study(*runs, labels=["a", "frontier"]).labels == ["a", "frontier", "b"]
    assert study(*runs, labels=["frontier", "zzz", "a"]).labels == ["frontier", "a", "b"]
    assert [row[0].text for row in analysis.times_table(found, (0.5, 0.2, 0.3)).rows] == ["small"]
    assert [row[0].text for row in analysis.times_table(found, None).rows] == ["small", "middle", "big"]


def test_runs_done_again_count_once():
    (run,) = runs_of([record(seconds=1.0), record(seconds=2.0)])
    assert run.seconds == 2.0
    assert latest([run, run._replace(label="x")]) == [run, run._replace(label="x")]


def test_agreement_of_runs_that_agree(solved):
    found = analysis.agreement(study(*solved))
    assert found.conflicts == []
    assert (found.instances, found.pairs) == (8, 24)
    assert found.bounds == 48


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"log_prob": -3.00001, "log_upper": -3.0}, "both optimal, -3.000000000 and -3.000010000: 1e-05 nats apart"),
        (
            {"log_prob": -3.5, "log_upper": -3.4, "status": "time_limit"},
            "frontier has a state at -3.000000000, 0.4 nats",
        ),
        ({"log_prob": -2.9, "log_upper": -1.0, "status": "memory_limit"}, "x has a state at -2.900000000, 0.1 nats"),
        ({"log_prob": None, "log_upper": -3.1, "status": "time_limit"}, "0.1 nats above what x says"),
        ({"log_prob": -3.0000005, "log_upper": -3.0000005}, None),
        ({"log_prob": "-inf", "log_upper": 0.0, "status": "time_limit"}, None),
        ({"log_prob": None, "log_upper": None, "status": "killed"}, None),
    ],
)
def test_contradictions_are_found(second, message, tmp_path):
    runs = [record(), record(label="x", **second), record(instance=1, log_prob=-9.0, log_upper=-9.0, label="x")]
    conflicts = analysis.agreement(study(*runs)).conflicts
    assert [message in conflict.why for conflict in conflicts] == ([True] if message else [])
    answer = report(runs, tmp_path)
    page, text = ((tmp_path / name).read_text() for name in ("index.html", "report.md"))
    if message:
        assert answer.disagreements == len(answer.conflicts) == 1
        assert page.count('<p class="bad" role="alert">Error: 1 pairs of runs contradict') == 2
        assert message in text.replace("\\", "")
        assert "no disagreement" not in page + text
    else:
        assert answer.conflicts == []
        assert "no disagreement" in page
        assert 'class="bad"' not in page or second["status"] == "killed"


def test_failed_and_killed_runs_are_listed(tmp_path):
    runs = [record(), record(label="x", status="failed", error="it | broke"), record(label="y", status="killed")]
    assert report(runs, tmp_path).failures == 2
    text = (tmp_path / "report.md").read_text()
    assert "| a | a-instances.json #0 | x | failed | it \\| broke |" in text
    assert "| a | a-instances.json #0 | y | killed | – |" in text
    assert "2 runs failed or were killed" in text


def test_the_cactus_counts_solved_runs(solved):
    ((plot, table),) = analysis.cactuses(study(*solved, unsolved(instances="solved-one.json", instance=9)))
    counted = {series.label: max(y for _, y in series.points) for series in plot.series}
    assert counted == dict.fromkeys(LABELS, 8)
    assert all(ys == sorted(ys) for ys in ([y for _, y in series.points] for series in plot.series))
    assert table.rows[-1][0].value < 60.0
    assert [cell.value for cell in table.rows[-1][1:]] == [8, 8, 8]
    assert "the 8 instances that all methods were run on" in plot.description
    assert "frontier 8" in plot.description


def test_a_cactus_compares_methods_on_the_same_instances_only():
    runs = [record(instance=i, label=label) for label in ("frontier", "x") for i in range(4)]
    runs += [record(instance=0, label="y"), unsolved(instance=1, label="y")]
    (all_of_them, _), (more, _) = analysis.cactuses(study(*runs))
    assert [(one.label, one.points[-1][1]) for one in all_of_them.series] == [("frontier", 2), ("x", 2), ("y", 1)]
    assert [(one.label, one.points[-1][1]) for one in more.series] == [("frontier", 4), ("x", 4)]
    assert "the 2 instances that all methods were run on" in all_of_them.description
    assert "the 4 instances each" in more.description
    assert all_of_them.name != more.name
    # Methods that share no instance are not compared, and neither is one with itself, unless there is no other.
    apart = [record(instance=0), record(instance=1, label="x"), record(instance=2, label="x")]
    assert analysis.cactuses(study(*apart)) == []
    assert len(analysis.cactuses(study(record()))) == 1


def test_means_of_different_instances_are_said_to_be_that(tmp_path):
    both = [record(), record(label="x")]
    assert "Not every method" not in report(both, tmp_path).written[0].read_text()
    assert "Not every method" in report([*both, record(instance=1)], tmp_path).written[0].read_text()


def test_methods_are_explained_in_the_summary_and_a_picture_comes_next(tmp_path):
    runs = [record(), record(label="plain", method="iterative", options={"fix": False}), record(label="x", method="?")]
    text = report(runs, tmp_path, about="What this is.", methods={"x": "A stranger."}).written[0].read_text()
    summary, rest = text.split("## Summary")[1].split("##", 1)
    assert text.index("What this is.") < text.index("## Summary")
    assert "- frontier: 1 of 1 solved, with a proof. Method frontier: sweeps over the tree of scopes" in summary
    assert "(fix=False)." in summary
    times = "frontier is 1.00 times as fast on the 1 that both were run on"
    assert f"- x: 1 of 1 solved, with a proof. {times}. A stranger." in summary
    assert rest.split("\n")[2].startswith("![How many of the 1 instances")


def test_cut_to_a_shorter_limit_what_was_not_over_by_then_is_unsolved(tmp_path):
    runs = [
        record(instance=0, seconds=2.0),
        record(instance=1, seconds=7.0),
        record(instance=2, seconds=3.0, status="memory_limit", log_prob=None),
        record(instance=3, seconds=None, status="killed", log_prob=None),
        record(instance=4, seconds=5.2, status="time_limit", time_limit=5.0, log_prob=-4.0, log_upper=-2.0),
        record(instance=5, seconds=60.1, status="time_limit", log_prob=-4.0, log_upper=-2.0),
    ]
    cut = [run.within(5.0) for run in runs_of(runs)]
    assert [run.status for run in cut] == ["optimal", "time_limit", "memory_limit", *["time_limit"] * 3]
    assert [run.counted for run in cut] == [2.0, 5.0, 5.0, 5.0, 5.0, 5.0]
    assert [run.log_upper for run in cut] == [-3.0, None, -3.0, None, -2.0, None]
    assert report(runs, tmp_path, within=5.0).solved == {"frontier": (1, 6)}
    with pytest.raises(QueryError, match="does not tell what becomes of it within 7 s"):
        report(runs, tmp_path, within=7.0)


def test_the_example_is_of_eachmovie_unless_told(solved):
    found = study(*solved)
    example = analysis.example_of(found)
    assert example.dataset == "tmovie"
    assert [run.label for run in example.runs] == ["UB plain"]
    longest = max(len(run.trace) for run in found.runs if run.dataset == "tmovie")
    assert len(example.runs[0].trace) == longest
    assert analysis.example_of(found, "one").dataset == "one"
    assert analysis.example_of(found, "one", 1).instance == 1
    assert analysis.example_of(study(record())) is None
    short_run = [{"iteration": 1, "log_upper": -1.0, "log_lower": -2.0, "edges": 5}]
    both = [record(label=label, trace=short_run) for label in "xy"]
    alone = record(instance=1, label="x", trace=short_run * 9)
    assert analysis.example_of(study(alone, *both)).instance == 0


def test_figure_2_has_two_points_an_iteration(solved):
    found = study(*solved)
    example = analysis.example_of(found)
    (bounds, data), (sizes, _) = analysis.trace_plots(found, example)
    (run,) = example.runs
    upper, lower = bounds.series
    assert [x for x, _ in upper.points] == [n / 2 for n in range(2, 2 * len(run.trace) + 2)]
    assert upper.points[-1][1] == pytest.approx(run.log_prob, abs=1e-8)
    assert lower.points[-1][1] == pytest.approx(run.log_prob, abs=1e-8)
    assert all(high >= low - 1e-9 for (_, high), (_, low) in zip(upper.points, lower.points, strict=True))
    assert [y for _, y in sizes.series[0].points[::2]] == [row["pruned_edges"] for row in run.trace]
    assert len(data.rows) == 2 * len(run.trace)
    assert f"took {len(run.trace)} iterations until the bounds met" in sizes.description


def test_figure_2_of_plain_traces_and_of_strange_ones():
    trace = [
        {"iteration": 1, "log_upper": -1.0, "log_lower": "-inf", "edges": 10_000},
        {"iteration": 2, "log_upper": None, "log_lower": -3.0, "edges": 100},
        {"log_upper": "what", "log_lower": -2.0, "edges": "inf"},
    ]
    found = study(record(trace=trace))
    (bounds, _), (sizes, _) = analysis.trace_plots(found, analysis.example_of(found))
    assert [series.points for series in bounds.series] == [[(1.0, -1.0)], [(2.0, -3.0), (3.0, -2.0)]]
    assert sizes.series[0].points == [(1.0, 10_000), (2.0, 100), (3.0, 1.0)]  # an axis of logarithms has no 0
    assert sizes.y.log
    assert bounds.x.label == "iteration"


def test_long_traces_are_thinned():
    trace = [{"iteration": i, "log_upper": -1.0, "log_lower": -2.0, "edges": i} for i in range(1, 30_002)]
    found = study(record(trace=trace))
    (bounds, data), (sizes, _) = analysis.trace_plots(found, analysis.example_of(found))
    for series in [*bounds.series, *sizes.series]:
        assert 3000 < len(series.points) <= 4001
        assert (series.points[0][0], series.points[-1][0]) == (1, 30_001)
    assert len(data.rows) <= 201


def test_conditions_name_machines_versions_limits_and_methods(solved):
    found = analysis.conditions(study(*solved, record("z", host={"cores": 64}, margmap="0.2", time_limit=None)))
    assert ("machine", "processor a test, cores 2, memory 8 GiB, python 3") in found
    assert ("machine", "cores 64") in found
    assert [value for name, value in found if name == "margmap"] == ["0.1.0", "0.2"]
    assert [value for name, value in found if name == "time limit"] == ["60 s", "none"]
    assert ("method UB plain", "iterative with heuristic=UB, regroup=False, climb=False, fix=False") in found
    assert "seconds" not in dict(found)
    found = analysis.conditions(study(*solved, record("z", computing=True)))
    assert dict(found)["seconds"] == f"of the processor in 1 of {len(solved) + 1} runs ({record('z')['label']} 1)"


def test_a_report_from_a_file_that_was_cut_off(tmp_path, solved):
    path = tmp_path / "runs.jsonl"
    lines = [json.dumps(one) for one in solved]
    path.write_text("\n".join(lines) + "\n" + lines[0][:100])
    assert read_records(path).torn == 1
    answer = report(path, tmp_path / "deep" / "out", title="T", commands=["margmap bench run `x`"], date="today")
    assert (answer.runs, answer.instances, answer.torn, answer.failures) == (24, 8, 1, 0)
    assert answer.solved == dict.fromkeys(LABELS, (8, 8))
    assert [path.name for path in answer.written] == [
        "report.md",
        "index.html",
        "cactus.svg",
        "bounds.svg",
        "sizes.svg",
    ]
    assert sorted(answer.written) == sorted((tmp_path / "deep" / "out").iterdir())
    text = answer.written[0].read_text()
    assert text.startswith("# T\n\nMarginal MAP asks for the most probable state")
    assert "\n\ntoday. 24 runs: 3 methods, 8 instances, 2 datasets.\n" in text
    assert "1 lines of the file were cut off" in text
    assert "```sh\nmargmap bench run `x`\n```" in text
    assert len(re.findall(r"!\[[^\]]{40,}\]\((cactus|bounds|sizes)\.svg\)", text)) == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "line 2: not the record of a run: expected an object"),
        ({"dataset": 3}, 'line 2: .*"dataset" must be text'),
        ({"label": None}, 'line 2: .*"label" must be text'),
        ({"instance": "0"}, 'line 2: .*"instance" must be a whole number'),
        ({"instance": True}, 'line 2: .*"instance"'),
        ({"proportions": None}, 'line 2: .*"proportions"'),
        ({"proportions": ["x"]}, 'line 2: .*"proportions" must be a number'),
        ({"seconds": "fast"}, 'line 2: .*"seconds" must be a number'),
        ({"seconds": [1]}, 'line 2: .*"seconds" must be a number'),
        ({"trace": [1]}, 'line 2: .*"trace" must be a list of objects'),
        ({"trace": {"a": 1}}, 'line 2: .*"trace" must be a list of objects'),
    ],
)
def test_bad_records(tmp_path, line, message):
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(record()) + "\n" + (line if isinstance(line, str) else json.dumps(record() | line)))
    with pytest.raises(FormatError, match=f"runs.jsonl, {message}"):
        report(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_without_runs_and_requests_that_do_not_fit(tmp_path):
    (tmp_path / "x").write_text("hello\nworld\n")
    with pytest.raises(FormatError, match="no record of a finished run"):
        report(tmp_path / "x", tmp_path / "out")
    with pytest.raises(FormatError, match="no such file"):
        report(tmp_path / "y", tmp_path / "out")
    with pytest.raises(FormatError, match="cannot be made a folder"):
        report([record()], tmp_path / "x")
    with pytest.raises(QueryError, match="no runs"):
        report([], tmp_path / "out")
    with pytest.raises(QueryError, match="no run has the label 'zzz': choose one of frontier"):
        report([record()], tmp_path / "out", reference="zzz")
    assert "imes faster" not in report([record(label="x")], tmp_path / "out").written[0].read_text()
    with pytest.raises(QueryError, match="no run is on the dataset 'zzz'"):
        report([record()], tmp_path / "out", example="zzz")


def test_one_run_of_one_method_is_enough_for_a_report(tmp_path):
    for number, one in enumerate(
        [
            record(),
            unsolved(),
            record(seconds=0.0),
            record(seconds="inf", wall_seconds="inf", time_limit="inf", status="interrupted"),
            record(status="killed", log_prob=None, log_upper=None, seconds=None, wall_seconds=None, edges=None),
            record(label="other"),
            record(trace=[{"iteration": 1, "log_upper": None, "log_lower": None, "edges": None}]),
            record(proportions=[]),
        ]
    ):
        answer = report([one], tmp_path / str(number), example="a")
        assert answer.runs == 1
        assert ("no figure of iterations" in answer.written[0].read_text()) == (one["trace"] is None)
        for path in answer.written[2:]:
            ET.parse(path)


class Reader(HTMLParser):
    """The tags of a page, and what is in its cells and headings."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.attributes = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.extend(attrs)

    def handle_data(self, data):
        self.words.append(data)


def test_hostile_names_stay_text(tmp_path):
    trace = [{"iteration": i, "log_upper": -1.0, "log_lower": -2.0, "edges": 5} for i in (1, 2)]
    given = {"instances": HOSTILE, "error": HOSTILE, "method": HOSTILE, "margmap": HOSTILE, "host": {HOSTILE: HOSTILE}}
    runs = [
        record(HOSTILE, label=HOSTILE, trace=trace, options={HOSTILE: HOSTILE}, **given),
        record(HOSTILE, label="x", status=HOSTILE, log_prob=-1.0, **given),
        record(HOSTILE, label="y", status="failed", **given),
    ]
    answer = report(runs, tmp_path, title=HOSTILE, commands=[HOSTILE, "````"])
    page = Reader((tmp_path / "index.html").read_text())
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert sum(HOSTILE in word for word in page.words) > 10
    for path in answer.written[2:]:
        assert HOSTILE.split("\n")[0] in "".join(ET.parse(path).getroot().itertext())
    text = (tmp_path / "report.md").read_text()
    fence = text.index("`````sh\n")
    assert "<" not in text[:fence]
    assert "\\`\\*\\_\\[a\\](b)" in text[:fence]
    assert not re.search(r"(?<!\\)[`_]", text[:fence])
    tables = re.findall(r"(?:^\|.*\n)+", text[:fence], re.MULTILINE)
    assert len(tables) == 6
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
    assert not [line for line in text[:fence].splitlines() if line.startswith("# x")]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", "a\\|b"),
        ("# a", "\\# a"),
        ("1. a", "1\\. a"),
        ("- a", "\\- a"),
        ("-3.5", "-3.5"),
        ("0.5", "0.5"),
        ("a_b*", "a\\_b\\*"),
        ("a\nb", "a b"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("http://x.y @z", "http:&#47;&#47;x.y &#64;z"),
    ],
)
def test_text_in_markdown(text, shown):
    assert plain(text) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (0.01, "0.01"),
        (250, "250"),
        (1500, "1.5k"),
        (2e6, "2M"),
        (1e-9, "1e-9"),
        (2.5e-4, "0.00025"),
        (-3e9, "-3G"),
    ],
)
def test_numbers_on_axes(value, shown):
    assert short(value) == shown


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("span", [(1.0, 1.0), (1.0, 2.0), (0.001, 4000.0), (1e-9, 1e9), (0.9999, 1.0001)])
def test_svg_is_well_formed_and_inside_its_frame(span, log):
    series = [Series(f"<{i}> a long label", [(span[0], 1.0), (span[1], 2.0)], i, i, step=i % 2 == 0) for i in range(9)]
    plot = Plot("p", "title <", "words &", Axis("x", log), Axis("y"), [*series, Series("none", [], 9, 9)])
    root = ET.fromstring("\n".join(svg_lines(plot)))
    name = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{name}title").text == "title <"
    assert root.find(f"{name}desc").text == "words &"
    names = [root.find(f"{name}{tag}").get("id") for tag in ("title", "desc")]
    assert root.get("aria-labelledby").split() == names
    lines = [line for line in root.iter(f"{name}line") if line.get("x1") == line.get("x2")]
    assert 1 <= len(lines) <= 10
    assert all(74 <= float(line.get("x1")) <= 704 for line in lines)
    assert len([one for one in root.iter(f"{name}path") if one.get("class").startswith("line")]) == 9 + 10
