"""Decision circuits, the structure that the learners change, and which rows of data go through each of its elements.

A decision circuit is a deterministic circuit that follows a vtree, as a PSDD does (Kisa, Van den Broeck, Choi and
Darwiche, KR 2014). A node is a literal; or free over one variable, with one element for every value; or a decision,
whose elements are pairs of a prime, at the left child of its vtree node, and a sub, at the right one.

Every row is at exactly one node for every vtree node, and there in exactly one element. So the rows of all elements at
one vtree node are a partition, kept as one permutation of the rows in which every element owns a slice. All of it takes
rows times vtree nodes numbers, however large the circuit grows, and dividing an element's rows is a stable sort of its
slice. Training and validation rows lie in the same arrays, training rows first; every element has a slice of each.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import BERNOULLI, CATEGORICAL, INDICATOR, PRODUCT, SUM, Circuit, FloatArray, IntArray, LongArray
from margmap.circuit.vtree import Vtree, derive_vtree
from margmap.errors import DataError, StructureError
from margmap.foundation.jit import kernel
from margmap.foundation.slices import starts
from margmap.learn.chow_liu_tree import Join, RootedTree, learn_tree, tree_vtree
from margmap.learn.table import CodedRows, Codes, read_tables

NONE = -1

#: The two sets of rows: the first index of ``DecisionArrays.at`` and ``DecisionArrays.n``.
TRAINING, VALIDATION = range(2)

#: Places in ``DecisionArrays.size``: how many nodes and elements were ever made, the first of those that can be used
#: again, the next age of an element, the current collection of nodes, the length of the queue, how many elements and
#: how many decisions of one element are live, and how many splits were done.
NODES, ELEMENTS, FREE_NODE, FREE_ELEMENT, BORN, TICK, QUEUED, LIVE_ELEMENTS, SINGLES, SPLITS = range(10)

# A probability of 0 (pseudocount 0, a value not seen) counts as this in the running likelihoods.
_LEAST = 1e-300


class DecisionArrays(NamedTuple):
    """The arrays of a decision circuit, for the kernels. Those of nodes and elements have room to grow."""

    # Of every vtree node, in post-order: its left child (-1 at a leaf), its columns lo to hi (less one), its depth.
    left: IntArray
    lo: IntArray
    hi: IntArray
    depth: IntArray
    # Of every column, in vtree order: how many values it has, and the number of the literal of its value 0.
    values: LongArray
    literal_of: LongArray
    # All rows, the training rows first, their columns in vtree order.
    data: Codes
    # Of every node: its vtree node, its first element (of an unused node the next unused one), how many elements it
    # has, how many elements use it, its value if it is a literal, the weight of its prior in rows, and by which
    # collection (see TICK) it was found last, and where.
    place: IntArray
    head: IntArray
    arity: IntArray
    refs: IntArray
    literal: IntArray
    strength: FloatArray
    stamp: LongArray
    slot: IntArray
    # Of every element: its node, the next element of that node, prime (or the value, at a free leaf) and sub, its
    # parameter before any rows are seen, and its age.
    owner: IntArray
    after: IntArray
    prime: IntArray
    sub: IntArray
    prior: FloatArray
    born: LongArray
    # Of every element, for training and validation rows: where its slice of rows begins and how long it is.
    at: IntArray
    n: IntArray
    # The rows of every vtree node in the order of its elements; the value, plus 1, that a split has marked them with.
    rows: IntArray
    mark: NDArray[np.int16]
    scratch: IntArray
    # The queue of elements to split, a heap: what it is ordered by, and the elements.
    key: LongArray
    queued: IntArray
    # Numbers that change: see NODES and what follows, the two log-likelihoods, the state of the random generator.
    size: LongArray
    tally: FloatArray
    random: NDArray[np.uint64]


_NODE_ARRAYS = ("place", "head", "arity", "refs", "literal", "strength", "stamp", "slot")
_ELEMENT_ARRAYS = ("owner", "after", "prime", "sub", "prior", "born", "at", "n")


class Compact(NamedTuple):
    """A copy of the live nodes, children first, and of the slices of elements that belong to them."""

    node: IntArray
    place: IntArray
    literal: IntArray
    strength: FloatArray
    start: LongArray
    element: IntArray
    prime: IntArray
    sub: IntArray
    n: IntArray
    prior: FloatArray

    def log_parameters(self) -> FloatArray:
        """log theta of every element, theta = (count + strength * prior) / (count of the node + strength)."""
        sizes = np.diff(self.start)
        before = starts(self.n)
        total = np.repeat(before[self.start[1:]] - before[self.start[:-1]] + self.strength, sizes)
        share = self.n + np.repeat(self.strength, sizes) * self.prior
        even = np.repeat(1.0 / np.maximum(sizes, 1), sizes)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Without rows and without a pseudocount nothing is known: all elements alike.
            log: FloatArray = np.log(np.where(total > 0, share / total, even))
        return log


class _Plan:
    """Nodes to make, children first: each has a vtree node and elements.

    The literal of value x of column v has the number ``literal[v] + x``; other nodes have the numbers after those of
    all literals. A free leaf has elements (value, NONE), a decision pairs of a prime and a sub.
    """

    def __init__(self, vtree: Vtree, cardinality: LongArray) -> None:
        self.vtree, self.cardinality = vtree, cardinality
        #: By position in the vtree: the leaves, and their columns.
        self.leaves = np.flatnonzero(vtree.left < 0)
        self.leaves = self.leaves[np.argsort(vtree.in_order()[self.leaves])]
        self.columns = vtree.var[self.leaves].astype(np.int64)
        self.literal_of = starts(cardinality[self.columns])
        self.literal = np.zeros(self.columns.size, dtype=np.int64)
        self.literal[self.columns] = self.literal_of[:-1]
        self.nodes: list[tuple[int, list[tuple[int, int]]]] = []

    def add(self, place: int, elements: list[tuple[int, int]]) -> int:
        self.nodes.append((place, elements))
        return int(self.literal_of[-1]) + len(self.nodes) - 1

    def free(self, place: int, values: int) -> int:
        return self.add(place, [(x, NONE) for x in range(values)])


class DecisionCircuit:
    """:class:`DecisionArrays`, with what is needed to make them larger and to make a circuit of them."""

    def __init__(
        self, table: CodedRows, valid: Codes | None, plan: _Plan, root: int, pseudocount: float, inherit: bool
    ) -> None:
        self.table, self.inherit, self.root, self.columns = table, inherit, root, plan.columns
        checked = np.zeros((0, table.codes.shape[1]), dtype=np.uint8) if valid is None else valid
        #: Where the training rows and the validation rows begin, and where the latter end.
        self.rows = (0, len(table.codes), len(table.codes) + len(checked))
        number, left, lo, hi, depth = _post_order(plan.vtree)
        values, literals = plan.cardinality[plan.columns], int(plan.literal_of[-1])
        nodes, total = literals + len(plan.nodes), sum(len(elements) for _, elements in plan.nodes)
        arity = np.zeros(nodes, dtype=np.int32)
        arity[literals:] = [len(elements) for _, elements in plan.nodes]
        place = np.repeat(number[plan.leaves], values)
        literal = np.full(nodes, NONE, dtype=np.int32)
        literal[:literals] = np.arange(literals) - np.repeat(plan.literal_of[:-1], values)
        owner = np.repeat(np.arange(nodes, dtype=np.int32), arity)
        flat = np.array([pair for _, elements in plan.nodes for pair in elements], dtype=np.int32).reshape(total, 2)
        prime, sub = np.ascontiguousarray(flat.T)
        pair = sub >= 0
        end = np.cumsum(arity)
        after = np.arange(1, total + 1, dtype=np.int32)
        after[end[arity > 0] - 1] = NONE
        refs = np.bincount(flat[pair].ravel(), minlength=nodes).astype(np.int32)
        refs[root] += 1
        refs[:literals] += 1  # literals stay, used or not
        size = np.zeros(10, dtype=np.int64)
        size[[NODES, ELEMENTS, FREE_NODE, FREE_ELEMENT, BORN]] = nodes, total, NONE, NONE, total
        size[[LIVE_ELEMENTS, SINGLES]] = pair.sum(), (pair & (arity[owner] == 1)).sum()
        self.arrays = DecisionArrays(
            left=left,
            lo=lo,
            hi=hi,
            depth=depth,
            values=values,
            literal_of=plan.literal_of,
            data=np.ascontiguousarray(np.concatenate((table.codes, checked))[:, plan.columns]),
            place=np.concatenate((place, number[[v for v, _ in plan.nodes]])),
            head=np.where(arity > 0, end - arity, NONE).astype(np.int32),
            arity=arity,
            refs=refs,
            literal=literal,
            strength=np.full(nodes, float(pseudocount)),
            stamp=np.zeros(nodes, dtype=np.int64),
            slot=np.zeros(nodes, dtype=np.int32),
            owner=owner,
            after=after,
            prime=prime,
            sub=sub,
            prior=1.0 / np.maximum(arity[owner], 1),
            born=np.arange(total, dtype=np.int64),
            at=np.zeros((2, total), dtype=np.int32),
            n=np.zeros((2, total), dtype=np.int32),
            rows=np.zeros((number.size, self.rows[-1]), dtype=np.int32),
            mark=np.zeros(self.rows[-1], dtype=np.int16),
            scratch=np.zeros(self.rows[-1], dtype=np.int32),
            key=np.zeros(1024, dtype=np.int64),
            queued=np.zeros(1024, dtype=np.int32),
            size=size,
            tally=np.zeros(2),
            random=np.zeros(1, dtype=np.uint64),
        )
        self.assign_rows()

    @classmethod
    def begin(
        cls, data: Any, valid: Any, circuit: Circuit | None, alpha: float = 1.0, join: Join = "balanced", **options: Any
    ) -> DecisionCircuit:
        """What a learner starts from: the Chow-Liu tree of the rows, or a circuit that was learned before."""
        table, checked = read_tables(data, valid, None if circuit is None else circuit.variables)
        if circuit is not None:
            return cls.from_circuit(table, checked, circuit, **options)
        return cls.from_tree(table, checked, learn_tree(table, alpha), join=join, **options)

    @classmethod
    def from_tree(
        cls,
        table: CodedRows,
        valid: Codes | None,
        tree: RootedTree,
        pseudocount: float = 1.0,
        join: Join = "balanced",
        inherit: bool = False,
    ) -> DecisionCircuit:
        """Compile a tree: a decision (or a free leaf) of every variable for each value of its parent."""
        vtree, top, rest = tree_vtree(table, tree, join)
        plan, cardinality = _Plan(vtree, table.cardinality), table.cardinality.tolist()
        made: dict[int, list[int]] = {}  # by vtree node: a node for each value of the variable above
        column_at = {place: v for v, place in enumerate(top)}
        for place, (a, b) in enumerate(zip(vtree.left.tolist(), vtree.right.tolist(), strict=True)):
            v = column_at.get(place)
            if v is not None:
                copies = range(1 if tree.parent[v] < 0 else cardinality[tree.parent[v]])
                if rest[v] < 0:
                    made[place] = [plan.free(place, cardinality[v]) for _ in copies]
                else:
                    pairs = [(int(plan.literal[v]) + x, below) for x, below in enumerate(made[rest[v]])]
                    made[place] = [plan.add(place, pairs) for _ in copies]
            elif a >= 0:
                made[place] = [plan.add(place, [pair]) for pair in zip(made[a], made[b], strict=True)]
        return cls(table, valid, plan, made[top[int(tree.order[0])]][0], pseudocount, inherit)

    @classmethod
    def from_circuit(
        cls, table: CodedRows, valid: Codes | None, circuit: Circuit, pseudocount: float = 1.0, inherit: bool = False
    ) -> DecisionCircuit:
        """Take up a circuit again: sums of products of two, over leaves; its parameters are estimated anew."""
        why = "only circuits that margmap.learn made, or PSDDs, can be continued"
        try:
            vtree, of_scope = derive_vtree(circuit)
        except StructureError as error:
            raise StructureError(f"{error}; {why}") from None
        if len(vtree.variables) != len(circuit.variables):
            raise StructureError(f"not every variable of the circuit is below its root; {why}")
        plan, cardinality = _Plan(vtree, circuit.cardinality.astype(np.int64)), circuit.cardinality.tolist()
        place, left, right = of_scope[circuit.scopes.id].tolist(), vtree.left.tolist(), vtree.right.tolist()
        start, child, kinds = circuit.start.tolist(), circuit.child.tolist(), circuit.kind.tolist()
        made: list[int] = [NONE] * circuit.num_nodes
        pairs: dict[int, tuple[int, int]] = {}

        def node_of(c: int) -> int:
            """The node of something that stands below a product: a product by itself is a decision of one element."""
            if made[c] == NONE:
                made[c] = plan.add(place[c], [pairs[c]])
            return made[c]

        for n, kind in enumerate(kinds):
            below = child[start[n] : start[n + 1]]
            if kind == INDICATOR:
                made[n] = int(plan.literal[circuit.var[n]]) + int(circuit.param[circuit.param_start[n]])
            elif kind in (BERNOULLI, CATEGORICAL):
                made[n] = plan.free(place[n], cardinality[circuit.var[n]])
            elif kind == PRODUCT and len(below) == 2 and left[place[n]] >= 0:
                a, b = below if place[below[0]] == left[place[n]] else below[::-1]
                if (place[a], place[b]) != (left[place[n]], right[place[n]]):
                    raise StructureError(f"node {n} (product) does not follow the vtree; {why}")
                pairs[n] = (node_of(a), node_of(b))
            elif kind == SUM and all(c in pairs for c in below) and len(set(below)) == len(below):
                made[n] = plan.add(place[n], [pairs[c] for c in below])
            elif kind == SUM and all(kinds[c] == INDICATOR for c in below):
                if len(below) == 1:
                    made[n] = made[below[0]]
                elif len(set(below)) == cardinality[circuit.var[below[0]]]:
                    made[n] = plan.free(place[n], len(below))
            if made[n] == NONE and n not in pairs:
                raise StructureError(f"node {n} is neither a sum of products of two nor a leaf of one variable; {why}")
        return cls(table, valid, plan, node_of(circuit.root), pseudocount, inherit)

    def assign_rows(self) -> None:
        """Send all rows down the structure again: values up and flows down, 64 rows in a word."""
        live = self._live()
        for part, what in ((TRAINING, "the data"), (VALIDATION, "the validation data")):
            lost = _assign_rows(self.arrays, live, self.root, part, self.rows[part], self.rows[part + 1])
            if lost >= 0:
                raise DataError(f"{what}, row {lost}: the circuit to continue gives it probability 0")
        _recount(self.arrays, live, self.inherit)

    def reserve(self, nodes: int, elements: int, queue: int) -> None:
        """Make room for at least so many more nodes and elements, and places in the queue."""
        change: dict[str, Any] = {}
        for names, counted, more in (
            (_NODE_ARRAYS, NODES, nodes),
            (_ELEMENT_ARRAYS, ELEMENTS, elements),
            (("key", "queued"), QUEUED, queue),
        ):
            used = int(self.arrays.size[counted])
            if used + more > getattr(self.arrays, names[0]).size:
                room = used + more + max(1024, used // 2)
                for name in names:
                    array: NDArray[np.generic] = getattr(self.arrays, name)
                    change[name] = np.zeros((*array.shape[:-1], room), dtype=array.dtype)
                    change[name][..., : array.shape[-1]] = array
        self.arrays = self.arrays._replace(**change)

    @property
    def validates(self) -> bool:
        """Whether there are validation rows."""
        return self.rows[2] > self.rows[1]

    @property
    def mean_log_likelihoods(self) -> tuple[float, float]:
        """Of the training rows and the validation rows (NaN if there are none)."""
        train, valid = self.arrays.tally.tolist()
        _, first, last = self.rows
        return train / first, valid / (last - first) if self.validates else np.nan

    @property
    def edges(self) -> int:
        """The number of edges of the circuit, or somewhat more: equal products are shared only when it is made."""
        size = self.arrays.size
        return int(3 * size[LIVE_ELEMENTS] - size[SINGLES])

    def compact(self) -> Compact:
        """A compact copy of the structure and its training counts as they are now."""
        d, live = self.arrays, self._live()
        sizes = d.arity[live]
        start = starts(sizes)
        order = _all_elements(d, live, int(start[-1]))
        prior = d.prior[order] if self.inherit else np.repeat(1.0 / np.maximum(sizes, 1), sizes)
        of_node = d.place[live], d.literal[live], d.strength[live]
        return Compact(live, *of_node, start, order, d.prime[order], d.sub[order], d.n[TRAINING, order], prior)

    def _live(self) -> IntArray:
        """The nodes in use, those of one vtree node together, children first."""
        live = np.flatnonzero(self.arrays.refs[: self.arrays.size[NODES]] > 0).astype(np.int32)
        return live[np.argsort(self.arrays.place[live], kind="stable")]

    def circuit(self, compact: Compact | None = None, log: FloatArray | None = None) -> Circuit:
        """The circuit of a copy, by default of the structure as it is now; ``log`` replaces its log-parameters."""
        s = self.compact() if compact is None else compact
        return _circuit(self, s, s.log_parameters() if log is None else log)


def _circuit(whole: DecisionCircuit, s: Compact, log: FloatArray) -> Circuit:
    sizes = np.diff(s.start)
    owner = np.repeat(np.arange(s.node.size), sizes)
    leaf = (sizes > 0) & (whole.arrays.left[s.place] < 0)
    pair = np.flatnonzero(~leaf[owner])
    above = owner[pair]
    used = np.zeros(int(s.node.max()) + 1, dtype=np.bool_)
    used[s.prime[pair]] = used[s.sub[pair]] = used[whole.root] = True
    keep = used[s.node]

    # A decision of one element is its product, and equal pairs are one product; so decisions of one element that are
    # equal are one node, which can make pairs further up equal.
    single = sizes[above] == 1
    same = np.arange(used.size)
    edge, node = pair[single], s.node[above[single]]
    border = np.flatnonzero(np.diff(s.place[above[single]], prepend=NONE, append=NONE))
    for a, b in pairwise(border.tolist()):
        keys = same[s.prime[edge[a:b]]] << 32 | same[s.sub[edge[a:b]]]
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        same[node[a:b]] = node[a:b][first][inverse.reshape(-1)]
    distinct, which = np.unique(same[s.prime[pair]] << 32 | same[s.sub[pair]], return_inverse=True)
    which = which.reshape(-1)
    place_of_pair = np.zeros(distinct.size, dtype=np.int32)
    place_of_pair[which] = s.place[above]

    # Numbers: by vtree node, products before the sums over them, leaves alone at their vtree nodes.
    real = np.flatnonzero(keep & ((s.literal >= 0) | leaf | (sizes > 1)))
    total = real.size + distinct.size
    rank = np.argsort(np.lexsort((np.arange(total) < real.size, np.concatenate((s.place[real], place_of_pair)))))
    number = np.full(used.size, NONE, dtype=np.int64)
    number[s.node[real]] = mine = rank[: real.size]
    product = rank[real.size :]
    number[node] = product[which[single]]
    assert number[whole.root] == total - 1

    literal, free = s.literal[real] >= 0, leaf[real]
    column = whole.columns[whole.arrays.lo[s.place[real]]]
    cardinality = whole.table.cardinality[column]
    kind, fan = np.full(total, PRODUCT, dtype=np.int8), np.full(total, 2, dtype=np.int64)
    var, params = np.full(total, NONE, dtype=np.int32), np.zeros(total, dtype=np.int64)
    kind[mine] = np.where(literal, INDICATOR, np.where(free, np.where(cardinality == 2, BERNOULLI, CATEGORICAL), SUM))
    var[mine] = np.where(literal | free, column, NONE)
    fan[mine] = np.where(literal | free, 0, sizes[real])
    params[mine] = np.where(literal, 1, np.where(free, cardinality, 0))
    start, param_start = starts(fan), starts(params)
    child, weight = np.zeros(int(start[-1]), dtype=np.int32), np.zeros(int(start[-1]))
    child[start[product]], child[start[product] + 1] = number[distinct >> 32], number[distinct & 0xFFFFFFFF]
    many = keep[above] & (sizes[above] > 1)
    edge = start[number[s.node[above[many]]]] + (pair - s.start[above])[many]
    child[edge], weight[edge] = product[which[many]], log[pair[many]]
    param = np.zeros(int(param_start[-1]))
    param[param_start[mine[literal]]] = s.literal[real][literal]
    at_leaf = np.flatnonzero((leaf & keep)[owner])
    leaves, value = number[s.node[owner[at_leaf]]], s.prime[at_leaf]
    # A Bernoulli leaf has log p(1) first.
    param[param_start[leaves] + np.where(kind[leaves] == BERNOULLI, 1 - value, value)] = np.minimum(log[at_leaf], 0.0)
    return Circuit(whole.table.variables, kind, start, child, weight, var, param_start, param)


def _post_order(vtree: Vtree) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """The number of every vtree node in post-order; in that order: left child, first and last column, depth.

    Of two nodes the one whose columns end first comes first; where they end together, the one below the other.
    """
    inner = np.flatnonzero(vtree.left >= 0).tolist()
    left, right = vtree.left.tolist(), vtree.right.tolist()
    lo = vtree.in_order() // 2
    hi, depth = lo + 1, np.zeros_like(lo)
    for v in inner:
        lo[v], hi[v] = lo[left[v]], hi[right[v]]
    for v in reversed(inner):
        depth[left[v]] = depth[right[v]] = depth[v] + 1
    order = np.lexsort((-lo, hi))
    number = np.argsort(order).astype(np.int32)
    below = np.where(vtree.left < 0, np.int32(NONE), number[vtree.left])
    return number, below[order], lo[order], hi[order], depth[order]


@kernel
def _assign_rows(d: DecisionArrays, order: IntArray, root: int, part: int, begin: int, end: int) -> int:
    """Find the element of every row at every vtree node, 64 rows at a time.

    ``order`` are the nodes, children first. The rows are ``begin`` to ``end``, less one, those of ``part`` (TRAINING
    or VALIDATION). Returns -1, or the number, within its part, of a row that the circuit gives probability 0.
    """
    top = int(d.size[NODES])
    value, flow = np.zeros(top, dtype=np.uint64), np.zeros(top, dtype=np.uint64)
    inside = np.full((d.left.size, end - begin), NONE, dtype=np.int32)
    d.n[part] = 0
    for first in range(begin, end, 64):
        width = min(64, end - first)
        all_ones = ~np.uint64(0) >> np.uint64(64 - width)
        for m in order:
            flow[m] = 0
            word = np.uint64(0)
            if d.literal[m] >= 0:
                for i in range(width):
                    if d.data[first + i, d.lo[d.place[m]]] == d.literal[m]:
                        word |= np.uint64(1) << np.uint64(i)
            elif d.left[d.place[m]] < 0:
                word = all_ones
            else:
                e = d.head[m]
                while e >= 0:
                    word |= value[d.prime[e]] & value[d.sub[e]]
                    e = d.after[e]
            value[m] = word
        for i in range(width):
            if not (value[root] >> np.uint64(i)) & np.uint64(1):
                return first + i - begin
        flow[root] = all_ones
        for m in order[::-1]:
            if flow[m] == 0 or d.literal[m] >= 0:
                continue
            place = d.place[m]
            inner = d.left[place] >= 0
            e = d.head[m]
            while e >= 0:
                word, i = flow[m], first
                if inner:
                    word &= value[d.prime[e]] & value[d.sub[e]]
                    flow[d.prime[e]] |= word
                    flow[d.sub[e]] |= word
                while word:
                    if word & np.uint64(1) and (inner or d.data[i, d.lo[place]] == d.prime[e]):
                        inside[place, i - begin] = e
                        d.n[part, e] += 1
                    word >>= np.uint64(1)
                    i += 1
                e = d.after[e]
    # A counting sort of the rows at every vtree node.
    used = np.full(d.left.size, begin, dtype=np.int64)
    for m in order:
        for e in elements(d, m):
            d.at[part, e] = used[d.place[m]]
            used[d.place[m]] += d.n[part, e]
            d.n[part, e] = 0
    for place in range(d.left.size):
        for r in range(end - begin):
            e = inside[place, r]
            if e >= 0:
                d.rows[place, d.at[part, e] + d.n[part, e]] = begin + r
                d.n[part, e] += 1
    return -1


@kernel
def elements(d: DecisionArrays, m: int) -> IntArray:
    """The elements of node ``m`` in order."""
    found = np.zeros(d.arity[m], dtype=np.int32)
    e = d.head[m]
    for i in range(found.size):
        found[i] = e
        e = d.after[e]
    return found


@kernel
def add_tally(d: DecisionArrays, m: int, inherit: bool, sign: float, tally: FloatArray) -> None:
    """Add ``sign`` times what the parameters of node ``m`` contribute to the two log-likelihoods to ``tally``.

    With ``inherit`` the prior of each element is its own, and without it is even.
    """
    own = elements(d, m)
    total = 0
    for e in own:
        total += d.n[TRAINING, e]
    mass = total + d.strength[m]
    train, valid, even = 0.0, 0.0, 1.0 / max(1, own.size)
    for e in own:
        if d.n[TRAINING, e] > 0 or d.n[VALIDATION, e] > 0:
            prior = d.prior[e] if inherit else even
            theta = (d.n[TRAINING, e] + d.strength[m] * prior) / mass if mass > 0 else even
            log = np.log(max(theta, _LEAST))
            train += d.n[TRAINING, e] * log
            valid += d.n[VALIDATION, e] * log
    tally[TRAINING] += sign * train
    tally[VALIDATION] += sign * valid


@kernel
def _recount(d: DecisionArrays, live: IntArray, inherit: bool) -> None:
    """Both log-likelihoods, from all nodes."""
    d.tally[:] = 0.0
    for m in live:
        add_tally(d, m, inherit, 1.0, d.tally)


@kernel
def _all_elements(d: DecisionArrays, live: IntArray, total: int) -> IntArray:
    """The elements of the nodes ``live``, ``total`` in all, one node after the other."""
    found = np.zeros(total, dtype=np.int32)
    at = 0
    for m in live:
        found[at : at + d.arity[m]] = elements(d, m)
        at += d.arity[m]
    return found
