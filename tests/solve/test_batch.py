"""Many rows at once give what they give one by one: every input, every executor, in order, whatever dies meanwhile."""

import gzip
import itertools
import multiprocessing
import os
import pickle
import random
import signal
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

import margmap as mm
from circuits import SORTS, random_circuit, random_instance, running_example
from margmap.distribute.executors import open_executor
from margmap.foundation.limits import Limits
from margmap.inference.scaled import scaled
from margmap.io.evidence_rows import OfFile
from margmap.solve import batch


def same(answer, expected):
    """The same answer but for the seconds it took."""
    if isinstance(expected, mm.FailedRow):
        return answer == expected
    return isinstance(answer, mm.Result) and _facts(answer) == _facts(expected)


def _facts(result):
    return {**result.to_dict(), "top": result.top, "seconds": None}


def one_by_one(circuit, queries, evidences, **options):
    answers = []
    for row, (query, evidence) in enumerate(zip(queries, evidences, strict=True)):
        try:
            answers.append(mm.marginal_map(circuit, query, evidence, **options))
        except mm.MargmapError as error:
            answers.append(mm.FailedRow(row, str(error), type(error).__name__))
    return answers


def check(stream, expected):
    answers = list(stream)
    assert len(answers) == len(expected)
    for row, (answer, right) in enumerate(zip(answers, expected, strict=True)):
        assert same(answer, right), f"row {row}: {answer}, not {right}"


class Evidence(dict):
    """Evidence that does something when a worker looks at it, and nothing on its way there."""

    def __init__(self, values, mark=""):
        super().__init__(values)
        self.mark = mark

    def __reduce__(self):
        return type(self), (dict(zip(self.keys(), self.values(), strict=True)), self.mark)

    def items(self):
        self.looked_at()
        return super().items()


class Slow(Evidence):
    def looked_at(self):
        time.sleep(0.01)


class Deadly(Evidence):
    """Kills the worker."""

    def looked_at(self):
        os.kill(os.getpid(), signal.SIGKILL)


