"""Questions with one answer: likelihoods, marginals, posteriors, samples. The hard one is in :mod:`margmap.solve`."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import (
    GAUSSIAN,
    PRODUCT,
    SUM,
    Circuit,
    FloatArray,
    IntArray,
    LongArray,
    Name,
    Named,
    Variable,
)
from margmap.circuit.evidence import is_frame, is_series, shortened
from margmap.circuit.model import as_model
from margmap.circuit.observation import Between, Observation, Weights
from margmap.circuit.properties import require_tractable
from margmap.errors import ImpossibleEvidenceError, LimitError, QueryError
from margmap.foundation.frames import frame, pandas_for
from margmap.foundation.html import table
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import log_of, moved
from margmap.foundation.wording import did_you_mean
from margmap.inference.passes import edge_share, flows, log_values
from margmap.inference.pieces import pass_up
from margmap.inference.scaled import Scaled, require_within_reach, scaled
from margmap.inference.soft import conditioned_circuit
from margmap.inference.truncated import draw as draw_between
from margmap.inference.truncated import moments
from margmap.io.evidence_rows import read_rows
from margmap.network.network import Network
from margmap.network.virtual import with_virtual_evidence

Evidence = Mapping[Any, Observation]


class Posteriors(Mapping[Name, dict[int | str, float]]):
    """p(X = x | evidence) for every variable X that is not observed: name -> {state: probability}, read-only.

    A state goes by its name, or by its number where the variable has no state names. A continuous variable has its
    posterior mean and standard deviation, ``{"mean": ..., "deviation": ...}``. :meth:`array` gives the same numbers as
    an array. ``dict(posteriors)`` is made of plain Python values.
    """

    def __init__(self, variables: Sequence[Variable], arrays: Sequence[FloatArray]) -> None:
        self._variables = {variable.name: variable for variable in variables}
        self._arrays = {variable.name: np.array(array) for variable, array in zip(variables, arrays, strict=True)}
        for array in self._arrays.values():
            array.setflags(write=False)

    def array(self, name: Name) -> FloatArray:
        """The probabilities in the order of the variable's values; of a continuous one mean and standard deviation."""
        return self._arrays[self._key(name)]

    def __getitem__(self, name: Name) -> dict[int | str, float]:
        key = self._key(name)
        variable, numbers = self._variables[key], self._arrays[key].tolist()
        if variable.continuous:
            return dict(zip(("mean", "deviation"), numbers, strict=True))
        return {variable.label(x): p for x, p in enumerate(numbers)}

    def __iter__(self) -> Iterator[Name]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        shown = [f"{name!r}: {self[name]!r}" for name in list(self)[:12]]
        more = [f"... {len(self)} variables"] if len(self) > len(shown) else []
        return f"Posteriors({{{', '.join(shown + more)}}})"

    def _rows(self) -> list[tuple[Name, int | str, float]]:
        return [(name, state, p) for name in self for state, p in self[name].items()]

    def to_frame(self) -> Any:
        """A pandas frame with a row for each state: variable, state, probability.

        A continuous variable has two rows, with the ``mean`` and the ``deviation`` in place of a state's probability.
        """
        return frame(["variable", "state", "probability"], self._rows())

    def _repr_html_(self) -> str:
        title = f"Posteriors of {len(self)} variables"
        return table(("variable", "state", "probability"), self._rows(), title, most=60, bars={2: 1.0})

    def _key(self, name: Name) -> Name:
        """The name as the variable has it; "3" finds a variable named 3, as in evidence."""
        key = int(name) if isinstance(name, np.integer) else name
        if isinstance(key, int | str) and key in self._arrays:
            return key
        for other in self._arrays:
            if isinstance(key, str) and str(other) == key:
                return other
        near = did_you_mean(name, self._arrays)
        raise NoPosteriorError(f"no posterior of {name!r}: {near}it is observed, or no variable of the model")


class NoPosteriorError(QueryError, KeyError):
    """A variable that :class:`Posteriors` does not have; also a KeyError, so that it is a mapping like any other."""

    __str__ = Exception.__str__


