"""Local processes and Dask behind one interface: they work, they are replaced when they die, they leave nothing."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pytest

import margmap as mm
from margmap.distribute.executors import open_executor, workers_of
from margmap.foundation.cores import usable_cores


def test_processes_work_and_are_replaced():
    with open_executor(2) as executor:
        assert workers_of(executor) == 2
        worker = executor.submit(os.getpid).result()
        assert worker != os.getpid()
        assert executor.submit(os.getenv, "OMP_NUM_THREADS").result() is not None
        waiting = executor.submit(time.sleep, 60)
        os.kill(worker, signal.SIGKILL)
        with pytest.raises(BrokenProcessPool):
            waiting.result()
        again = executor.submit(os.getpid).result()
        assert again not in (worker, os.getpid())
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(os.getpid)


def test_work_is_given_up_when_the_block_is_left_by_an_error():
    begun = time.monotonic()
    workers = []

    def leave():
        with open_executor(1) as executor:
            workers.append(executor.submit(os.getpid).result())
            executor.submit(time.sleep, 600)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        leave()
    while workers[0] in [process.pid for process in multiprocessing.active_children()]:
        assert time.monotonic() < begun + 60
        time.sleep(0.02)


def test_a_script_without_a_main_guard_is_told_what_to_do(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, margmap.distribute.executors as e\n"
        "with e.open_executor(1) as x:\n"
        "    try:\n"
        "        x.submit(os.getpid).result()\n"
        "    except Exception:\n"
        "        pass\n"
        "    x.submit(os.getpid)\n"
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert "if __name__ == '__main__':" in run.stderr.splitlines()[-1]


@pytest.mark.parametrize("jobs", [0, -1, True, 1.5, "2"])
def test_a_wrong_number_of_jobs_is_refused(jobs):
    with pytest.raises(mm.QueryError, match="jobs="), open_executor(jobs):
        pass


def test_the_number_of_workers_of_other_executors():
    with ThreadPoolExecutor(3) as threads:
        assert workers_of(threads) == 3
    assert workers_of(object()) == usable_cores() >= 1


def test_dask_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(mm.MissingExtraError, match=r"margmap\[cluster\]"), open_executor(dask="local"):
        pass


@pytest.mark.parametrize(
    ("address", "why"),
    [("localhost:8786", "tcp://host:8786"), ("tcp://127.0.0.1:1", "no Dask scheduler"), ("xyz://here:1", "scheme")],
)
def test_a_wrong_dask_address_is_refused(address, why):
    pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    with pytest.raises(mm.QueryError, match=why), open_executor(dask=address):
        pass


def test_a_cluster_has_its_own_workers(dask_cluster):
    address = dask_cluster._client.scheduler.address
    dask_cluster._client.wait_for_workers(2)  # one may have been killed by another test
    with pytest.raises(mm.QueryError, match="its own workers"), open_executor(2, address):
        pass
    with open_executor(dask=address) as executor:
        assert workers_of(executor) == 2
        assert executor.submit(os.getpid).result() != os.getpid()
    assert workers_of(dask_cluster) == 2  # the cluster goes on