class DeadlyOnce(Evidence):
    """Kills the first worker, which leaves a mark."""

    def looked_at(self):
        try:
            os.close(os.open(self.mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


class Interrupted(Evidence):
    """Somebody presses Ctrl-C."""

    def looked_at(self):
        signal.raise_signal(signal.SIGINT)


class Watched(Executor):
    """An executor that counts how often the whole job travels, and its calls under way."""

    def __init__(self, inner):
        self.inner, self._max_workers = inner, 2
        self.jobs, self.at_once, self.most = 0, 0, 0

    def submit(self, fn, *args):
        _token, packed, _rows = args
        self.jobs += packed is not None
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        future = self.inner.submit(fn, *args)
        future.add_done_callback(self._done)
        return future

    def _done(self, _future):
        self.at_once -= 1


@pytest.fixture(scope="module")
def processes():
    with open_executor(2) as executor:
        yield executor


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(3) as executor:
        yield executor


@pytest.fixture(scope="module")
def example():
    """A circuit, and evidence for many rows with its answers."""
    circuit = running_example()
    evidences = [dict(zip(("X2", "X3"), pair, strict=True)) for pair in itertools.product((0, 1), repeat=2)] * 15
    return circuit, evidences, one_by_one(circuit, [["X1"]] * len(evidences), evidences)


# -- equal to marginal_map


@pytest.mark.parametrize("sort", SORTS)
def test_as_one_by_one_on_all_sorts_of_circuits(sort, processes, threads):
    rng = np.random.default_rng([7, *sort.encode()])
    for _ in range(3):
        circuit = random_circuit(rng, **SORTS[sort])
        instances = [random_instance(rng, circuit, possible=rng.random() < 0.7) for _ in range(8)]
        queries, evidences = zip(*instances, strict=True)
        for k in (1, 2):
            expected = one_by_one(circuit, queries, evidences, k=k)
            check(mm.marginal_map_many(circuit, queries, evidences, jobs=1, k=k), expected)
            for executor in (processes, threads):
                check(mm.marginal_map_many(circuit, queries, evidences, executor=executor, k=k), expected)


def test_on_dask(dask_cluster, example):
    circuit, evidences, expected = example
    check(mm.marginal_map_many(circuit, ["X1"], evidences, executor=dask_cluster), expected)
    check(mm.marginal_map_many(circuit, ["X1"], evidences, executor=dask_cluster._client), expected)


def test_on_processes_of_its_own(example):
    circuit, evidences, expected = example
    before = len(multiprocessing.active_children())
    stream = mm.marginal_map_many(circuit, ["X1"], evidences, jobs=2)
    assert same(next(stream), expected[0])
    assert len(multiprocessing.active_children()) > before
    check(stream, expected[1:])


def test_the_most_probable_explanation_of_each_row(example):
    circuit, evidences, _ = example
    check(mm.marginal_map_many(circuit, None, evidences, jobs=1), one_by_one(circuit, [None] * 60, evidences))


def test_networks_are_compiled_once_if_they_can_be(processes):
    network = mm.load_network(_write_network())
    evidences = [{"a": "x"}, {"b": "y"}, {"a": "y", "b": "x"}, {}]
    for options in ({}, {"max_edges": 3}):  # too few for the whole network, enough for a query of it
        answers = list(mm.marginal_map_many(network, ["c"], evidences, executor=processes, **options))
        for answer, evidence in zip(answers, evidences, strict=True):
            right = mm.marginal_map(network, ["c"], evidence)
            if answer.status == "failed":
                assert (answer.kind, options) == ("LimitError", {"max_edges": 3})
                continue
            assert answer.state == right.state
            assert answer.log_prob == pytest.approx(right.log_prob, abs=1e-12)
    assert "elimination" in [a.method for a in mm.marginal_map_many(network, ["c"], evidences, "elimination", jobs=1)]


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def _write_network():
    with open("abc.uai", "w") as file:
        file.write("BAYES\n3\n2 2 3\n3\n1 0\n2 0 1\n3 0 1 2\n\n2\n.3 .7\n4\n.2 .8 .6 .4\n12\n")
        file.write(".1 .2 .7 .3 .3 .4 .5 .25 .25 .6 .3 .1\n")
    with open("named.bif", "w") as file:
        file.write("network unknown {\n}\n")
        for name, values in (("a", "x, y"), ("b", "x, y"), ("c", "u, v, w")):
            file.write(f"variable {name} {{\n  type discrete [ {values.count(',') + 1} ] {{ {values} }};\n}}\n")
        file.write("probability ( a ) {\n  table 0.3, 0.7;\n}\n")
        file.write("probability ( b | a ) {\n  (x) 0.2, 0.8;\n  (y) 0.6, 0.4;\n}\n")
        file.write("probability ( c | a, b ) {\n  (x, x) 0.1, 0.2, 0.7;\n  (x, y) 0.3, 0.3, 0.4;\n")
        file.write("  (y, x) 0.5, 0.25, 0.25;\n  (y, y) 0.6, 0.3, 0.1;\n}\n")
    return "named.bif"


# -- what rows can be


class Frame:
    """As much of a data frame as is asked for."""

    def __init__(self, columns, values):
        self.columns, self._values = columns, values

    def to_numpy(self):
        return self._values


def kinds_of_rows():
    integers = np.array([[-1, 0, 1], [-1, 1, -1], [-1, 0, 0]])
    floats = np.where(integers < 0, np.nan, integers)
    mappings = [{"X2": 0, "X3": 1}, {"X2": 1}, {"X2": 0, "X3": 0}]
    yield "integers", integers, {}
    yield "small integers", integers.astype(np.int8), {}
    yield "floats", floats, {}
    yield "objects", np.array([[None, "0", 1], ["", 1.0, float("nan")], [None, np.int64(0), "0.0"]], object), {}
    yield "text", np.array([["", "0", "1"], ["-1", "1", "nan"], ["nan", "0", "0"]]), {}
    yield "columns", floats[:, [2, 1]], {"columns": ["X3", "X2"]}
    yield "a frame", Frame(["X3", "X2"], floats[:, [2, 1]]), {}
    yield "lists", [[-1, 0, 1], [None, 1, None], (-1, 0, 0)], {}
    yield "mappings", mappings, {}
    yield "mappings with holes", [{"X1": None, "X2": 0, "X3": 1}, {"X2": 1, "X3": -1}, {"X2": 0, "X3": 0}], {}
    yield "a generator", (row for row in mappings), {}


@pytest.mark.parametrize(("rows", "options"), [pytest.param(r, o, id=name) for name, r, o in kinds_of_rows()])
def test_every_kind_of_rows(rows, options):
    circuit = running_example()
    expected = one_by_one(circuit, [["X1"]] * 3, [{"X2": 0, "X3": 1}, {"X2": 1}, {"X2": 0, "X3": 0}])
    check(mm.marginal_map_many(circuit, ["X1"], rows, jobs=1, **options), expected)


@pytest.mark.parametrize("sparse", [scipy.sparse.csr_matrix, scipy.sparse.coo_array, scipy.sparse.csc_array])
def test_all_entries_of_a_sparse_matrix_are_observed(sparse, monkeypatch):
    monkeypatch.setattr("margmap.io.evidence_rows._BLOCK", 4)
    circuit = running_example()
    dense = np.array([[0, 1], [1, 1], [1, 0]] * 3)
    expected = one_by_one(circuit, [["X1"]] * 9, [{"X2": int(a), "X3": int(b)} for a, b in dense])
    check(mm.marginal_map_many(circuit, ["X1"], sparse(dense), columns=["X2", "X3"], jobs=1), expected)


def test_a_pandas_frame():
    pandas = pytest.importorskip("pandas")
    x, y = mm.Variable("x", 2, ("no", "yes")), mm.Variable(7)
    circuit = mm.circuit_of(0.6 * x["yes"] * mm.bernoulli(y, 0.2) + 0.4 * x["no"] * mm.bernoulli(y, 0.9), [x, y])
    frame = pandas.DataFrame({"x": ["yes", None, "no"], 7: pandas.array([1, 0, None], dtype="Int64")})
    expected = one_by_one(circuit, [None] * 3, [{"x": "yes", 7: 1}, {7: 0}, {"x": "no"}])
    check(mm.marginal_map_many(circuit, None, frame, jobs=1), expected)


@pytest.mark.parametrize(
    "text",
    [
        "X2,X3\n0,1\n1,\n0,0\n",
        "\ufeffX3 , X2\r\n1,0\r\n\r\n nan ,1\r\n0,0.0\r\n",
        ",0,1\n-1,1,-1\n,0,0",
        'X2,"X3",X1\n"0",1,\n1,-1,-1.0\n0,0,nan\n',
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_csv_files(text, packed, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    circuit = running_example()
    expected = one_by_one(circuit, [["X1"]] * 3, [{"X2": 0, "X3": 1}, {"X2": 1}, {"X2": 0, "X3": 0}])
    check(mm.marginal_map_many(circuit, ["X1"], path, jobs=1), expected)
    check(mm.marginal_map_many(circuit, ["X1"], str(path), jobs=1, start=1), expected[1:])


def test_a_first_line_that_can_be_names_or_values_is_refused(tmp_path):
    zero, one = mm.Variable(0), mm.Variable(1)
    circuit = mm.circuit_of(0.5 * zero[0] * one[1] + 0.5 * zero[1] * mm.bernoulli(one, 0.3), [zero, one])
    path = tmp_path / "rows.csv"
    path.write_text("0,1\n1,-1\n")
    with pytest.raises(mm.FormatError, match=r"line 1: .*--no-header"):
        mm.marginal_map_many(circuit, None, path)
    assert len(list(mm.marginal_map_many(circuit, None, path, jobs=1, header=True))) == 1
    first, second = mm.marginal_map_many(circuit, None, path, jobs=1, header=False)
    assert first.state == {}
    assert second.state == {1: 0}
    path.write_text("1,1\n0,1\n")  # no header: a name twice
    assert len(list(mm.marginal_map_many(circuit, None, path, jobs=1))) == 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("X2,Y\n0,1\n", "unknown variable 'Y'"),
        ("X2,X2\n0,1\n", "twice"),
        ("0,1\n1,1\n", "2 cells and no header for the 3 variables"),
        ('X2,"X3\n0,1\n', "not comma-separated"),
        ("\n\n", "empty"),
        ('""\n', "no rows"),
        ("X1,X2\n\0,1\n", "binary"),
    ],
)
def test_csv_files_that_are_refused(text, why, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(mm.FormatError, match=why):
        list(mm.marginal_map_many(running_example(), ["X1"], path, jobs=1))


def test_minus_one_is_a_value_of_a_continuous_variable():
    x, z = mm.Variable("x"), mm.Variable("z", 0)
    circuit = mm.circuit_of(0.5 * x[0] * mm.gaussian(z, -1, 1) + 0.5 * x[1] * mm.gaussian(z, 1, 1), [x, z])
    expected = one_by_one(circuit, [["x"]] * 3, [{"z": -1.0}, {"z": 1.0}, {}])
    check(mm.marginal_map_many(circuit, ["x"], np.array([[-1, -1.0], [-1, 1.0], [-1, np.nan]]), jobs=1), expected)


def test_rows_that_cannot_be_answered_do_not_stop_the_others(processes):
    x, y = mm.Variable("x"), mm.Variable("y")
    circuit = mm.circuit_of(0.5 * x[0] * y[0] + 0.5 * x[1] * mm.bernoulli(y, 0.0), [x, y])
    rows = [{"y": 0}, {"y": 1}, {"y": 2}, {"z": 0}, {"x": 0}, 3, [1], {"y": object}, {"y": lambda: 0}, {"y": 0}]
    answers = list(mm.marginal_map_many(circuit, ["x"], rows, executor=processes))
    assert [a.status for a in answers] == ["optimal", *["failed"] * 8, "optimal"]
    assert [a.row for a in answers[1:9]] == list(range(1, 9))
    assert [a.kind for a in answers[1:4]] == ["ImpossibleEvidenceError", "QueryError", "QueryError"]
    for answer, words in zip(
        answers[1:8],
        [
            "probability 0",
            "out of range",
            "'z'",
            "both queried",
            "type int",
            "1 values for 2 columns",
            "neither",
        ],
        strict=True,
    ):
        assert words in answer.error


def test_wrong_requests_are_refused_before_anything_is_done():
    circuit, rows = running_example(), np.full((2, 3), -1)
    for words, arguments, options in [
        ("unknown method", (["X1"], rows, "magic"), {}),
        ("no option 'depth'", (["X1"], rows), {"depth": 3}),
        ("time_limit", (["X1"], rows, "auto", -1), {}),
        ("gap=", (["X1"], rows), {"gap": -1}),
        ("unknown variable 'Y'", (["Y"], rows), {}),
        ("give a list of variables", ("X1", rows), {}),
        ("mixes", (["X1", ["X2"]], rows), {}),
        ("3 queries for 2 rows", ([["X1"]] * 3, rows), {}),
        ("2 columns, but the circuit has 3", (["X1"], rows[:, :2]), {}),
        ("3 columns, but 1 are named", (["X1"], rows), {"columns": ["X2"]}),
        ("twice", (["X1"], rows), {"columns": ["X2", "X2", "X3"]}),
        ("1 dimensions", (["X1"], rows[0]), {}),
        ("type complex", (["X1"], rows.astype(complex)), {}),
        ("one mapping", (["X1"], {"X2": 0}), {}),
        ("of type int", (["X1"], 3), {}),
        ("jobs=0", (["X1"], rows), {"jobs": 0}),
        ("both given", (["X1"], rows), {"jobs": 2, "executor": object()}),
        ("cannot be given work", (["X1"], rows), {"executor": "local"}),
        ("start=-1", (["X1"], rows), {"start": -1}),
        ("no such file", (["X1"], "nowhere.csv"), {}),
    ]:
        with pytest.raises(mm.MargmapError, match=words):
            mm.marginal_map_many(circuit, *arguments, **options)
    x = mm.Variable("x")
    with pytest.raises(mm.StructureError):
        mm.marginal_map_many(mm.circuit_of(0.5 * x[0] * x[1] + 0.5 * x[1], [x]), None, np.zeros((2, 1)))


# -- order, and how much at a time


def test_in_order_whatever_comes_back_first(example):
    circuit, evidences, expected = example

    class Late(Executor):
        """Answers after a while, different each time."""

        def submit(self, fn, *args):
            future = Future()
            threading.Timer(random.random() / 50, lambda: future.set_result(fn(*args))).start()
            return future

    check(mm.marginal_map_many(circuit, ["X1"], evidences, executor=Late()), expected)
    check(mm.marginal_map_many(circuit, ["X1"], evidences, executor=Late(), start=17), expected[17:])


@pytest.mark.parametrize("jobs", [1, None])
def test_no_more_rows_are_read_than_needed(jobs, threads, monkeypatch):
    monkeypatch.setattr(batch, "AHEAD", 20)
    read = []
    rows = (read.append(i) or {"X2": i % 2} for i in itertools.count())
    executor = {"jobs": 1} if jobs else {"executor": threads}
    stream = mm.marginal_map_many(running_example(), ["X1"], rows, **executor)
    for row in range(50):
        assert next(stream).status == "optimal"
        assert len(read) <= row + (1 if jobs else 20 + batch.CHUNK_ROWS)
    stream.close()


def test_rows_of_a_file_are_read_together_in_one_process(tmp_path):
    circuit, read = running_example(), []
    rows = OfFile(read.append(i) or {"X2": i % 2} for i in range(50))
    stream = mm.marginal_map_many(circuit, ["X1"], rows, jobs=1)
    assert next(stream).status == "optimal"
    assert next(stream).status == "optimal"
    assert len(read) > 2
    assert len([answer for answer in stream if answer.status == "optimal"]) == 48


def test_rows_travel_together_and_the_model_travels_once(processes, example, monkeypatch):
    monkeypatch.setattr(batch, "CHUNK_ROWS", 4)  # more than 200 chunks
    circuit = example[0]
    evidences, expected = zip(
        *[pair for pair in zip(*example[1:], strict=True) if pair[1].status != "failed"], strict=True
    )
    watched = Watched(processes)
    check(mm.marginal_map_many(circuit, ["X1"], evidences * 20, executor=watched), expected * 20)
    assert watched.jobs <= 40  # once for each worker, and for a chunk that another worker then took
    assert watched.most <= 2 * batch.CHUNKS_PER_WORKER
    again = Watched(processes)
    check(mm.marginal_map_many(circuit, ["X1"], evidences[:1], executor=again), expected[:1])
    assert again.jobs >= 1


def test_trouble_with_reading_comes_after_the_rows_before_it(processes, example):
    circuit, evidences, expected = example

    def rows():
        yield from evidences[:7]
        raise OSError("the disk is gone")

    for where in ({"jobs": 1}, {"executor": processes}):
        stream = mm.marginal_map_many(circuit, ["X1"], rows(), **where)
        check(itertools.islice(stream, 7), expected[:7])
        with pytest.raises(OSError, match="the disk is gone"):
            next(stream)
    stream = mm.marginal_map_many(circuit, [["X1"]] * 3, iter(evidences[:2]), jobs=1)
    check(itertools.islice(stream, 2), expected[:2])
    with pytest.raises(mm.QueryError, match="3 queries for 2 rows"):
        next(stream)


def test_circuits_and_networks_travel_unchanged():
    circuit = running_example()
    _ = scaled(circuit)
    copy = pickle.loads(pickle.dumps(circuit))
    assert copy.variables == circuit.variables
    for name in ("kind", "start", "child", "log_weight", "var", "param_start", "param"):
        array = getattr(copy, name)
        assert (array == getattr(circuit, name)).all()
        assert not array.flags.writeable
    assert "scaled" not in vars(copy)
    network = mm.load_network(_write_network())
    for mine, other in zip(network.factors, pickle.loads(pickle.dumps(network)).factors, strict=True):
        assert mine.scope == other.scope
        assert (mine.table == other.table).all()
        assert not other.table.flags.writeable


# -- deaths


def test_a_worker_that_is_killed_loses_nothing(processes, example):
    circuit, evidences, expected = example
    answers = []
    for answer in mm.marginal_map_many(circuit, ["X1"], [Slow(e) for e in evidences], executor=processes):
        if len(answers) == 20:
            os.kill(processes.submit(os.getpid).result(), signal.SIGKILL)
        answers.append(answer)
    check(answers, expected)


def test_a_dask_worker_that_is_killed_loses_nothing(dask_cluster, example):
    circuit, evidences, expected = example
    answers = []
    for answer in mm.marginal_map_many(circuit, ["X1"], [Slow(e) for e in evidences], executor=dask_cluster):
        if len(answers) == 20:
            os.kill(next(iter(dask_cluster._client.run(os.getpid).values())), signal.SIGKILL)
        answers.append(answer)
    check(answers, expected)


@pytest.mark.parametrize("where", ["processes", "dask_cluster"])
def test_a_row_that_kills_all_its_workers_is_given_up(where, request, example, tmp_path):
    circuit, evidences, expected = example
    executor = request.getfixturevalue(where)
    rows = list(evidences)
    rows[30] = Deadly(rows[30])
    if where == "processes":  # a Dask worker takes seconds to be replaced
        rows[31] = DeadlyOnce(rows[31], str(tmp_path / "mark"))
    answers = list(mm.marginal_map_many(circuit, ["X1"], rows, executor=executor))
    given_up = answers[30]
    assert (given_up.row, given_up.kind) == (30, "WorkerDied")
    assert "row 30 " in given_up.error
    check([*answers[:30], *answers[31:]], [*expected[:30], *expected[31:]])


def test_workers_that_cannot_even_start_are_not_the_rows_fault():
    class Dying(Executor):
        _max_workers = 2

        def submit(self, _fn, *_args):
            future = Future()
            future.set_exception(BrokenExecutor("gone"))
            return future

    with pytest.raises(mm.MargmapError, match="before they do anything"):
        list(mm.marginal_map_many(running_example(), ["X1"], [{}] * 5, executor=Dying()))


def test_an_executor_that_is_broken_is_named():
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(mm.MargmapError, match="open_executor"):
        list(mm.marginal_map_many(running_example(), ["X1"], [{}] * 5, executor=executor))


# -- Ctrl-C


@pytest.mark.parametrize("where", ["here", "processes"])
def test_ctrl_c_delivers_what_is_under_way_and_the_rest_can_follow(where, processes, example):
    circuit, evidences, expected = example
    if where == "processes":  # so many that not all of them can be under way when Ctrl-C comes
        evidences = 6 * evidences
        expected = one_by_one(circuit, [["X1"]] * len(evidences), evidences)
    rows = [Slow(evidence) for evidence in evidences]
    if where == "here":
        options = {"jobs": 1}
        rows[10] = Interrupted(rows[10])
    else:
        options = {"executor": processes}
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
    answers = []

    def collect():
        for answer in mm.marginal_map_many(circuit, ["X1"], rows, **options):
            answers.append(answer)  # noqa: PERF402 - kept when the interrupt comes

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        collect()
    assert signal.getsignal(signal.SIGINT) is before
    assert len(answers) < len(rows)
    check(answers, expected[: len(answers)])
    if where == "here":
        assert 1 <= len(answers) <= 11  # those that were read together with the one that Ctrl-C came in are not begun
    check(mm.marginal_map_many(circuit, ["X1"], evidences, jobs=1, start=len(answers)), expected[len(answers) :])


def test_a_batch_learns_of_a_ctrl_c_that_a_query_caught():
    outer, inner = Limits(), Limits()

    def batch():
        with outer.catching_interrupts():
            with inner.catching_interrupts():
                signal.raise_signal(signal.SIGINT)
            assert inner.interrupted
            assert outer.interrupted
            signal.raise_signal(signal.SIGINT)
            pytest.fail("the second one was swallowed")

    with pytest.raises(KeyboardInterrupt):
        batch()


def counting(monkeypatch):
    """The evidence that a batch in this process asks about, one query after the other."""
    asked, ask = [], batch.marginal_map
    monkeypatch.setattr(
        batch, "marginal_map", lambda *given, **options: asked.append(given[2]) or ask(*given, **options)
    )
    return asked


def repeating():
    """A circuit, a query and rows that repeat, some of them impossible."""
    circuit = running_example()
    names = [v.name for v in circuit.variables]
    evidences = [dict(zip(names[1:], (row & 1, row >> 1 & 1), strict=False)) for row in (0, 1, 0, 3, 1, 0, 2, 3)]
    return circuit, names[:1], evidences


def test_equal_rows_are_answered_once(monkeypatch):
    circuit, query, evidences = repeating()
    expected = one_by_one(circuit, [query] * len(evidences), evidences, k=2)
    asked = counting(monkeypatch)
    answers = list(mm.marginal_map_many(circuit, query, OfFile(evidences), jobs=1, k=2))
    assert len(answers) == len(expected)
    assert all(same(answer, right) for answer, right in zip(answers, expected, strict=True))
    proven = {tuple(e.values()) for e, right in zip(evidences, expected, strict=True) if right.status == "optimal"}
    assert len(proven) >= 2
    for evidence in proven:
        assert [tuple(circuit.variables[c].label(x) for c, x in sorted(e.items())) for e in asked].count(evidence) == 1
    equal = [answer for answer, e in zip(answers, evidences, strict=True) if e == evidences[0]]
    equal[0].state.clear()  # which is nobody else's
    assert equal[1].state == equal[2].state == expected[0].state
    assert equal[1].state is equal[1].top[0].state


def test_only_proven_answers_are_kept_and_not_too_many(monkeypatch):
    circuit, query, evidences = repeating()
    possible = [
        e for e, a in zip(evidences, one_by_one(circuit, [query] * 8, evidences), strict=True) if a.status == "optimal"
    ]
    asked, calls = counting(monkeypatch), []
    options = {"method": "iterative", "on_iteration": calls.append}  # somebody to be called for each row
    assert len(list(mm.marginal_map_many(circuit, query, possible, jobs=1, **options))) == len(possible)
    assert len(asked) == len(possible)
    with monkeypatch.context() as patch:
        ask = batch.marginal_map
        patch.setattr(batch, "marginal_map", lambda *given: replace(ask(*given), status="time_limit"))
        list(mm.marginal_map_many(circuit, query, possible, jobs=1))
    assert len(asked) == 2 * len(possible)
    monkeypatch.setattr(batch, "KEPT_VALUES", 1)  # one answer
    before, one = len(asked), possible[0]
    other = next(evidence for evidence in possible if evidence != one)
    list(mm.marginal_map_many(circuit, query, [one, one, other, one], jobs=1))
    assert len(asked) - before == 3