def log_likelihood(model: object, rows: Any, *, max_edges: int | None = None) -> FloatArray:
    """The log probability (density) of each row; a missing entry is summed out.

    ``rows`` is an array or a list with one column a variable, in the order of ``model.variables``: values count from 0,
    and -1 or NaN is missing. Or it is a frame: its columns are found by their names, in any order, and a variable
    without a column is missing; state names are understood. A Series is a frame of one row.

    A complete row of a network is looked up in its tables. Where entries are missing the network is compiled, to at
    most ``max_edges`` edges.
    """
    model = as_model(model)
    codes, reals = _encode_frame(model, rows) if is_frame(rows) or is_series(rows) else _encode(model, rows)
    if isinstance(model, Circuit):
        return _log_values(model, codes, reals)
    from margmap.inference.networks import kept_circuit, log_products
    from margmap.network.compile import compile as compile_network

    cardinality = np.array([v.cardinality for v in model.variables], dtype=np.int32)
    complete = (codes < cardinality[:, None]).all(axis=0)
    out = np.empty(codes.shape[1])
    out[complete] = log_products(model, codes[:, complete])
    if not complete.all():
        try:
            circuit = kept_circuit(model, max_edges) or compile_network(model, max_edges=max_edges)
        except LimitError as error:
            raise LimitError(f"rows with missing entries need a circuit, but {error}; or ask log_marginal") from None
        out[~complete] = _log_values(circuit, np.ascontiguousarray(codes[:, ~complete]), reals)
    return out


def log_marginal(model: object, evidence: Evidence | None = None, *, max_edges: int | None = None) -> float:
    """log p(evidence), every other variable summed out; -inf where the evidence is impossible.

    A network is compiled once and kept if its circuit is small; otherwise its variables are eliminated for this
    evidence, within the tables that a circuit of ``max_edges`` edges may take. For a Markov network p is the product of
    its factors, not normalised: without evidence this is the log of its partition function.
    """
    model = as_model(model)
    return _log_p(model, model.observed(evidence), max_edges)


def log_conditional(
    model: object, target: Evidence, evidence: Evidence | None = None, *, max_edges: int | None = None
) -> float:
    """log p(target | evidence). Networks as in :func:`log_marginal`.

    A variable with a set of values or a likelihood as evidence may also be in the target.
    """
    model = as_model(model)
    asked, seen = model.observed(target), model.observed(evidence)
    both = dict(seen)
    for column, value in asked.items():
        if column in seen and not isinstance(seen[column], Weights):
            name = model.names[column]
            raise QueryError(f"variable {name!r} is both asked for and observed: drop it from one of the two")
        both[column] = _weights_of(model.variables[column], value).times(seen[column]) if column in seen else value
    given = _log_p(model, seen, max_edges)
    if given == -np.inf:
        raise _impossible()
    return _log_p(model, both, max_edges) - given


def posteriors(model: object, evidence: Evidence | None = None, *, max_edges: int | None = None) -> Posteriors:
    """p(X = x | evidence) for every variable and value, from one pass up and one down.

    A continuous variable gets its posterior mean and standard deviation; an observed one is left out, unless the
    evidence is a set of values, a likelihood or an interval, and so is one that no leaf of the circuit mentions.
    Networks as in :func:`log_marginal`.
    """
    model = as_model(model)
    found = _posterior_tables(model, model.observed(evidence), max_edges)
    return Posteriors([model.variables[column] for column in found], list(found.values()))


