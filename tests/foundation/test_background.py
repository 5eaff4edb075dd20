"""The cache of machine code under bad conditions, and the process that fills it behind the first answer."""

import os
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import nullcontext

import pytest

from margmap import warmup
from margmap.foundation import background, jit

MODULE = """
import numpy as np
from margmap.foundation.jit import kernel

@kernel
def inner(x):
    return x * 2

@kernel
def first(x):
    return inner(x) + 1

@kernel
def second(x):
    return first(x) + inner(x)
"""

MAIN = """
import sys
import kernels
found = [k(x) for k in (kernels.inner, kernels.first, kernels.second) for x in (3, 2.5)]
assert found == [6, 5.0, 7, 6.0, 13, 11.0], found
hits = sum(sum(k.stats.cache_hits.values()) for k in (kernels.inner, kernels.first, kernels.second))
from margmap.foundation.jit import all_kept
print(hits, all_kept())
"""


@pytest.fixture
def start(tmp_path):
    """Start a process that compiles three kernels for two types each, into an own cache."""
    (tmp_path / "kernels.py").write_text(MODULE)
    cache = tmp_path / "cache"
    cache.mkdir()
    environment = {**os.environ, "MARGMAP_TIER": "compile", "NUMBA_CACHE_DIR": str(cache)}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *sys.path])

    def begin(before=""):
        return subprocess.Popen(
            [sys.executable, "-c", before + MAIN],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    begin.cache = cache
    return begin


def hits(process, kept=True):
    """How often a process found machine code in the cache; it must know whether all of it is there in the end."""
    out, err = process.communicate()
    assert process.returncode == 0, err
    number, all_kept = out.split()
    assert all_kept == str(kept)
    return int(number)


def test_two_processes_at_once_leave_one_good_cache(start):
    both = [start(), start()]
    assert sum(map(hits, both)) <= 6
    assert hits(start()) == 6


def test_a_kill_in_the_middle_leaves_a_cache_that_works(start):
    process = start()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list(start.cache.rglob("*.nbi")):
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert hits(start()) < 6
    assert hits(start()) == 6


def test_a_disk_that_takes_nothing_more(start):
    """No file may grow beyond some bytes, as on a full disk: nothing is kept, all is right."""
    full = "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    full += "sys.dont_write_bytecode = True\n"  # Python itself would leave byte code that is cut off
    assert hits(start(full + "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))\n"), kept=False) == 0
    assert hits(start()) == 0
    assert hits(start()) == 6


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="nothing is read-only for the superuser")
def test_a_cache_that_is_read_only(start):
    start.cache.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert hits(start(), kept=False) == 0


def test_a_cache_folder_that_cannot_be_made(start):
    start.cache.rmdir()
    start.cache.write_text("a file where the folder should be")
    assert hits(start()) == 0, "numba keeps it beside the sources"


