"""How kernels are run: interpreted by Python, or compiled by numba. One place for numba, its flags and its cache.

A kernel is written once and runs in two *tiers*. Machine code is a few hundred times faster, but to make it takes a
second a kernel, and numba alone takes half a second to import. So by default (``MARGMAP_TIER=auto``) a process begins
by interpreting, and numba is not imported; it goes over to machine code

* when it has interpreted for a moment and the kernel's machine code is in the cache, where :mod:`.background` puts it,
* or when it has interpreted, or is about to interpret, for so long that compiling pays.

``MARGMAP_TIER=interpret`` and ``MARGMAP_TIER=compile`` force the choice. Where numba is not installed, kernels are
interpreted, and a warning says so once.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import math
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast, overload

import numpy as np

from margmap.errors import MargmapError, MissingExtraError
from margmap.foundation import background
from margmap.foundation.interrupts import held

F = TypeVar("F", bound=Callable[..., Any])

#: How many times slower a kernel is when it is interpreted, roughly.
SLOWER = 300

#: Seconds of interpreting that are less than loading machine code takes, and how long importing numba takes besides.
MOMENT, START = 0.3, 0.6

#: Seconds of interpreting after which compiling pays, and the same while another process compiles already. Like all
#: times of interpreting they are those of the processor: a busy machine is no reason to compile.
PATIENCE, PATIENCE_BEHIND = 6.0, 30.0

#: Seconds for which a kernel that another process compiles is waited for.
LONGEST_WAIT = 20.0

# After so many seconds of compiling one line says so, and every so many seconds another.
_TELL_FROM, _TELL_EVERY = 1.0, 10.0

# Seconds that interpreting takes for each entry of a kernel's arrays, roughly.
_SECONDS_PER_ENTRY = 5e-7

# What numpy does about errors of arithmetic while it interprets: nothing, as machine code.
_ERRORS: Any = {"all": "ignore"}

_TIERS = ("auto", "interpret", "compile")
_NO_NUMBA = "numba is not installed, so margmap interprets what it would compile, some hundred times slower"


class _State:
    """What this process has done so far."""

    #: Seconds of the processor spent interpreting, and how many calls that were.
    interpreted, calls = 0.0, 0
    #: Whether compiling is to be waited for from now on.
    compiling = False
    #: Since when, in seconds of the processor, each thread that interprets has done so.
    since: dict[int, float] = {}  # noqa: RUF012
    #: The tier of :func:`forced`.
    forced: str | None = None
    #: Every kernel of the modules imported so far.
    kernels: list[Kernel] = []  # noqa: RUF012
    #: Where :func:`listed_calls` notes what is called, by kernel and types.
    listed: dict[tuple[Kernel, tuple[Any, ...]], None] | None = None
    lock = threading.RLock()


_state = _State()


@overload
def kernel(function: F) -> F: ...


@overload
def kernel(
    *,
    work: Callable[..., float] | None = None,
    interpreted: Callable[..., Any] | None = None,
    inline: bool = False,
    any_order: bool = False,
) -> Callable[[F], F]: ...


def kernel(
    function: F | None = None,
    *,
    work: Callable[..., float] | None = None,
    interpreted: Callable[..., Any] | None = None,
    inline: bool = False,
    any_order: bool = False,
) -> F | Callable[[F], F]:
    """Make ``function`` a kernel: it is interpreted, or compiled on first use and its machine code kept on disk.

    It must be in the part of Python that numba compiles. ``work`` tells from the arguments how many steps a call takes,
    where that is more than some for each entry of its arrays. ``interpreted`` does the same with functions of numpy
    that would take long to compile. ``inline`` is for a short one that takes arrays and is called in an innermost loop:
    its machine code is put where it is called, since handing over arrays takes as long as some tens of additions.
    ``any_order`` lets the compiler add in an order of its own, the same in every call: a long sum then takes several
    numbers at a time.

    Ctrl-C waits while numba looks at a kernel's arguments, compiles it or loads it, and takes effect when that is done.
    """
    if function is not None:
        return cast(F, Kernel(function))
    return lambda function: cast(F, Kernel(function, work, interpreted, inline, any_order))


class Kernel:
    """A function in two tiers. Calls between kernels stay in the tier of the first one."""

    def __init__(
        self,
        function: Callable[..., Any],
        work: Callable[..., float] | None = None,
        interpreted: Callable[..., Any] | None = None,
        inline: bool = False,
        any_order: bool = False,
    ) -> None:
        functools.update_wrapper(self, function)
        if interpreted is not None:
            self.__dict__["interpreted"] = interpreted
        self.py_func = cast(FunctionType, function)
        self._work = work
        #: What numba is told beyond what it is told about every kernel.
        self.options = ({"forceinline": True} if inline else {}) | ({"fastmath": {"reassoc"}} if any_order else {})
        #: The dispatcher of numba, once calls go there.
        self._compiled: Any = None
        _state.kernels.append(self)

    def __call__(self, *args: Any) -> Any:
        """Run in the tier that pays."""
        compiled = self._compiled
        if compiled is None:
            if not self._goes_over(args):
                return self._interpret(args)
            compiled = self._compiled = self.dispatcher
        try:
            return compiled(*args)
        except _NotYet:
            return self._interpret(args)

    def __repr__(self) -> str:
        return f"<kernel {self.py_func.__module__}.{self.py_func.__qualname__}>"

    @cached_property
    def stamp(self) -> _Stamp:
        """What its machine code depends on."""
        return _Stamp(self.py_func, repr(self.options) if self.options else "")

    @cached_property
    def interpreted(self) -> Callable[..., Any]:
        """The plain function, in which all kernels that it calls are plain functions too."""
        function, known = self.py_func, self.py_func.__globals__
        names = {name for code in _codes(function.__code__) for name in code.co_names} & known.keys()
        places: dict[str, Any] = {"__builtins__": known["__builtins__"], "__name__": known["__name__"]}
        plain = FunctionType(function.__code__, places, function.__name__, function.__defaults__, function.__closure__)
        self.__dict__["interpreted"] = plain  # now, since it may call itself
        for name in names:
            value = known[name]
            places[name] = value.interpreted if isinstance(value, Kernel) else value
            if value is math:
                places[name] = _math()
            elif value is np and any("random" in code.co_names for code in _codes(function.__code__)):
                places[name] = _numpy()
        return plain

    @cached_property
    def dispatcher(self) -> Any:
        """The dispatcher of numba, made on first use."""
        with _state.lock:
            made = self.__dict__.get("dispatcher")
            return _dispatcher(self) if made is None else made

    @property
    def stats(self) -> Any:
        """What numba says of its cache."""
        return self.dispatcher.stats

    def _goes_over(self, args: tuple[Any, ...]) -> bool:
        """Whether a call is for numba's dispatcher, which may still have no code for it."""
        tier = chosen_tier()
        if tier != "auto":
            return tier == "compile"
        if _state.compiling:
            return True
        soon = _state.interpreted + self._seconds(args)
        if soon < (MOMENT if _active() else MOMENT + START):
            return False
        if not available():
            _say_that_there_is_no_numba()
            return False
        return _active() or background.is_warm() or soon > _patience()

    def _seconds(self, args: tuple[Any, ...]) -> float:
        """How long it would take, roughly, to interpret a call."""
        return _SECONDS_PER_ENTRY * (_entries(args) if self._work is None else self._work(*args))

    def _waits(self, args: tuple[Any, ...]) -> bool:
        """Whether a call for which there is no machine code yet is worth the compilation."""
        if chosen_tier() == "compile" or _state.compiling:
            return True
        return _state.interpreted + self._seconds(args) > _patience()

    @property
    def place(self) -> str:
        """Its module in this package, and its name."""
        return f"{self.py_func.__module__}.{self.py_func.__qualname__}".removeprefix("margmap.")

    def parts(self) -> dict[str, int]:
        """The kernel and all that it calls, and bytes of the byte code of each: about as long as compiling it takes."""
        found: dict[str, int] = {}
        todo = [self]
        while todo:
            kernel = todo.pop()
            if kernel.place not in found:
                function, codes = kernel.py_func, [*_codes(kernel.py_func.__code__)]
                found[kernel.place] = sum(len(code.co_code) for code in codes)
                called = [function.__globals__.get(name) for code in codes for name in code.co_names]
                todo += [one for one in called if isinstance(one, Kernel)]
        return found

    def _interpret(self, args: tuple[Any, ...]) -> Any:
        if _state.listed is not None:
            _state.listed[self, tuple(map(_numba().typeof, args))] = None
        begun, thread = time.process_time(), threading.get_ident()
        outermost = _state.since.setdefault(thread, begun) == begun
        try:
            with np.errstate(**_ERRORS):  # as in machine code: what is too large is infinite, hashes wrap around
                return _plain(self.interpreted(*args))
        finally:
            if outermost:
                del _state.since[thread]
                _state.interpreted += time.process_time() - begun
                _state.calls += 1