@overload
def sample(
    model: object,
    n: int,
    evidence: Evidence | None = ...,
    seed: int | None = ...,
    *,
    as_frame: Literal[False] = ...,
    max_edges: int | None = ...,
) -> NDArray[Any]: ...
@overload
def sample(
    model: object,
    n: int,
    evidence: Evidence | None = ...,
    seed: int | None = ...,
    *,
    as_frame: bool,
    max_edges: int | None = ...,
) -> Any: ...
def sample(
    model: object,
    n: int,
    evidence: Evidence | None = None,
    seed: int | None = None,
    *,
    as_frame: bool = False,
    max_edges: int | None = None,
) -> Any:
    """``n`` independent rows from p(. | evidence), one column a variable.

    An array of integers, of floats where the circuit has continuous variables; -1 stands for a variable that no leaf
    mentions. With ``as_frame`` a pandas frame with the names of variables and states.

    A Bayesian network without evidence is sampled from its tables. Otherwise a network's variables are eliminated,
    within the tables that a circuit of ``max_edges`` edges may take.
    """
    model = as_model(model)
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise QueryError(f"cannot draw {n!r} samples: give a whole number from 0")
    try:
        rng = np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise QueryError(f"seed={seed!r}: give a whole number from 0, or None") from None
    observed = model.observed(evidence)
    if isinstance(model, Circuit):
        drawn = _sample_circuit(model, int(n), observed, rng)
    else:
        from margmap.inference.networks import draw

        given = with_virtual_evidence(model, observed)
        assert isinstance(given.model, Network)
        drawn = draw(given.model, int(n), given.observed, rng, max_edges)[:, : len(model.variables)]
    return _frame(model.variables, drawn) if as_frame else drawn


def _weights_of(variable: Variable, value: int | Weights) -> Weights:
    """A single value of a discrete variable as weights; weights as they are."""
    if isinstance(value, Weights):
        return value
    return Weights(tuple(float(x == value) for x in range(variable.cardinality)))


def log_marginal_of(model: Circuit | Network, observed: Mapping[int, Any]) -> float:
    """The same as :func:`log_marginal` for evidence by columns, as :meth:`Named.observed` finds it."""
    return _log_p(model, observed, None)


def posterior_tables(model: Circuit | Network, observed: Mapping[int, Any]) -> dict[int, FloatArray]:
    """The same as :func:`posteriors` for evidence by columns, by column."""
    return _posterior_tables(model, observed, None)


def _posterior_tables(
    model: Circuit | Network, observed: Mapping[int, Any], max_edges: int | None
) -> dict[int, FloatArray]:
    if isinstance(model, Circuit):
        return _circuit_posteriors(model, observed)
    from margmap.inference.networks import kept_circuit, posterior_arrays

    circuit = kept_circuit(model, max_edges)
    if circuit is not None:
        return _circuit_posteriors(circuit, observed)
    given = with_virtual_evidence(model, observed)
    assert isinstance(given.model, Network)
    return posterior_arrays(given.model, given.observed, max_edges)


def _log_p(model: Circuit | Network, observed: Mapping[int, Any], max_edges: int | None) -> float:
    """log p of what :meth:`Named.observed` found."""
    if isinstance(model, Circuit):
        require_tractable(model)
        circuit, given = conditioned_circuit(model, observed)
        return log_value(circuit, *circuit.encoded(given.observed)) + given.log_factor
    from margmap.inference.networks import kept_circuit, log_evidence
    from margmap.network.relevance import NoStateError

    try:
        whole = kept_circuit(model, max_edges)
        if whole is not None:
            return _log_p(whole, observed, max_edges)
        given = with_virtual_evidence(model, observed)
        assert isinstance(given.model, Network)
        return log_evidence(given.model, given.observed, max_edges) + given.log_factor
    except NoStateError:
        return -np.inf


def _log_values(circuit: Circuit, codes: IntArray, reals: FloatArray) -> FloatArray:
    require_tractable(circuit)
    if reals.shape[1] > 0:
        for extreme in (np.fmin, np.fmax):
            require_within_reach(circuit, extreme.reduce(reals, axis=1))
    out = np.empty(codes.shape[1])
    log_values(scaled(circuit), codes, reals, out)
    return out


