"""Where work is done: processes of this machine, or the workers of a Dask cluster, behind `concurrent.futures`.

Nothing here imports numpy or numba: a new process imports this module before it limits its threads.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import pickle
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, cast
from urllib.parse import urlsplit

from margmap.errors import MargmapError, MissingExtraError, QueryError
from margmap.foundation.cores import usable_cores

P = ParamSpec("P")
T = TypeVar("T")

#: Seconds to wait for a Dask scheduler to answer.
CONNECT_SECONDS = 10

# Names of glibc's mallopt.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@contextmanager
def open_executor(jobs: int | None = None, dask: str | None = None) -> Iterator[Executor]:
    """An executor for the block: ``jobs`` local processes (None: one a core), or a Dask cluster.

    ``dask="tcp://host:8786"`` is a running cluster's scheduler; ``dask="local"`` starts a cluster of ``jobs`` processes
    on this machine. Work that is still going on when the block is left by an exception is given up; otherwise its end
    is waited for. A script that starts processes needs the usual ``if __name__ == "__main__":``.
    """
    if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1):
        raise QueryError(f"jobs={jobs!r}: give the number of processes, at least 1, or None for one a core")
    if dask is not None:
        with _dask_executor(jobs, dask) as cluster:
            yield cluster
        return
    processes = Processes(usable_cores() if jobs is None else jobs)
    try:
        yield processes
    except BaseException:
        processes.kill()
        raise
    processes.shutdown()


def checked_executor(executor: Any) -> Executor | None:
    """The executor of whatever the user has given: one of :mod:`concurrent.futures`, or a Dask client."""
    if hasattr(executor, "get_executor"):  # a Dask client
        executor = executor.get_executor(pure=False)
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise QueryError(
            f"executor={executor!r} cannot be given work: give an executor such as that of "
            "margmap.distribute.executors.open_executor(), a Dask client, or the number of processes as jobs"
        )
    return cast("Executor | None", executor)


def workers_of(executor: Any) -> int:
    """How many calls an executor can run at once; where it does not tell, the cores of this machine."""
    client = executor if hasattr(executor, "ncores") else getattr(executor, "_client", None)
    if client is not None and hasattr(client, "ncores"):
        return int(max(1, sum(client.ncores().values())))
    number = getattr(executor, "_max_workers", None)
    return number if isinstance(number, int) and number > 0 else usable_cores()


class WorkerDied(Exception):
    """The process that a call was under way in died, or a cluster's workers did one after the other."""


def submit(executor: Executor, function: Callable[..., T], *args: Any) -> Future[T]:
    """A call on the executor; an error that says what to do if it takes no more."""
    try:
        return executor.submit(function, *args)
    except (BrokenExecutor, RuntimeError) as error:
        raise MargmapError(
            f"the executor takes no more work ({error}): margmap.distribute.executors.open_executor() gives one whose "
            "processes are replaced when they die"
        ) from error


def answer_of(future: Future[T]) -> T:
    """What a call gave; :class:`WorkerDied` if it can be tried again."""
    try:
        return future.result()
    except CancelledError:
        raise MargmapError(
            "the cluster has forgotten its work: its scheduler ended or was restarted; start again once it is back"
        ) from None
    except ImportError as error:
        raise MargmapError(f"the workers cannot import margmap ({error}): install it where they run") from error
    except Exception as error:
        # Dask's own error says that it has tried the call on several workers, and that all of them died.
        if not isinstance(error, BrokenExecutor) and type(error).__name__ != "KilledWorker":
            raise
        raise WorkerDied from error


class Kept(dict[str, T]):
    """What a worker was sent once, by token: ``make(*parts)`` from the pickled parts. The oldest go first."""

    def __init__(self, make: Callable[..., T], most: int = 2) -> None:
        super().__init__()
        self._make, self._most = make, most

    def find(self, token: str, packed: bytes | None) -> T | None:
        """The value, which is made if it is not there yet; None if nothing was sent to make it from."""
        value = self.get(token)
        if value is None and packed is not None:
            value = self._make(*pickle.loads(packed))
            while len(self) >= self._most:
                self.pop(next(iter(self)), None)
            self[token] = value
        return value