class _NotYet(Exception):
    """There is no machine code for these arguments, and it does not pay yet to make it."""


def chosen_tier() -> str:
    """The environment's ``MARGMAP_TIER``: ``auto`` (the default), ``interpret`` or ``compile``."""
    tier = _state.forced or os.environ.get("MARGMAP_TIER", "auto")
    if tier not in _TIERS:
        raise MargmapError(f"MARGMAP_TIER={tier}: set it to {', '.join(_TIERS[:-1])} or {_TIERS[-1]}")
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("0", ""):
        return "interpret"
    if tier == "compile" and not available():
        raise MissingExtraError("MARGMAP_TIER=compile needs numba: pip install numba, or leave MARGMAP_TIER unset")
    return tier


@contextmanager
def forced(tier: str) -> Iterator[None]:
    """Inside, kernels are in this tier, whatever ``MARGMAP_TIER`` says and whatever has been compiled."""
    before = [kernel._compiled for kernel in _state.kernels], _state.forced
    for kernel in _state.kernels:
        kernel._compiled = None
    _state.forced = tier
    try:
        yield
    finally:
        _state.forced = before[1]
        for kernel, compiled in zip(_state.kernels, before[0], strict=False):
            kernel._compiled = compiled


@contextmanager
def listed_calls() -> Iterator[dict[tuple[Kernel, tuple[Any, ...]], None]]:
    """Inside, kernels are interpreted, and each that is called is listed with numba's types of its arguments."""
    with forced("interpret"):
        _state.listed = {}
        try:
            yield _state.listed
        finally:
            _state.listed = None