def _circuit_posteriors(whole: Circuit, observed: Mapping[int, Any]) -> dict[int, FloatArray]:
    require_tractable(whole)
    circuit, given = conditioned_circuit(whole, observed)
    s = scaled(circuit)
    value, exponent = _forward(circuit, *circuit.encoded(given.observed))
    flow = flows(s, value, exponent)
    first = np.zeros(len(circuit.variables) + 1, dtype=np.int64)
    np.cumsum([v.cardinality or 2 for v in circuit.variables], out=first[1:])
    mass = _leaf_posteriors(s, flow, first)
    columns = [i for i in sorted(circuit.mentioned) if i not in given.observed]
    arrays = [mass[first[i] : first[i + 1]] for i in columns]
    for place, i in enumerate(columns):
        if circuit.variables[i].continuous:
            arrays[place][1] = np.sqrt(arrays[place][1])
        elif whole.variables[i].continuous:
            arrays[place] = _within(whole, i, observed[i], flow)
    return dict(zip(columns, arrays, strict=True))


def _within(circuit: Circuit, column: int, interval: Between, flow: FloatArray) -> FloatArray:
    """Mean and deviation of a variable between two bounds: a mixture of what its leaves are there."""
    leaves = np.flatnonzero((circuit.var == column) & (flow > 0))
    place = circuit.param_start[leaves]
    mean, variance = moments(circuit.param[place], circuit.param[place + 1], interval.low, interval.high)
    share = flow[leaves] / flow[leaves].sum()
    middle = mean[0] + float(share @ (mean - mean[0]))
    return np.array([middle, np.sqrt(float(share @ (variance + (mean - middle) ** 2)))])


def _sample_circuit(whole: Circuit, n: int, observed: Mapping[int, Any], rng: np.random.Generator) -> NDArray[Any]:
    require_tractable(whole)
    circuit, given = conditioned_circuit(whole, observed)
    codes, reals = circuit.encoded(given.observed)
    value, exponent = _forward(circuit, codes, reals)
    drawn, real = np.tile(codes, (n, 1)), np.tile(reals, (n, 1))
    # A variable no leaf mentions has no distribution to draw from; its column says "missing".
    drawn[:, [v.cardinality == c for v, c in zip(circuit.variables, codes, strict=True)]] = -1
    _sample(scaled(circuit), value, exponent, int(rng.integers(1 << 62)), codes, drawn, real)
    for column, interval in observed.items():
        if isinstance(interval, Between) and column in circuit.mentioned:
            place = whole.param_start[real[:, column].astype(np.int64)]  # of the leaves that were drawn
            given_by = whole.param[place], whole.param[place + 1]
            real[:, column] = draw_between(*given_by, interval.low, interval.high, int(rng.integers(1 << 62)))
    continuous = np.array([v.continuous for v in whole.variables], dtype=np.bool_)
    return np.where(continuous, real, drawn) if continuous.any() else drawn


def _frame(variables: Sequence[Variable], drawn: NDArray[Any]) -> Any:
    """Rows as a pandas frame with the names of variables and states."""
    pandas = pandas_for("as_frame=True")
    columns: dict[Name, Any] = {}
    for variable, column in zip(variables, drawn.T, strict=True):
        if variable.states:
            columns[variable.name] = pandas.Categorical.from_codes(column.astype(np.int64), list(variable.states))
        elif variable.continuous:
            columns[variable.name] = column
        elif (column < 0).any():
            columns[variable.name] = np.where(column < 0, np.nan, column)
        else:
            columns[variable.name] = column.astype(np.int64)
    return pandas.DataFrame(columns, index=range(len(drawn)))


def log_value(circuit: Circuit, codes: IntArray, reals: FloatArray) -> float:
    """log p of one row of codes, as :meth:`Circuit.evidence_codes` makes them."""
    return float(log_of(*value_pair(circuit, codes, reals)))


def value_pair(circuit: Circuit, codes: IntArray, reals: FloatArray) -> tuple[float, float]:
    """p of one row of codes as a pair, see :mod:`margmap.foundation.pairs`."""
    require_within_reach(circuit, reals)
    if circuit.memory is not None:
        return circuit.memory.value_pair(codes, reals)
    s = scaled(circuit)
    value, exponent = np.empty(circuit.num_nodes), np.empty(circuit.num_nodes)
    pass_up(circuit, codes, reals, value, exponent)
    return float(value[-1] * s.total), float(exponent[-1] + s.total_exponent)