class Processes(Executor):
    """Local processes that are replaced when one dies.

    The calls that were under way then fail with ``BrokenProcessPool``, all of them, for nobody can tell whose fault it
    was; but the next :meth:`submit` has new processes to go to.
    """

    def __init__(self, jobs: int) -> None:
        self._max_workers = jobs
        self._lock = threading.Lock()
        self._closed = False
        self._start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call ``fn`` in one of the processes."""
        with self._lock:
            if self._closed:
                raise RuntimeError("the processes have been shut down")
            try:
                return self._pool.submit(fn, *args, **kwargs)
            except BrokenProcessPool:
                if self._hello.exception() is not None:
                    raise MargmapError(
                        "the worker processes end before they do anything: a script that starts them needs "
                        "`if __name__ == '__main__':` around what it does (or jobs=1, which starts none)"
                    ) from None
                self._pool.shutdown(wait=False)
                self._start()
                return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; the processes end when their work is done."""
        with self._lock:
            self._closed = True
            self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)

    def kill(self) -> None:
        """End the processes whatever they are doing."""
        with self._lock:
            self._closed = True
            processes = list((self._pool._processes or {}).values())
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()

    def _start(self) -> None:
        # Never "fork": it would copy this process with the locks of its threads as they happen to be. A fork server is
        # a process without threads that has imported what workers need, so that a new one is there at once.
        context = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
        if sys.platform == "linux":
            context.set_forkserver_preload(["margmap.distribute.worker", "margmap.solve.batch"])
        self._pool = ProcessPoolExecutor(self._max_workers, context, _begin)
        self._hello = self._pool.submit(_hello)


def _begin() -> None:
    from margmap.distribute import worker as _worker  # only here: it changes the process it is imported in

    _worker.begin()


def _hello() -> None:
    """The first call of every pool: if even this fails, it is not the work that breaks it."""


@contextmanager
def _dask_executor(jobs: int | None, address: str) -> Iterator[Executor]:
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise MissingExtraError(
            "Dask is not installed: pip install 'margmap[cluster]' brings it (here and on the workers)"
        ) from None
    if address != "local":
        if "://" not in address:
            raise QueryError(f"dask={address!r}: give a scheduler's address, such as tcp://host:8786, or local")
        if jobs is not None:
            raise QueryError(f"jobs={jobs}: the cluster at {address} has its own workers; leave jobs out")
    settings = {
        # A model is sent to each worker once, and Dask would warn of each large one.
        "distributed.admin.large-graph-warning-threshold": "4GB",
        # Nobody looks at the profile of a local cluster, and taking it a hundred times a second slows down the work.
        "distributed.worker.profile.enabled": False,
        # A call whose worker dies fails at once, as it does with processes; whoever made it knows what to try again.
        "distributed.scheduler.allowed-failures": 0,
    }
    with dask.config.set(settings):
        if address == "local":
            number = usable_cores() if jobs is None else jobs
            with (
                LocalCluster(
                    n_workers=number,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address="127.0.0.1:0",  # any port: two clusters must not want the same
                    silence_logs=50,
                    preload=[__name__],
                ) as cluster,
                Client(cluster, set_as_default=False) as client,
            ):
                yield client.get_executor(pure=False)
            return
        try:
            _require_answer(address)
            client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, ImportError) as error:
            raise QueryError(
                f"no Dask scheduler answers at {address} ({error}): start one with `dask scheduler`, or correct it"
            ) from None
        with client:
            yield client.get_executor(pure=False)


def dask_setup(_worker: object) -> None:
    """What Dask calls in a worker started with ``--preload margmap.distribute.executors``: keep freed memory.

    Dask makes the C library give memory back as soon as it is free, but the tables of one query are freed only for
    those of the next. Workers took less CPU time with this; that fetching the pages anew is why was not measured.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not the C library that Dask speaks to
        return
    mallopt(_M_MMAP_THRESHOLD, 32 << 20)
    mallopt(_M_TRIM_THRESHOLD, 256 << 20)


def _require_answer(address: str) -> None:
    """A client that finds nobody takes long to say so, and complains again when Python ends: ask with a socket."""
    from distributed.comm import get_address_host

    get_address_host(address)
    parts = urlsplit(address)
    if parts.scheme in ("tcp", "tls") and parts.hostname and parts.port:
        socket.create_connection((parts.hostname, parts.port), CONNECT_SECONDS).close()