@functools.cache
def available() -> bool:
    """Whether numba is installed."""
    try:
        return importlib.util.find_spec("numba") is not None
    except (ImportError, ValueError):
        return False


def interprets() -> bool:
    """Whether kernels are interpreted for now, at least some of them."""
    tier = chosen_tier()
    if tier == "auto":
        return not _state.compiling and not (_active() and background.is_warm())
    return tier == "interpret"


def interpreted_calls() -> int:
    """How many calls of kernels have been interpreted in this process so far."""
    return _state.calls


def tier_since(calls: int) -> str:
    """The tier of the work since there were so many interpreted calls."""
    if _state.calls == calls:
        return "compiled"
    return "interpreted, then compiled" if _active() and chosen_tier() != "interpret" else "interpreted"


def interpreting_too_long(thread: threading.Thread) -> bool:
    """Whether a thread has interpreted one kernel for so long that it would better be stopped and compiled."""
    since = _state.since.get(thread.ident or 0)
    if since is None or chosen_tier() != "auto" or not available():
        return False
    return _state.interpreted + time.process_time() - since > PATIENCE


def compile_from_now_on() -> None:
    """Interpret no more: there is work under way that is too large for it."""
    _state.compiling = True


def _patience() -> float:
    return PATIENCE_BEHIND if background.is_under_way() else PATIENCE


def _entries(args: tuple[Any, ...]) -> int:
    return sum(
        arg.size if isinstance(arg, np.ndarray) else _entries(arg)
        for arg in args
        if isinstance(arg, np.ndarray | tuple)
    )


def _plain(result: Any) -> Any:
    """A result as machine code gives it: numbers of Python, not of numpy."""
    if isinstance(result, np.generic):
        return result.item()
    return tuple(map(_plain, result)) if type(result) is tuple else result


@functools.cache
def _numpy() -> ModuleType:
    """Numpy with a random generator of its own, as kernels have: the global one is the user's."""
    module = ModuleType("numpy")
    vars(module).update(vars(np), random=np.random.RandomState())
    return module


@functools.cache
def _math() -> ModuleType:
    """The module math as it is in machine code: it raises nothing, and takes whole numbers of numpy."""

    def logarithm(function: Callable[[float], float]) -> Callable[[float], float]:
        def log(x: float) -> float:
            return function(x) if x > 0 else -math.inf if x == 0 else math.nan

        return log

    def exp(x: float) -> float:
        try:
            return math.exp(x)
        except OverflowError:
            return math.inf

    def ldexp(x: float, shift: int) -> float:
        try:
            return math.ldexp(x, int(shift))
        except OverflowError:
            return math.copysign(math.inf, x)

    module = ModuleType("math")
    logarithms = {function.__name__: logarithm(function) for function in (math.log, math.log2, math.log10)}
    vars(module).update(vars(math), exp=exp, ldexp=ldexp, **logarithms)
    return module


