"""All that knows the kinds of leaves: their numbers, their parameters, what can be wrong with them, their tables.

A new kind of leaf is a number here, its flaws in :func:`leaf_flaws` and its table in ``_fill_tables``; what has no
table (the Gaussian) is also evaluated in :mod:`margmap.inference.passes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from margmap.circuit.arrays import FloatArray, KindArray, LongArray
from margmap.errors import LimitError
from margmap.foundation.jit import kernel

if TYPE_CHECKING:
    from margmap.circuit.circuit import Circuit

# Node kinds. Everything below PRODUCT is a leaf. Parameters of each leaf, in `Circuit.param`:
INDICATOR = 0  # value
BERNOULLI = 1  # log p(1), log p(0)
CATEGORICAL = 2  # log p(0), log p(1), ...
BINOMIAL = 3  # number of trials, log p, log (1 - p)
GAUSSIAN = 4  # mean, standard deviation
PRODUCT = 5
SUM = 6
KIND_NAMES = ("indicator", "bernoulli", "categorical", "binomial", "gaussian", "product", "sum")

# The tables of all leaves may have this many entries (1 GiB), or as many as a large circuit has parameters. A few lines
# of a file can ask for more: an indicator of a variable with a million values has a million entries.
MOST_ENTRIES = 1 << 27


def node_name(circuit: Circuit, node: int) -> str:
    """A node in a message."""
    return f"node {node} ({KIND_NAMES[circuit.kind[node]]})"


def leaf_flaws(
    kind: KindArray, cardinality: LongArray, param_start: LongArray, param: FloatArray
) -> Iterator[tuple[NDArray[np.bool_], str]]:
    """Marks of the nodes with bad parameters, and what is wrong with them, for each flaw that a leaf can have.

    ``cardinality`` is that of each leaf's variable; 0 is continuous.
    """
    leaf = kind < PRODUCT
    yield leaf & (kind != GAUSSIAN) & (cardinality == 0), "a continuous variable needs a Gaussian leaf"
    yield (kind == GAUSSIAN) & (cardinality != 0), "a discrete variable cannot have a Gaussian leaf"
    yield (kind == BERNOULLI) & (cardinality != 2), "a Bernoulli leaf needs a variable with two values"
    expected = np.array([1, 2, 0, 3, 2, 0, 0])[kind] + np.where(kind == CATEGORICAL, cardinality, 0)
    yield np.diff(param_start) != expected, "it has the wrong number of parameters"
    first, second, third = (np.append(param, (0.0, 0.0, 0.0))[param_start[:-1] + i] for i in range(3))
    in_range = (first >= 0) & (first < cardinality) & (first == np.floor(first))
    yield (kind == INDICATOR) & ~in_range, "its value is out of range"
    yield (kind == BINOMIAL) & (first != cardinality - 1), "n trials need a variable with n + 1 values"
    owner = np.repeat(np.arange(kind.size), np.diff(param_start))
    kinds = kind[owner]
    trials = (kinds == BINOMIAL) & (param_start[owner] == np.arange(owner.size))
    logs = np.isin(kinds, (BERNOULLI, CATEGORICAL, BINOMIAL)) & ~trials
    bad_log, bad_gauss = logs & ~(param <= 1e-9), (kinds == GAUSSIAN) & ~np.isfinite(param)
    for bad, why in ((bad_log, "a probability is not in 0 to 1"), (bad_gauss, "a parameter is not finite")):
        yield np.bincount(owner[bad], minlength=kind.size) > 0, why
    chances = np.exp(np.where(kind == BINOMIAL, (second, third), -np.inf)).sum(axis=0)
    yield (kind == BINOMIAL) & ~(np.abs(chances - 1) <= 1e-6), "p and 1 - p do not add up to 1"
    yield (kind == GAUSSIAN) & ~(second > 0), "the standard deviation must be positive"


def leaf_tables(circuit: Circuit) -> tuple[LongArray, FloatArray]:
    """For each discrete leaf the log probability of every value, one slice of one array per leaf."""
    cardinality = np.array([v.cardinality for v in circuit.variables] or [0], dtype=np.int64)
    sizes = np.where(circuit.kind < GAUSSIAN, cardinality[circuit.var], 0)
    start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes)))
    if start[-1] > max(MOST_ENTRIES, 4 * circuit.param.size):
        node = int(np.argmax(sizes))
        name = circuit.variables[circuit.var[node]].name
        raise LimitError(
            f"the tables of all leaves would have {start[-1]} entries, more than {MOST_ENTRIES}: "
            f"{node_name(circuit, node)} alone has {sizes[node]}, one for each value of variable {name!r}"
        )
    table = np.full(int(start[-1]), -np.inf)
    _fill_tables(circuit.kind, circuit.param_start, circuit.param, start, table)
    return start, table


@kernel
def _fill_tables(
    kind: KindArray, param_start: LongArray, param: FloatArray, start: LongArray, table: FloatArray
) -> None:
    for i in range(kind.size):
        p, t, size = param_start[i], start[i], start[i + 1] - start[i]
        if kind[i] == INDICATOR:
            table[t + int(param[p])] = 0.0
        elif kind[i] == BERNOULLI:
            table[t] = param[p + 1]
            table[t + 1] = param[p]
        elif kind[i] == CATEGORICAL:
            for x in range(size):
                table[t + x] = param[p + x]
        elif kind[i] == BINOMIAL:
            trials = size - 1
            log_choose = 0.0
            for x in range(size):
                if x > 0:
                    log_choose += np.log((trials - x + 1) / x)
                value = log_choose
                if x > 0:
                    value += x * param[p + 1]
                if x < trials:
                    value += (trials - x) * param[p + 2]
                table[t + x] = value