def _impossible() -> ImpossibleEvidenceError:
    return ImpossibleEvidenceError("the evidence has probability 0: nothing can be conditioned on it")


def _forward(circuit: Circuit, codes: IntArray, reals: FloatArray) -> tuple[FloatArray, FloatArray]:
    require_within_reach(circuit, reals)
    if circuit.memory is not None:
        value, exponent = circuit.memory.values(codes, reals)
    else:
        value, exponent = np.empty(circuit.num_nodes), np.empty(circuit.num_nodes)
        pass_up(circuit, codes, reals, value, exponent)
    if value[-1] <= 0:
        raise _impossible()
    return value, exponent


def _encode_frame(model: Named, frame: Any) -> tuple[IntArray, FloatArray]:
    """The same for a frame: each different entry of a column is understood once, as evidence is."""
    if is_series(frame):
        frame = frame.to_frame().T
    columns = read_rows(model, frame).columns
    cardinality = np.array([v.cardinality for v in model.variables], dtype=np.int32)
    codes = np.tile(cardinality[:, None], (1, len(frame)))
    reals = np.full((len(cardinality), len(frame) if (cardinality == 0).any() else 0), np.nan)
    for place, i in enumerate(columns):
        known: dict[Any, float] = {}
        for row, cell in enumerate(np.asarray(frame[frame.columns[place]], dtype=object).tolist()):
            key = (type(cell), cell) if isinstance(cell, Hashable) else id(cell)
            number = known.get(key)
            if number is None:
                number = known[key] = _entry(model, i, cell, row)
            if cardinality[i] == 0:
                reals[i, row] = number
            elif number >= 0:
                codes[i, row] = number
    return codes, reals


def _entry(model: Named, column: int, cell: Any, row: int) -> float:
    """The value that a cell of a frame means; if it is missing NaN, or -1 for a discrete variable."""
    variable = model.variables[column]
    try:
        found = model.observed({variable: cell}, table=True)
    except QueryError as error:
        raise QueryError(f"row index {row} (counted from 0): {error}") from None
    missing: float = np.nan if variable.continuous else -1
    value = found.get(column, missing)
    if isinstance(value, Weights | Between):
        raise QueryError(
            f"row index {row} (counted from 0), variable {variable.name!r}: {shortened(cell)} is not a single value: "
            "ask log_marginal for sets, likelihoods and intervals"
        )
    return float(value)


def _encode(model: Named, rows: Any) -> tuple[IntArray, FloatArray]:
    """Rows as columns of codes and of reals, with every entry checked."""
    try:
        given = np.asarray(rows)
    except ValueError:
        raise QueryError("the rows do not all have the same length") from None
    if given.dtype == object or given.dtype.kind not in "biuf":
        raise QueryError("rows must be numbers: values from 0, -1 or NaN where missing; a frame may have state names")
    data = np.atleast_2d(given)
    if data.ndim != 2 or data.shape[1] != len(model.variables):
        raise QueryError(
            f"rows have shape {data.shape}, but the {model._what} has {len(model.variables)} variables: one column each"
        )
    cardinality = np.array([v.cardinality for v in model.variables], dtype=np.int32)
    codes = np.tile(cardinality[:, None], (1, data.shape[0]))
    reals = np.full((len(cardinality), data.shape[0] if (cardinality == 0).any() else 0), np.nan)
    for i, variable in enumerate(model.variables):
        column = data[:, i]
        if variable.continuous:
            reals[i] = column
            if np.isinf(reals[i]).any():
                raise _bad_entry(variable.name, np.isinf(reals[i]), column, "is not finite")
            continue
        missing = (column == -1) | (np.isnan(column) if data.dtype.kind == "f" else False)
        bad = ~missing & ~((column >= 0) & (column < variable.cardinality) & (column == np.floor(column)))
        if bad.any():
            raise _bad_entry(variable.name, bad, column, f"is not a value from 0 to {variable.cardinality - 1}")
        codes[i, ~missing] = column[~missing]
    return codes, reals