@functools.cache  # once
def _say_that_there_is_no_numba() -> None:
    warnings.warn(f"{_NO_NUMBA}: pip install numba", RuntimeWarning, stacklevel=4)


def _active() -> bool:
    """Whether numba has been imported for kernels."""
    return _numba.cache_info().currsize > 0


@functools.cache
def _numba() -> Any:
    """The module numba, which learns here what a kernel is."""
    import numba
    from numba.core import event
    from numba.extending import typeof_impl

    @typeof_impl.register(Kernel)
    def typeof_kernel(value: Kernel, _context: Any) -> Any:
        return numba.types.Dispatcher(value.dispatcher)

    class Forward(event.Listener):
        def on_start(self, _event: Any) -> None:
            _listeners.start()

        def on_end(self, _event: Any) -> None:
            _listeners.end()

    event.register("numba:compile", Forward())  # type: ignore[no-untyped-call]
    return numba


def _dispatcher(kernel: Kernel) -> Any:
    """Numba's dispatcher for a kernel.

    Numba trusts what it kept as long as the function's own file is the same, although the machine code has that of
    other files in it. Its stamp of the file is replaced by one of all that went in. Numba also lets two processes write
    over each other's code, and lets errors of the disk through: :mod:`.background` knows better. It would compile a
    kernel once more for every whole number that a call has written out, and for callers in C, whom kernels do not have.
    """
    options = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, **kernel.options}
    njit = functools.partial(_numba().njit, **options)
    try:
        compiled: Any = njit(cache=True)(kernel.py_func)
    except RuntimeError:  # there is no folder that can be written to
        compiled = njit()(kernel.py_func)
    try:
        # What numba's compiled part calls Python for.
        compiled._compile_for_args = _uninterrupted(_if_it_pays(kernel, compiled, compiled._compile_for_args))
        compiled.typeof_pyval = _uninterrupted(compiled.typeof_pyval)
        compiled.compile = _once(compiled, compiled.compile)
        compiled.get_call_template = _of_any_number(compiled.get_call_template)
        cache, index = compiled._cache, compiled._cache._cache_file
        index._source_stamp = kernel.stamp
        # The stamp is of what the kernel is, so it need not be compiled again because it stands on another line.
        index._index_path = re.sub(r"-\d+(\.py\w+\.nbi)$", r"\1", index._index_path)
        index._data_name_pattern = re.sub(r"-\d+(\.py)", r"\1", index._data_name_pattern)
        index._load_index = _readable(index._load_index, {})
        index.save = functools.partial(_save, index)
        cache.load_overload = _readable(cache.load_overload, None)
        cache.save_overload = _readable(cache.save_overload, None)
    except AttributeError:  # another numba, or a cache that there is not: its own must do
        pass
    return compiled


def _if_it_pays(kernel: Kernel, dispatcher: Any, compile_for_args: Callable[..., Any]) -> Callable[..., Any]:
    """Load machine code for a call of new types, or compile it if that pays; otherwise the call is interpreted."""

    @functools.wraps(compile_for_args)
    def compiled_if_it_pays(*args: Any, **kwargs: Any) -> Any:
        types = tuple(dispatcher.typeof_pyval(arg) for arg in args)
        if not kernel._waits(args) and not _is_kept(dispatcher, types):
            raise _NotYet
        return compile_for_args(*args, **kwargs)

    return compiled_if_it_pays


def _of_any_number(template: Callable[..., Any]) -> Callable[..., Any]:
    """A call from another kernel: a number that is written out there is typed as any number of its kind."""
    unliteral = _numba().types.unliteral

    @functools.wraps(template)
    def of_any_number(args: Any, kws: Any) -> Any:
        return template(tuple(map(unliteral, args)), {name: unliteral(kind) for name, kind in kws.items()})

    return of_any_number


def _is_kept(dispatcher: Any, types: tuple[Any, ...]) -> bool:
    """Whether the cache has machine code for arguments of these types."""
    try:
        cache = dispatcher._cache
        return cache._index_key(types, dispatcher.targetctx.codegen()) in cache._cache_file._load_index()
    except AttributeError:  # another numba: whether it has, numba will see
        return True