def test_machine_code_that_is_not_what_it_should_be(start):
    assert hits(start()) == 0
    files = sorted(start.cache.rglob("*.nbc"))
    assert len(files) == 6
    for file, content in zip(files, [b"", b"\x80\x04", None] * 2, strict=True):
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content)
    assert hits(start()) == 0
    assert hits(start()) == 6


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """This process as one that may start another, with a cache of its own."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("MARGMAP_TIER", "auto")
    monkeypatch.setattr(background, "_seen", background._Seen())
    monkeypatch.setattr(background, "_is_wanted", lambda: True)
    monkeypatch.setattr(background, "_CODE", f"open({str(tmp_path / 'ran')!r}, 'a').write('x')")
    return tmp_path


def wait_for(path, text):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not (path.exists() and path.read_text() == text):
        time.sleep(0.02)
    assert path.read_text() == text


def test_the_process_behind_is_started_once(alone):
    background.start()
    background.start()
    wait_for(alone / "ran", "x")
    background._seen.started.wait()
    background.start()
    assert (alone / "ran").read_text() == "x"


def test_the_process_behind_is_not_started_when_the_work_is_done_or_under_way(alone, monkeypatch):
    with background.sole() as mine:
        assert mine
        assert background.is_under_way()
        background.start()
    assert background._seen.started is None
    monkeypatch.setattr(background, "_seen", background._Seen())
    assert not background.is_under_way()
    assert not background.is_warm()
    background.mark_warm()
    monkeypatch.setattr(background, "_seen", background._Seen())
    assert background.is_warm()
    background.start()
    assert background._seen.started is None


def test_no_process_is_started_from_a_test_a_worker_or_on_request(monkeypatch):
    monkeypatch.delenv("MARGMAP_BACKGROUND", raising=False)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("MARGMAP_TIER", "auto")
    assert not background._is_wanted(), "pytest runs"
    monkeypatch.delitem(sys.modules, "pytest")
    monkeypatch.delitem(sys.modules, "distributed.worker", raising=False)
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    assert background._is_wanted() == jit.available()
    for name, value in (("MARGMAP_BACKGROUND", "0"), ("CI", "true"), ("MARGMAP_TIER", "interpret")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert not background._is_wanted()
    monkeypatch.setattr("multiprocessing.process.parent_process", lambda: object())
    assert not background._is_wanted(), "a worker"


def test_only_one_holds_the_lock_and_it_goes_with_its_process(alone):
    code = "import time; from margmap.foundation import background\n"
    code += "with background.sole() as mine: print(mine, flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "True"
    with background.sole() as mine:
        assert not mine
    process.kill()
    process.communicate()
    with background.sole() as mine:
        assert mine


def test_the_process_behind_has_the_lock_before_it_does_anything(alone, monkeypatch):
    monkeypatch.setattr(background, "_CODE", "import time; time.sleep(60)")
    looking = background.sole()
    assert looking.__enter__()
    timer = threading.Timer(0.05, looking.__exit__, (None, None, None))  # who only looks lets go of it at once
    timer.start()
    background.start()
    timer.join()
    process = background._seen.started
    try:
        with background.sole() as mine:
            assert not mine
        monkeypatch.setattr(background, "_seen", background._Seen())
        background.start()
        assert background._seen.started is None, "not a second one"
    finally:
        process.kill()
        process.wait()
    with background.sole() as mine:
        assert mine


def test_no_mark_is_left_where_nothing_was_kept(alone, monkeypatch):
    monkeypatch.setattr(warmup, "PATHS", {name: lambda: 1 / 0 for name in warmup.DEFAULT})
    for kept in (False, True):
        monkeypatch.setattr(warmup, "all_kept", lambda kept=kept: kept)
        monkeypatch.setattr(background, "_seen", background._Seen())
        warmup.behind()
        assert background.is_warm() == kept


def test_sessions_on_sparse_circuits_are_compiled_ahead():
    """Of the path for questions in a row: what takes the vectors of the questions before, and what stands around it."""
    with jit.listed_calls() as listed:
        warmup._in_a_row()
    kernels = {kernel.place for kernel, _ in listed}
    assert {
        "inference.kept_values._bring",
        "solve.kept_reduction._new_forms",
        "solve.kept_reduction._score",
        "solve.methods.frontier.kept_vectors.sweep_again",
        "solve.session._levels_and_needed",
    } <= kernels


@pytest.mark.parametrize("name", ["circuits", "constraints"])
def test_interpreting_tells_which_kernels_a_path_needs(name, monkeypatch):
    monkeypatch.setattr("gc.disable", lambda: None)  # this process goes on
    calls = warmup.calls_of(name)
    assert len({(kernel, types) for kernel, types, _, _ in calls}) == len(calls) > 10
    assert all(parts[kernel] > 0 and min(parts.values()) > 0 for kernel, _, parts, _ in calls)
    for kernel, _, _, packed in calls:
        warmup.compile_kernel(kernel, [packed])
    made = [kernel for kernel in jit._state.kernels if "dispatcher" in kernel.__dict__]
    before = {kernel: len(kernel.dispatcher.overloads) for kernel in made}
    with jit.forced("compile"):
        warmup.PATHS[name]()
    made = [kernel for kernel in jit._state.kernels if "dispatcher" in kernel.__dict__]
    assert {kernel: len(kernel.dispatcher.overloads) for kernel in made} == before, "nothing is left to compile"


def test_a_path_that_fails_is_named(monkeypatch):
    def fails():
        raise ZeroDivisionError

    class Here:
        """An executor that does everything at once, here."""

        def submit(self, work, *args):
            future = Future()
            try:
                future.set_result(work(*args))
            except Exception as error:
                future.set_exception(error)
            return future

    monkeypatch.setattr("gc.disable", lambda: None)  # this process goes on
    monkeypatch.setattr(warmup, "PATHS", {"queries": warmup.PATHS["queries"], "broken": fails})
    monkeypatch.setattr(warmup, "open_executor", lambda _jobs: nullcontext(Here()))
    monkeypatch.setattr(background, "mark_warm", lambda: pytest.fail("not all is there"))
    steps = []
    found = warmup.ahead(2, lambda more, name, total: steps.append((more, name, total)))
    assert found["failed"] == ["broken"]
    assert found["numba"]
    assert len(steps) == steps[0][2] > 2
    assert {"queries", "broken"} < {name for _, name, _ in steps}


def test_kernels_that_have_little_in_common_are_compiled_at_once():
    """``a`` and ``b`` call ``c``: beside ``a``, the largest, goes ``d``, and ``b`` when ``c`` is there."""
    parts = {"c": {"c": 9}, "b": {"b": 1, "c": 9}, "a": {"a": 5, "c": 9}, "d": {"d": 2}, "e": {"e": 1}}
    begun, under_way = [], []

    class Two:
        """An executor of two processes: calls end when both are busy, or when it is the last one."""

        def submit(self, work, name, kinds):
            assert work is warmup.compile_kernel
            begun.append((name, kinds))
            under_way.append((name, future := Future()))
            if len(under_way) == 2 or len(begun) == len(parts):
                for ended, of in under_way:
                    of.set_exception(OSError()) if ended == "e" else of.set_result(1)
                under_way.clear()
            return future

    found = dict(warmup._apart(Two(), 2, {name: [name.encode()] for name in parts}, parts))
    assert [name for name, _ in begun] == ["a", "d", "b", "c", "e"]
    assert all(kinds == [name.encode()] for name, kinds in begun)
    assert found.keys() == parts.keys()
    assert [name for name, number in found.items() if number is None] == ["e"]


def test_waiting_for_a_lock_ends(tmp_path):
    path = str(tmp_path / "lock")
    with background.locked(path):
        begun = time.monotonic()
        with background.locked(path, 0.2):
            assert time.monotonic() - begun >= 0.2
