"""Ctrl-C at every moment: one line and exit code 130, or what is known; never another error."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from numba.core import event

import margmap as mm
from margmap.foundation import interrupts as _interrupts
from margmap.foundation.interrupts import held
from margmap.foundation.jit import _numba, on_compile
from margmap.foundation.limits import Limits, Stopped

CLINIC = Path(mm.__file__).parent / "models" / "clinic.json"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no signals to send")


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.fixture
def heard() -> object:
    """The default handler, and afterwards the one that was there, whatever a test did."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
class TestHeld:
    def test_the_first_waits_for_the_end(self, capfd: pytest.CaptureFixture[str]) -> None:
        steps = []

        def work() -> None:
            with held():
                ctrl_c()
                steps.append("went on")

        with pytest.raises(KeyboardInterrupt):
            work()
        assert steps == ["went on"]
        assert capfd.readouterr().err.count("\n") == 1

    def test_the_second_does_not_wait(self) -> None:
        def work() -> None:
            with held():
                ctrl_c()
                ctrl_c()
                pytest.fail("it waited")

        with pytest.raises(KeyboardInterrupt):
            work()

    def test_inside_of_another_one(self) -> None:
        steps = []

        def work() -> None:
            with held():
                with held():
                    ctrl_c()
                steps.append("outer")

        with pytest.raises(KeyboardInterrupt):
            work()
        assert steps == ["outer"]

    def test_nothing_came(self) -> None:
        with held():
            pass

    def test_ignored_signals_stay_ignored(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with held():
            ctrl_c()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def test_other_threads_are_not_concerned(self) -> None:
        seen: list[object] = []

        def work() -> None:
            with held():
                seen.append(signal.getsignal(signal.SIGINT))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert seen == [signal.default_int_handler]


KERNELS = """
import random, signal, sys
from margmap.foundation.jit import kernel

def made(number):
    @kernel
    def added(x, pair):
        total = 0.0
        for i in range(x.size):
            total += x[i] * pair[0] + number
        return total
    return added

import numpy as np
signal.signal(signal.SIGINT, signal.default_int_handler)
rng = random.Random(7)
ends = set()
for number in range({count}):
    left = int(10 ** rng.uniform(0, 4.5))

    def count_down(frame, what, value):
        global left
        left -= 1
        if left == 0:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    function, x = made(number), np.ones(3)
    try:
        sys.setprofile(count_down)
        function(x, (2.0, 1))
        sys.setprofile(None)
        ends.add("done")
    except BaseException as error:
        sys.setprofile(None)
        ends.add(type(error).__name__)
    assert function(x, (2.0, 1)) == 3 * (2 + number)
print(sorted(ends))
"""


def test_a_kernel_is_compiled_to_its_end(tmp_path: Path) -> None:
    """Ctrl-C at many moments of numba's own code is a KeyboardInterrupt, and the kernel works afterwards."""
    (tmp_path / "kernels.py").write_text(KERNELS.format(count=12))
    done = subprocess.run(
        [sys.executable, tmp_path / "kernels.py"],
        env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout in ("['KeyboardInterrupt']\n", "['KeyboardInterrupt', 'done']\n"), done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from margmap.foundation.interrupts import take_over
take_over()
print("go", flush=True)
from margmap.__main__ import main
main()
"""


def test_a_command_without_an_answer_ends_with_one_line(tmp_path: Path) -> None:
    """Real Ctrl-Cs while modules are imported, a network is compiled and kernels are, on a machine that has none."""
    rng = random.Random(3)
    network = tmp_path / "asia.uai"
    network.write_text("BAYES 2 2 2 2 1 0 2 0 1 2 0.2 0.8 4 0.1 0.9 0.5 0.5\n")
    commands = [["marginal", str(network), "--posteriors"], ["solve", str(CLINIC), "--json"], ["sample", str(CLINIC)]]
    running = []
    for i in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *commands[i % 3]],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / f"cache{i}")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "go\n"
        timer = threading.Timer(rng.uniform(0.0, 3.0), process.send_signal, (signal.SIGINT,))
        timer.start()
        running.append((process, timer))
    for process, timer in running:
        out, err = process.communicate(timeout=120)
        timer.cancel()
        assert (process.returncode, out, err) == (130, "", "margmap: interrupted\n")


LOST = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from margmap.foundation import interrupts as _interrupts
_interrupts.take_over()
class Finalizer:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
with _interrupts.catching():
    Finalizer()
    print("it was lost")
"""


def test_it_is_not_lost_in_a_finalizer() -> None:
    done = subprocess.run([sys.executable, "-c", LOST], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "margmap: interrupted\n")


@pytest.mark.usefixtures("heard")
class TestLimits:
    def test_no_kernel_is_begun_after_it(self) -> None:
        _numba()  # from then on numba tells when it compiles; another test may not have come before this one
        limits = Limits()
        changes: list[str] = []
        listening = on_compile(lambda: changes.append("started"), lambda: changes.append("ended"))

        def compiles() -> None:
            with event.trigger_event("numba:compile"):
                pytest.fail("it was compiled")

        with limits.catching_interrupts(), limits.not_counting_compilation(), listening:
            with event.trigger_event("numba:compile"):
                pass
            assert changes == ["started", "ended"]
            ctrl_c()
            with pytest.raises(Stopped, match="interrupted"):
                compiles()
        # Whoever else listens is not confused by a start that was refused.
        assert changes.count("started") == changes.count("ended")

    def test_stopped_before_any_kernel_there_is_no_state(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def compiles(*_args: object) -> None:
            ctrl_c()
            with event.trigger_event("numba:compile"):
                pass

        monkeypatch.setattr("margmap.solve.marginal_map.require_tractable", compiles)
        circuit = mm.load(CLINIC)
        assert isinstance(circuit, mm.Circuit)
        r = mm.marginal_map(circuit, None)
        assert (r.status, r.state, r.log_upper) == ("interrupted", None, float("inf"))
        with pytest.raises(mm.QueryError, match="no state to certify"):
            mm.certify(circuit, None, result=r)

    @pytest.mark.parametrize("became", [SystemError, None])
    def test_the_second_arrives_whatever_became_of_it(self, became: type[Exception] | None) -> None:
        """An exception that is lost, or turned into another one, is a KeyboardInterrupt in the end."""

        def work() -> None:
            with Limits().catching_interrupts():
                try:
                    ctrl_c()
                    ctrl_c()
                except KeyboardInterrupt:
                    if became is not None:
                        raise became("returned a result with an exception set") from None

        with pytest.raises(KeyboardInterrupt):
            work()


def test_the_command_line_leaves_at_once_while_kernels_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    class Left(BaseException):
        pass

    def leave() -> None:
        raise Left

    def interrupted(work: Callable[[], object]) -> None:
        with pytest.raises(Left), held():
            work()

    monkeypatch.setattr(_interrupts, "leave", leave)
    monkeypatch.setattr(_interrupts._mode, "leaving", True)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupted(ctrl_c)
        limits = Limits()
        compiling = event.trigger_event("numba:compile")  # as if another thread did
        with limits.catching_interrupts(), limits.not_counting_compilation(), compiling, pytest.raises(Left):
            ctrl_c()
        with pytest.raises(KeyboardInterrupt), _interrupts.staying(), held():
            ctrl_c()  # a batch has answers to keep
    finally:
        signal.signal(signal.SIGINT, before)