def _once(dispatcher: Any, compiler: Callable[..., Any]) -> Callable[..., Any]:
    """Let one process of a machine compile a kernel while the others wait, for a while, and then load the code."""

    @functools.wraps(compiler)
    def compiled_once(types: Any) -> Any:
        if tuple(types) in dispatcher.overloads or _is_kept(dispatcher, tuple(types)):
            return compiler(types)
        # First the lock within this process: another thread must not wait for a file while it has the compiler's lock.
        with _state.lock, background.locked(f"{dispatcher._cache._cache_file._index_path}.lock", LONGEST_WAIT):
            return compiler(types)

    return compiled_once


def _save(index: Any, key: Any, data: Any) -> None:
    """Add machine code to a kernel's index: the code first, under a name of its own, so that nothing half is read."""
    digest = hashlib.sha256(repr((index._source_stamp._digest, key)).encode()).hexdigest()
    with background.locked(os.path.join(index._cache_path, "margmap.lock")):
        kept = {**index._load_index(), key: index._data_name(int(digest[:12], 16))}
        index._save_data(kept[key], data)
        index._save_index(kept)
        first, last = index._data_name_pattern.split("{number:d}")
        for name in os.listdir(index._cache_path):  # code of what the kernel was before
            if name.startswith(first) and name.endswith(last) and name not in kept.values():
                os.unlink(os.path.join(index._cache_path, name))


