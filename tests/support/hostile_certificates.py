"""Certificates made to cost more than they look, and a count of what checking them really takes."""

import dataclasses
import math
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np

import margmap as mm
from margmap.certificate import blocks
from margmap.certificate import verify as check
from margmap.certificate.blocks import Cover
from margmap.certificate.file import Certificate
from margmap.circuit import BERNOULLI, CATEGORICAL, Parts, Variable, assemble

NONE = Cover(0, np.zeros((0, 0)))


def mixture(components, variables, values=2):
    """A mixture of independent variables, no two components alike: every block has an entry for each component."""
    rng = np.random.default_rng(0)
    parts = Parts.new()
    rows = [[parts.leaf(CATEGORICAL, i, _chances(rng, values)) for i in range(variables)] for _ in range(components)]
    parts.sum([parts.product(row) for row in rows], [-math.log(components)] * components)
    return assemble([Variable(i, values) for i in range(variables)], parts)


def _chances(rng, values):
    return np.log(rng.dirichlet(np.full(values, 5.0))).tolist()


def claim(variables, tree, covers):
    """No state is above e^-200: nothing can be dropped, so that every candidate has to be covered."""
    return Certificate(tuple(range(variables)), {}, (0,) * variables, -250.0, -200.0, 1e6, tree, covers)


def all_covered_by_the_last(entries, vectors, variables=1):
    """Vectors of which only the last covers anything; the others fail in their last entry alone.

    The numbers grow with the block's variables, so that they are above the products of those of its parts.
    """
    rows = np.full((vectors, entries), 2.0 ** (3 * variables - 1))
    rows[:-1, -1] = 0.0
    return Cover(0, rows)


def long_scans(vectors=40, entries=20):
    """Every pair is compared with every vector, nearly to the end of each: what covered the last pair does not cover
    the next.
    """
    first = np.full((vectors, entries), 4.0)
    first[0::2, 0] = first[1::2, 1:] = 1.5
    second = np.full((1, entries), 4.0)
    joined = np.full((60, entries), 20.0)
    joined[:-2, -1] = 0.0
    joined[-2, 0] = joined[-1, 1:] = 7.0
    covers = (Cover(0, first), Cover(0, second), Cover(0, joined), Cover(0, second), NONE)
    return mixture(entries, 3), claim(3, (0, 1, -1, 2, -1), covers)


def narrow_root(vectors=150, entries=40):
    """A block of one entry whose parts have many: its pairs cost as much as those have, though all are dropped."""
    parts = [Cover(0, np.full((vectors, entries), 2.0**-9)) for _ in range(2)]
    loose = dataclasses.replace(claim(2, (0, 1, -1), (*parts, NONE)), log_upper=1.0)
    return mixture(entries, 2), loose


def crossing_tree(variables=6, components=20):
    """A tree that cuts every product elsewhere: entries on every level, and no bilinear bound."""
    pairs = Parts.new()
    rng = np.random.default_rng(1)
    tops = []
    for _ in range(components):
        order = rng.permutation(variables).tolist()
        leaves = {v: pairs.leaf(BERNOULLI, v, _chances(rng, 2)) for v in order}
        halves = [pairs.product([leaves[v] for v in order[i::4]]) for i in range(4)]
        tops.append(pairs.product(halves))
    pairs.sum(tops, [-math.log(components)] * components)
    circuit = assemble([Variable(i) for i in range(variables)], pairs)
    tree = (0, *(token for v in range(1, variables) for token in (v, -1)))
    upper = check.checked_query(circuit, range(variables), {}, [0] * variables).upper
    made, aligned = blocks.blocks_of(upper, blocks.tree_of(tree, variables), 10**6, blocks.Work(10**9))
    assert not aligned
    inside = [1 if token >= 0 else at // 2 + 1 for at, token in enumerate(tree)]
    covers = [all_covered_by_the_last(block.entries, 3, n) for block, n in zip(made, inside, strict=True)]
    return circuit, claim(variables, tree, (*covers[:-1], NONE))


def many_values(values=400, components=5):
    """One variable of many values, each a candidate that is compared with every vector."""
    covers = (all_covered_by_the_last(components, 40), NONE, NONE)
    circuit = mixture(components, 2, values)
    return circuit, claim(2, (0, 1, -1), covers)


CASES = (long_scans, narrow_root, crossing_tree, many_values)


@contextmanager
def interpreted(*modules):
    """The kernels that these modules use, as the Python that they were compiled from."""
    kernels = [(m, name, x) for m in modules for name, x in vars(m).items() if hasattr(x, "py_func")]
    for module, name, compiled in kernels:
        setattr(module, name, compiled.py_func)
    try:
        yield
    finally:
        for module, name, compiled in kernels:
            setattr(module, name, compiled)


def count_lines(circuit, certificate, max_work):
    """The verdict, and how many lines and multiplications of matrices the proof of the upper bound really took.

    In the interpreter a step of a kernel takes as long as one of Python, so the latter are counted by their lines.
    """
    done = 0
    folder = str(Path(check.__file__).parent)
    inner, dot = check._check_upper, np.dot

    def trace(frame, event, argument):
        nonlocal done
        if not frame.f_code.co_filename.startswith(folder):
            return None
        done += event == "line"
        return trace

    def counted_dot(a, b):
        nonlocal done
        done += a.shape[0] * a.shape[1] * b.shape[1]
        return dot(a, b)

    def traced(*arguments):
        before = sys.gettrace()
        with interpreted(blocks, check), patch.multiple(blocks, ITEM=10, VISIT=60), patch.object(check, "ITEM", 10):
            sys.settrace(trace)
            try:
                inner(*arguments)
            finally:
                sys.settrace(before)

    check._check_upper, np.dot = traced, counted_dot
    try:
        verdict = mm.verify(circuit, certificate, max_work=max_work)
    finally:
        check._check_upper, np.dot = inner, dot
    return verdict, done