def _bad_entry(name: Name, bad: NDArray[np.bool_], column: NDArray[Any], why: str) -> QueryError:
    row = int(np.flatnonzero(bad)[0])
    return QueryError(f"row index {row} (counted from 0), variable {name!r}: {column[row]} {why}")


@kernel
def _leaf_posteriors(s: Scaled, flow: FloatArray, first: LongArray) -> FloatArray:
    """For each variable the probability of every value; for a continuous one its mean and variance.

    The means of a variable's leaves are taken relative to that of its first leaf, and squares relative to the mean of
    all: nothing large is subtracted from something large.
    """
    mass = np.zeros(first[-1])
    origin, weight, shift = np.full(first.size - 1, np.nan), np.zeros(first.size - 1), np.zeros(first.size - 1)
    for n in range(s.kind.size):
        if flow[n] > 0 and s.kind[n] == GAUSSIAN:
            v, mean = s.var[n], s.table[s.table_start[n]]
            if np.isnan(origin[v]):
                origin[v] = mean
            weight[v] += flow[n]
            shift[v] += flow[n] * (mean - origin[v])
    for v in range(weight.size):
        if weight[v] > 0:
            shift[v] /= weight[v]
            mass[first[v]] = origin[v] + shift[v]
    for n in range(s.kind.size):
        if flow[n] == 0 or s.kind[n] >= PRODUCT:
            continue
        v = s.var[n]
        t, at = s.table_start[n], first[v]
        if s.kind[n] == GAUSSIAN:
            away, deviation = s.table[t] - origin[v] - shift[v], s.table[t + 1]
            mass[at + 1] += flow[n] / weight[v] * (away * away + deviation * deviation)
        else:
            last = s.table_start[n + 1] - 1
            for x in range(last - t):
                mass[at + x] += moved(flow[n] * s.table[t + x] / s.table[last], s.table_shift[t + x])
    return mass


@kernel
def _sample(
    s: Scaled,
    value: FloatArray,
    exponent: FloatArray,
    seed: int,
    codes: IntArray,
    drawn: NDArray[np.int32],
    real: FloatArray,
) -> None:
    np.random.seed(seed % 4294967296)  # noqa: NPY002 - the kernel's own generator, not numpy's global one
    stack = np.zeros(s.kind.size, dtype=np.int32)
    for row in range(drawn.shape[0]):
        stack[0] = s.kind.size - 1
        height = 1
        while height > 0:
            height -= 1
            n = stack[height]
            if s.kind[n] == PRODUCT:
                for e in range(s.start[n], s.start[n + 1]):
                    stack[height] = s.child[e]
                    height += 1
            elif s.kind[n] == SUM:
                left = np.random.random()  # noqa: NPY002
                chosen = -1
                for e in range(s.start[n], s.start[n + 1]):
                    part = edge_share(s, n, e, value, exponent)
                    if part > 0:
                        chosen = s.child[e]
                        left -= part
                        if left < 0:
                            break
                stack[height] = chosen
                height += 1
            elif s.kind[n] == GAUSSIAN:
                if np.isnan(real[row, s.var[n]]):
                    t = s.table_start[n]
                    real[row, s.var[n]] = s.table[t] + s.table[t + 1] * np.random.standard_normal()  # noqa: NPY002
            elif codes[s.var[n]] == s.table_start[n + 1] - s.table_start[n] - 1:
                real[row, s.var[n]] = n  # which leaf it was, for a continuous variable between two bounds
                t, last = s.table_start[n], s.table_start[n + 1] - 1
                left = np.random.random() * s.table[last]  # noqa: NPY002
                for x in range(last - t):
                    part = moved(s.table[t + x], s.table_shift[t + x])
                    if part > 0:
                        drawn[row, s.var[n]] = x
                        left -= part
                        if left < 0:
                            break