def _uninterrupted(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def uninterrupted(*args: Any, **kwargs: Any) -> Any:
        with held():
            return function(*args, **kwargs)

    return uninterrupted


def _readable(function: Callable[..., Any], otherwise: Any) -> Callable[..., Any]:
    """What cannot be read counts as absent (torn, or of another version), and what cannot be written is not kept."""

    @functools.wraps(function)
    def read(*args: Any) -> Any:
        try:
            return function(*args)
        except Exception:
            return otherwise

    return read


class _Stamp:
    """Equal to what a kernel's stamp was saved as if the kernel, and all that it uses, are as they were then.

    Worked out when first compared or saved, because a kernel may call one that is defined after it.
    """

    def __init__(self, function: FunctionType, options: str) -> None:
        self._function, self._options = function, options

    def __eq__(self, other: object) -> bool:
        return self._digest == (other._digest if isinstance(other, _Stamp) else other)

    __hash__ = None  # type: ignore[assignment]  # as long as its value is not known

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (self._digest,)

    @cached_property
    def _digest(self) -> str:
        inputs, seen, todo = set(), {self._function}, [self]
        while todo:
            stamp = todo.pop()
            function = stamp._function
            inputs.add((function.__module__, function.__qualname__, _content(function.__code__) + stamp._options))
            for name, value in stamp._globals():
                if isinstance(value, int | float | str | tuple):
                    inputs.add((function.__module__, name, repr(value)))
                elif isinstance(value, np.ndarray):
                    inputs.add((function.__module__, name, f"{value.dtype}{value.shape}{value.tobytes().hex()}"))
                elif isinstance(value, type) and hasattr(value, "_fields"):
                    inputs.add((function.__module__, name, _fields_of(value)))
                elif isinstance(value, Kernel) and value.py_func not in seen:
                    seen.add(value.py_func)
                    todo.append(value.stamp)
        return hashlib.sha256(repr(sorted(inputs)).encode()).hexdigest()

    def _globals(self) -> Iterator[tuple[str, Any]]:
        """Every global that the function mentions, as a name, as a module's name, or as the type of an argument."""
        hints = self._function.__annotations__.values()
        yield from ((hint.__name__, hint) for hint in hints if isinstance(hint, type))
        names = {str(hint) for hint in hints}
        for code in _codes(self._function.__code__):
            names.update(code.co_names)
        known = self._function.__globals__
        package = known["__name__"].partition(".")[0]
        todo, seen = [known], {id(known)}
        while todo:
            place = todo.pop()
            for name in names & place.keys():
                value = place[name]
                # Of others' modules only what the kernel names itself; of its own package the modules in them too.
                own = isinstance(value, ModuleType) and (place is known or value.__name__.startswith(package))
                if own and id(vars(value)) not in seen:
                    seen.add(id(vars(value)))
                    todo.append(vars(value))
                yield name, value


def _fields_of(record: Any) -> str:
    """The names and types of a named tuple's fields, those of tuples within it too."""
    known, hints = vars(sys.modules[record.__module__]), getattr(record, "__annotations__", {})
    shown = []
    for field in record._fields:
        hint = hints.get(field)
        inner = hint if isinstance(hint, type) else known.get(str(hint))
        shown.append((field, _fields_of(inner) if hasattr(inner, "_fields") else str(hint)))
    return repr(shown)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a function and of those inside of it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _content(code: CodeType) -> str:
    """What a function does, wherever its file is and whatever stands around it."""
    parts = []
    for one in _codes(code):
        constants = [constant for constant in one.co_consts if not isinstance(constant, CodeType)]
        names = (one.co_names, one.co_varnames, one.co_freevars, one.co_cellvars, one.co_argcount)
        parts.append((one.co_code.hex(), [*map(repr, constants)], names, getattr(one, "co_exceptiontable", b"").hex()))
    return repr(parts)


class _Listeners:
    """Those who want to know when a real compilation (not a load from disk) begins, and when the last one ends."""

    def __init__(self) -> None:
        self.registered: list[_Listener] = []
        #: How many kernels this process has compiled.
        self.compiled = 0

    def start(self) -> None:
        for listener in () if _beside.get() else [*self.registered]:
            listener.start()

    def end(self) -> None:
        self.compiled += 1
        for listener in () if _beside.get() else [*self.registered]:
            listener.end()


class _Listener:
    """One of them, as long as a block lasts."""

    def __init__(self, started: Callable[[], None], ended: Callable[[], None]) -> None:
        self._started, self._ended, self._depth = started, ended, 0

    def __enter__(self) -> None:
        _listeners.registered.append(self)

    def __exit__(self, *_: object) -> None:
        _listeners.registered.remove(self)

    def start(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._started()

    def end(self) -> None:
        if self._depth == 0:  # another listener refused the start before this one heard of it
            return
        self._depth -= 1
        if self._depth == 0:
            self._ended()


_listeners = _Listeners()

# Whether this thread works beside another one.
_beside = ContextVar("beside", default=False)


@contextmanager
def working_beside() -> Iterator[None]:
    """Inside, this thread works beside another that does not wait for it: nobody is told when it compiles.

    Otherwise the other thread's clock, which does not count compilation, would stand still while that thread goes on.
    """
    token = _beside.set(True)
    try:
        yield
    finally:
        _beside.reset(token)


def on_compile(started: Callable[[], None], ended: Callable[[], None]) -> AbstractContextManager[None]:
    """Report the compilation of kernels inside the block, for a spinner that says why the first run takes longer."""
    return _Listener(started, ended)


def compiled_kernels() -> int:
    """How many kernels this process has compiled, one for each set of types."""
    return _listeners.compiled


#: So many compilations the first question on a PSDD takes if nothing is cached (counted on nltcs, numba 0.68).
FIRST_QUESTION = 160


def all_kept() -> bool:
    """Whether all that this process has compiled or loaded is in the cache, where other processes find it."""
    made = [kernel.dispatcher for kernel in _state.kernels if "dispatcher" in kernel.__dict__]
    if any(getattr(getattr(dispatcher, "_cache", made), "cache_path", "") is None for dispatcher in made):
        return False  # numba found no folder that it could write to
    return all(_is_kept(dispatcher, types) for dispatcher in made for types in dispatcher.overloads)


def compiled_so_far() -> str:
    """How many kernels have been compiled, for those who wait; each once for each kind of arguments it gets."""
    return f"{_listeners.compiled} done, of about {FIRST_QUESTION} that a first question takes"


class _Teller:
    """Says on stderr that compiling is being waited for, and how far it is, where nobody else does."""

    #: How many spinners, which say so themselves, turn now.
    spinners = 0

    def __init__(self) -> None:
        self._since, self._told = 0.0, -_TELL_EVERY

    def started(self) -> None:
        """A compilation begins."""
        now = time.monotonic()
        self._since = self._since or now
        waited = now - self._since
        if (
            self.spinners
            or background.is_worker()
            or waited < _TELL_FROM
            or waited < self._told + _TELL_EVERY
            or chosen_tier() != "auto"
        ):
            return
        self._told = waited
        with suppress(OSError, ValueError):
            said = f"margmap: compiling kernels, which happens once on a machine: {compiled_so_far()}"
            print(said, file=sys.stderr, flush=True)


_teller = _Teller()
_listeners.registered.append(_Listener(_teller.started, lambda: None))


@contextmanager
def telling_elsewhere() -> Iterator[None]:
    """Inside, somebody else says that kernels are being compiled."""
    _teller.spinners += 1
    try:
        yield
    finally:
        _teller.spinners -= 1
