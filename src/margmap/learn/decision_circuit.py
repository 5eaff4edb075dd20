"""The structure that the learners change: decision nodes along a vtree, and which rows go through which element.

A row of a deterministic circuit that follows a vtree is at exactly one node for every vtree node, and there in exactly
one element. So the rows of all elements at one vtree node are a partition, kept as one permutation of the rows in which
every element owns a slice (``Net.rows[vtree node, at : at + n]``). All of it takes rows times vtree nodes numbers,
however large the circuit grows, and dividing an element's rows is a stable sort of its slice.

A node is a literal; or free over one variable, with one element for every value; or a decision, whose elements are
pairs of a prime, at the left child of its vtree node, and a sub, at the right one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import (
    BERNOULLI,
    CATEGORICAL,
    INDICATOR,
    PRODUCT,
    SUM,
    Circuit,
    FloatArray,
    IntArray,
    LongArray,
)
from margmap.circuit.vtree import Vtree, derive_vtree
from margmap.errors import DataError, StructureError
from margmap.foundation.jit import kernel
from margmap.learn.chow_liu_tree import Join, Tree, tree_vtree
from margmap.learn.table import Codes, Table

NONE = -1

#: Places in ``Net.size``.
NODES, ELEMENTS, FREE_NODE, FREE_ELEMENT, BORN, TICK, HEAP, LIVE_NODES, LIVE_ELEMENTS, SINGLES, SPLITS = range(11)

# A probability of 0 (pseudocount 0, a value not seen) counts as this in the running likelihoods.
_LEAST = 1e-300


class Net(NamedTuple):
    """The arrays of a network, for the kernels. Those of nodes and elements have room to grow."""

    # The vtree, in post-order: the columns below a node are lo to hi, less one.
    left: IntArray
    right: IntArray
    lo: IntArray
    hi: IntArray
    depth: IntArray
    # Columns in vtree order.
    values: LongArray
    literal_of: LongArray
    train: Codes
    valid: Codes
    # Nodes.
    place: IntArray
    head: IntArray
    arity: IntArray
    refs: IntArray
    literal: IntArray
    strength: FloatArray
    stamp: LongArray
    slot: IntArray
    # Elements.
    owner: IntArray
    after: IntArray
    prime: IntArray
    sub: IntArray
    at: IntArray
    n: IntArray
    valid_at: IntArray
    valid_n: IntArray
    prior: FloatArray
    born: LongArray
    # Rows, for every vtree node in the order of its elements; and what a split writes on them.
    rows: IntArray
    valid_rows: IntArray
    mark: NDArray[np.int16]
    valid_mark: NDArray[np.int16]
    scratch: IntArray
    # The queue of elements to split, a heap.
    key: LongArray
    queued: IntArray
    # Numbers that change: see NODES and what follows, and the two log-likelihoods.
    size: LongArray
    tally: FloatArray
    random: NDArray[np.uint64]


NODE_ARRAYS = ("place", "head", "arity", "refs", "literal", "strength", "stamp", "slot")
ELEMENT_ARRAYS = ("owner", "after", "prime", "sub", "at", "n", "valid_at", "valid_n", "prior", "born")


class Network:
    """A :class:`Net` with what is needed to make a circuit of it again."""

    def __init__(
        self,
        table: Table,
        valid: Codes | None,
        vtree: Vtree,
        nodes: list[tuple[int, list[tuple[int, int]]]],
        root: int,
        pseudocount: float,
        inherit: bool = False,
    ) -> None:
        """``nodes`` are, children first, a vtree node and elements; see :meth:`from_tree` for their numbers."""
        self.table, self.pseudocount, self.inherit = table, pseudocount, inherit
        order, left, right, lo, hi, depth = _post_order(vtree)
        self.columns = np.array([vtree.var[v] for v in order if vtree.left[v] < 0], dtype=np.int64)
        number = np.empty(len(order), dtype=np.int32)
        number[order] = np.arange(len(order))
        values = table.cardinality[self.columns]
        literal_of = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(values)))
        literals = int(literal_of[-1])
        checked = np.zeros((0, len(values)), dtype=np.uint8) if valid is None else valid

        # Literals come first, column by column in vtree order; `nodes` count them column by column as given.
        renumbered = np.zeros(literals + len(nodes), dtype=np.int32)
        renumbered[literals:] = np.arange(literals, literals + len(nodes))
        given = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(table.cardinality)))
        for i, column in enumerate(self.columns):
            renumbered[given[column] : given[column + 1]] = np.arange(literal_of[i], literal_of[i + 1])

        self.root = int(renumbered[root])
        flat = [(i, a, b) for i, (_, below) in enumerate(nodes) for a, b in below]
        total = len(flat)
        owner = np.array([i for i, _, _ in flat], dtype=np.int32) + literals
        prime = np.array([a for _, a, _ in flat], dtype=np.int32)
        sub = np.array([b for _, _, b in flat], dtype=np.int32)
        pair = sub >= 0
        prime[pair], sub[pair] = renumbered[prime[pair]], renumbered[sub[pair]]
        count = np.zeros(literals + len(nodes), dtype=np.int32)
        count[literals:] = [len(below) for _, below in nodes]
        place = np.zeros(literals + len(nodes), dtype=np.int32)
        place[literals:] = number[[v for v, _ in nodes]] if nodes else 0
        leaf_of = np.flatnonzero(left < 0)
        place[:literals] = np.repeat(leaf_of, values)
        literal = np.full(literals + len(nodes), NONE, dtype=np.int32)
        literal[:literals] = np.arange(literals) - np.repeat(literal_of[:-1], values)
        end = np.cumsum(count)
        head = np.where(count > 0, end - count, NONE).astype(np.int32)
        after = np.arange(1, total + 1, dtype=np.int32)
        after[end[count > 0] - 1] = NONE
        refs = np.bincount(np.concatenate((prime[pair], sub[pair])), minlength=count.size).astype(np.int32)
        refs[self.root] += 1
        refs[:literals] += 1  # literals stay, used or not

        self.net = Net(
            left=left,
            right=right,
            lo=lo,
            hi=hi,
            depth=depth,
            values=values,
            literal_of=literal_of,
            train=np.ascontiguousarray(table.codes[:, self.columns]),
            valid=np.ascontiguousarray(checked[:, self.columns]),
            place=place,
            head=head,
            arity=count,
            refs=refs,
            literal=literal,
            strength=np.full(count.size, float(pseudocount)),
            stamp=np.zeros(count.size, dtype=np.int64),
            slot=np.zeros(count.size, dtype=np.int32),
            owner=owner,
            after=after,
            prime=prime,
            sub=sub,
            at=np.zeros(total, dtype=np.int32),
            n=np.zeros(total, dtype=np.int32),
            valid_at=np.zeros(total, dtype=np.int32),
            valid_n=np.zeros(total, dtype=np.int32),
            prior=1.0 / np.maximum(count[owner], 1),
            born=np.arange(total, dtype=np.int64),
            rows=np.zeros((left.size, len(table.codes)), dtype=np.int32),
            valid_rows=np.zeros((left.size, len(checked)), dtype=np.int32),
            mark=np.zeros(len(table.codes), dtype=np.int16),
            valid_mark=np.zeros(len(checked), dtype=np.int16),
            scratch=np.zeros(max(len(table.codes), len(checked)), dtype=np.int32),
            key=np.zeros(1024, dtype=np.int64),
            queued=np.zeros(1024, dtype=np.int32),
            size=np.zeros(16, dtype=np.int64),
            tally=np.zeros(2),
            random=np.zeros(1, dtype=np.uint64),
        )
        size = self.net.size
        size[[FREE_NODE, FREE_ELEMENT]] = NONE
        size[[NODES, ELEMENTS, BORN]] = count.size, total, total
        size[LIVE_NODES] = len(nodes)
        size[LIVE_ELEMENTS] = int(pair.sum())
        size[SINGLES] = int((count[np.unique(owner[pair])] == 1).sum()) if total else 0
        self.assign_rows()

    @classmethod
    def from_tree(
        cls,
        table: Table,
        valid: Codes | None,
        tree: Tree,
        pseudocount: float = 1.0,
        join: Join = "balanced",
        inherit: bool = False,
    ) -> Network:
        """Compile a tree: a decision (or a free leaf) of every variable for each value of its parent.

        The literal of value x of column v has the number x plus the cardinalities of the columns before v; the nodes
        that are made have the numbers after those of all literals.
        """
        vtree, top, rest = tree_vtree(table, tree, join)
        cardinality = [v.cardinality for v in table.variables]
        first = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(cardinality))).tolist()
        nodes: list[tuple[int, list[tuple[int, int]]]] = []
        made: dict[int, list[int]] = {}  # by vtree node: a node for each value of the variable above
        column_at = {place: v for v, place in enumerate(top)}

        def add(place: int, elements: list[tuple[int, int]]) -> int:
            nodes.append((place, elements))
            return first[-1] + len(nodes) - 1  # type: ignore[no-any-return]

        for place, (a, b) in enumerate(zip(vtree.left.tolist(), vtree.right.tolist(), strict=True)):
            v = column_at.get(place)
            if v is not None:
                parent = int(tree.parent[v])
                above = 1 if parent < 0 else cardinality[parent]
                if rest[v] < 0:
                    elements = [(x, NONE) for x in range(cardinality[v])]
                else:
                    elements = [(first[v] + x, made[rest[v]][x]) for x in range(cardinality[v])]
                made[place] = [add(place, list(elements)) for _ in range(above)]
            elif a >= 0:
                made[place] = [add(place, [pair]) for pair in zip(made[a], made[b], strict=True)]
        return cls(table, valid, vtree, nodes, made[top[int(tree.order[0])]][0], pseudocount, inherit)

    @classmethod
    def from_circuit(
        cls, table: Table, valid: Codes | None, circuit: Circuit, pseudocount: float = 1.0, inherit: bool = False
    ) -> Network:
        """Take up a circuit again: sums of products of two, over leaves; its parameters are estimated anew."""
        why = "only circuits that margmap.learn made, or PSDDs, can be continued"
        try:
            vtree, of_scope = derive_vtree(circuit)
        except StructureError as error:
            raise StructureError(f"{error}; {why}") from None
        if len(vtree.variables) != len(circuit.variables):
            raise StructureError(f"not every variable of the circuit is below its root; {why}")
        place = of_scope[circuit.scopes.id].tolist()
        position = {name: i for i, name in enumerate(circuit.names)}
        back = [position[name] for name in vtree.variables]
        vtree = Vtree(circuit.names, vtree.left, vtree.right, [back[v] if v >= 0 else -1 for v in vtree.var.tolist()])
        first = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(circuit.cardinality))).tolist()
        nodes: list[tuple[int, list[tuple[int, int]]]] = []
        start, child = circuit.start.tolist(), circuit.child.tolist()
        made: list[int] = [NONE] * circuit.num_nodes
        left = vtree.left.tolist()

        def add(at: int, elements: list[tuple[int, int]]) -> int:
            nodes.append((at, elements))
            return first[-1] + len(nodes) - 1  # type: ignore[no-any-return]

        def node_of(c: int) -> int:
            """The node of something that stands below a product: a product by itself is a decision of one element."""
            if made[c] == NONE:
                made[c] = add(place[c], [pairs[c]])
            return made[c]

        pairs: dict[int, tuple[int, int]] = {}
        kinds = circuit.kind.tolist()
        for n, kind in enumerate(kinds):
            below = child[start[n] : start[n + 1]]
            column = circuit.var[n]
            if kind == INDICATOR:
                made[n] = first[column] + int(circuit.param[circuit.param_start[n]])
            elif kind in (BERNOULLI, CATEGORICAL):
                made[n] = add(place[n], [(x, NONE) for x in range(circuit.variables[column].cardinality)])
            elif kind == PRODUCT and len(below) == 2 and left[place[n]] >= 0:
                a, b = below if place[below[0]] == left[place[n]] else below[::-1]
                if place[a] != left[place[n]] or place[b] != vtree.right[place[n]]:
                    raise StructureError(f"node {n} (product) does not follow the vtree; {why}")
                pairs[n] = (node_of(a), node_of(b))
            elif kind == SUM and all(c in pairs for c in below) and len(set(below)) == len(below):
                made[n] = add(place[n], [pairs[c] for c in below])
            elif kind == SUM and all(kinds[c] == INDICATOR for c in below):
                if len(below) == 1:
                    made[n] = made[below[0]]
                elif len(set(below)) == circuit.cardinality[circuit.var[below[0]]]:
                    made[n] = add(place[n], [(x, NONE) for x in range(len(below))])
            if made[n] == NONE and n not in pairs:
                raise StructureError(f"node {n} is neither a sum of products of two nor a leaf of one variable; {why}")
        return cls(table, valid, vtree, nodes, node_of(circuit.root), pseudocount, inherit)

    def assign_rows(self) -> None:
        """Send all rows down the structure again: values up and flows down, 64 rows in a word."""
        net, n = self.net, int(self.net.size[NODES])
        alive = np.flatnonzero(net.refs[:n] > 0)
        order = alive[np.argsort(net.place[alive], kind="stable")].astype(np.int32)
        for data, rows, at, number, what in (
            (net.train, net.rows, net.at, net.n, "the data"),
            (net.valid, net.valid_rows, net.valid_at, net.valid_n, "the validation data"),
        ):
            lost = _assign_rows(net, order, self.root, data, rows, at, number)
            if lost >= 0:
                raise DataError(f"{what}, row {lost}: the circuit to continue gives it probability 0")
        recount(net, order, self.inherit)

    def grow(self, nodes: int, elements: int, queue: int) -> None:
        """Make room for at least so many more nodes and elements, and places in the queue."""
        net = self.net
        change: dict[str, Any] = {}
        for names, used, more in (
            (NODE_ARRAYS, int(net.size[NODES]), nodes),
            (ELEMENT_ARRAYS, int(net.size[ELEMENTS]), elements),
            (("key", "queued"), int(net.size[HEAP]), queue),
        ):
            old: NDArray[np.generic] = getattr(net, names[0])
            if used + more > old.size:
                room = used + more + max(1024, used // 2)
                for name in names:
                    array: NDArray[np.generic] = getattr(net, name)
                    bigger = np.zeros(room, dtype=array.dtype)
                    bigger[: array.size] = array
                    change[name] = bigger
        self.net = net._replace(**change)

    @property
    def mean_log_likelihoods(self) -> tuple[float, float]:
        """Of the training rows and the validation rows (NaN if there are none)."""
        net = self.net
        return float(net.tally[0]) / len(net.train), float(net.tally[1]) / len(net.valid) if len(net.valid) else np.nan

    @property
    def edges(self) -> int:
        """The number of edges of the circuit, or somewhat more: equal products are shared only when it is made."""
        size = self.net.size
        return int(3 * size[LIVE_ELEMENTS] - size[SINGLES])

    def snapshot(self) -> Snapshot:
        """A compact copy of the structure and its counts as they are now."""
        net = self.net
        n = int(net.size[NODES])
        live = np.flatnonzero(net.refs[:n] > 0).astype(np.int32)
        live = live[np.argsort(net.place[live], kind="stable")]
        order, start = _live_elements(net, live)
        return Snapshot(
            node=live,
            place=net.place[live],
            literal=net.literal[live],
            strength=net.strength[live],
            start=start,
            element=order,
            prime=net.prime[order],
            sub=net.sub[order],
            n=net.n[order],
            prior=net.prior[order] if self.inherit else np.repeat(1.0 / np.maximum(np.diff(start), 1), np.diff(start)),
            valid_n=net.valid_n[order],
        )

    def circuit(self, snapshot: Snapshot | None = None, log: FloatArray | None = None) -> Circuit:
        """The circuit of a snapshot, by default of the structure as it is now; ``log`` replaces its log-parameters."""
        s = self.snapshot() if snapshot is None else snapshot
        return _circuit(self, s, s.log_parameters() if log is None else log)


class Snapshot(NamedTuple):
    """The nodes of a network, children first, and the slices of elements that belong to them."""

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
    valid_n: IntArray

    def log_parameters(self) -> FloatArray:
        """log theta of every element, theta = (count + strength * prior) / (count of the node + strength)."""
        sizes = np.diff(self.start)
        before = np.concatenate((np.zeros(1), np.cumsum(self.n, dtype=np.float64)))
        total = np.repeat(before[self.start[1:]] - before[self.start[:-1]] + self.strength, sizes)
        share = self.n + np.repeat(self.strength, sizes) * self.prior
        even = np.repeat(1.0 / np.maximum(sizes, 1), sizes)
        with np.errstate(divide="ignore", invalid="ignore"):
            # Without rows and without a pseudocount nothing is known: all elements alike.
            log: FloatArray = np.log(np.where(total > 0, share / total, even))
        return log


def _circuit(network: Network, s: Snapshot, log: FloatArray) -> Circuit:
    net, variables = network.net, network.table.variables
    sizes = np.diff(s.start)
    owner = np.repeat(np.arange(s.node.size), sizes)
    leaf = (sizes > 0) & (net.left[s.place] < 0)
    pair = ~leaf[owner]
    used = np.zeros(int(s.node.max()) + 1, dtype=np.bool_)
    used[s.prime[pair]] = used[s.sub[pair]] = True
    used[network.root] = True
    keep = used[s.node]

    # A decision of one element is its product, and equal pairs are one product; so decisions of one element that are
    # equal are one node, which can make pairs further up equal.
    single = sizes[owner[pair]] == 1
    same = np.arange(used.size)
    edge, node = np.flatnonzero(pair)[single], s.node[owner[pair][single]]
    border = np.flatnonzero(np.diff(s.place[owner[pair][single]], prepend=NONE, append=NONE))
    for a, b in pairwise(border.tolist()):
        keys = same[s.prime[edge[a:b]]] << 32 | same[s.sub[edge[a:b]]]
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        same[node[a:b]] = node[a:b][first][inverse.reshape(-1)]
    pairs = same[s.prime[pair]] << 32 | same[s.sub[pair]]
    distinct, which = np.unique(pairs, return_inverse=True)
    which = which.reshape(-1)
    place_of_pair = np.zeros(distinct.size, dtype=np.int64)
    place_of_pair[which] = s.place[owner[pair]]

    # Numbers: by vtree node, products before the sums over them, leaves alone at their vtree nodes.
    real = keep & ((s.literal >= 0) | leaf | (sizes > 1))
    where = np.concatenate((s.place[real].astype(np.int64), place_of_pair))
    is_product = np.concatenate((np.zeros(int(real.sum()), dtype=np.int64), np.ones(distinct.size, dtype=np.int64)))
    order = np.lexsort((1 - is_product, where))
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    number = np.full(used.size, NONE, dtype=np.int64)
    number[s.node[real]] = rank[: int(real.sum())]
    product_number = rank[int(real.sum()) :]
    number[s.node[owner[pair][single]]] = product_number[which[single]]

    total = order.size
    kind = np.full(total, PRODUCT, dtype=np.int8)
    var = np.full(total, NONE, dtype=np.int32)
    fan = np.full(total, 2, dtype=np.int64)
    params = np.zeros(total, dtype=np.int64)
    mine = number[s.node[real]]
    literal, free = s.literal[real] >= 0, leaf[real]
    column = network.columns[net.lo[s.place[real]]]
    cardinality = network.table.cardinality[column]
    kind[mine] = np.where(literal, INDICATOR, np.where(free, np.where(cardinality == 2, BERNOULLI, CATEGORICAL), SUM))
    var[mine] = np.where(literal | free, column, NONE)
    fan[mine] = np.where(literal | free, 0, sizes[real])
    params[mine] = np.where(literal, 1, np.where(free, cardinality, 0))
    start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(fan)))
    param_start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(params)))
    child = np.zeros(int(start[-1]), dtype=np.int32)
    weight = np.zeros(int(start[-1]))
    param = np.zeros(int(param_start[-1]))
    child[start[product_number]] = number[distinct >> 32]
    child[start[product_number] + 1] = number[distinct & 0xFFFFFFFF]
    inside = np.arange(owner.size) - s.start[owner]
    many = pair & keep[owner] & (sizes[owner] > 1)
    edge = start[number[s.node[owner[many]]]] + inside[many]
    of_pair = np.full(owner.size, NONE, dtype=np.int64)
    of_pair[pair] = product_number[which]
    child[edge], weight[edge] = of_pair[many], log[many]
    param[param_start[mine[literal]]] = s.literal[real][literal]
    at_leaf = leaf[owner] & keep[owner]
    nodes = number[s.node[owner[at_leaf]]]
    binary = kind[nodes] == BERNOULLI
    # A Bernoulli leaf has log p(1) first.
    offset = np.where(binary, 1 - s.prime[at_leaf], s.prime[at_leaf])
    param[param_start[nodes] + offset] = np.minimum(log[at_leaf], 0.0)
    circuit = Circuit(variables, kind, start, child, weight, var, param_start, param)
    root = int(number[network.root])
    if root == total - 1:
        return circuit
    raise AssertionError("the root is the last node of the last vtree node")


def _post_order(vtree: Vtree) -> tuple[list[int], IntArray, IntArray, IntArray, IntArray, IntArray]:
    order: list[int] = []
    depth = {vtree.num_nodes - 1: 0}
    stack = [vtree.num_nodes - 1]
    left, right = vtree.left.tolist(), vtree.right.tolist()
    while stack:  # node, right, left; read backwards: left, right, node
        v = stack.pop()
        order.append(v)
        if left[v] >= 0:
            depth[left[v]] = depth[right[v]] = depth[v] + 1
            stack += [left[v], right[v]]
    order.reverse()
    number = {v: i for i, v in enumerate(order)}
    lo, hi, column = [0] * len(order), [0] * len(order), 0
    for i, v in enumerate(order):
        if left[v] < 0:
            lo[i], hi[i] = column, column + 1
            column += 1
        else:
            lo[i], hi[i] = lo[number[left[v]]], hi[number[right[v]]]
    arrays = (
        [number.get(left[v], NONE) for v in order],
        [number.get(right[v], NONE) for v in order],
        lo,
        hi,
        [depth[v] for v in order],
    )
    a, b, c, d, e = (np.array(values, dtype=np.int32) for values in arrays)
    return order, a, b, c, d, e


@kernel
def _assign_rows(
    net: Net, order: IntArray, root: int, data: Codes, rows: IntArray, at: IntArray, number: IntArray
) -> int:
    """Find the element of every row at every vtree node, 64 rows at a time; -1, or a row that the circuit excludes."""
    top = int(net.size[NODES])
    value = np.zeros(top, dtype=np.uint64)
    flow = np.zeros(top, dtype=np.uint64)
    total = data.shape[0]
    inside = np.full((net.left.size, total), NONE, dtype=np.int32)
    for begin in range(0, total, 64):
        width = min(64, total - begin)
        all_ones = ~np.uint64(0) if width == 64 else (np.uint64(1) << np.uint64(width)) - np.uint64(1)
        for m in order:
            flow[m] = 0
            column = net.lo[net.place[m]]
            word = np.uint64(0)
            if net.literal[m] >= 0:
                for i in range(width):
                    if data[begin + i, column] == net.literal[m]:
                        word |= np.uint64(1) << np.uint64(i)
            elif net.left[net.place[m]] < 0:
                word = all_ones
            else:
                e = net.head[m]
                while e >= 0:
                    word |= value[net.prime[e]] & value[net.sub[e]]
                    e = net.after[e]
            value[m] = word
        if value[root] != all_ones:
            for i in range(width):
                if not (value[root] >> np.uint64(i)) & np.uint64(1):
                    return begin + i
        flow[root] = all_ones
        for j in range(order.size - 1, -1, -1):
            m = order[j]
            if flow[m] == 0 or net.literal[m] >= 0:
                continue
            place = net.place[m]
            e = net.head[m]
            while e >= 0:
                if net.left[place] < 0:
                    for i in range(width):
                        if (flow[m] >> np.uint64(i)) & np.uint64(1) and data[begin + i, net.lo[place]] == net.prime[e]:
                            inside[place, begin + i] = e
                else:
                    word = flow[m] & value[net.prime[e]] & value[net.sub[e]]
                    flow[net.prime[e]] |= word
                    flow[net.sub[e]] |= word
                    i = 0
                    while word:
                        if word & np.uint64(1):
                            inside[place, begin + i] = e
                        word >>= np.uint64(1)
                        i += 1
                e = net.after[e]
    # A counting sort of the rows at every vtree node.
    for m in order:
        e = net.head[m]
        while e >= 0:
            number[e] = 0
            e = net.after[e]
    for place in range(net.left.size):
        for r in range(total):
            if inside[place, r] >= 0:
                number[inside[place, r]] += 1
    used = np.zeros(net.left.size, dtype=np.int64)
    for m in order:
        e = net.head[m]
        while e >= 0:
            at[e] = used[net.place[m]]
            used[net.place[m]] += number[e]
            number[e] = 0
            e = net.after[e]
    for place in range(net.left.size):
        for r in range(total):
            e = inside[place, r]
            if e >= 0:
                rows[place, at[e] + number[e]] = r
                number[e] += 1
    return -1


@kernel
def node_tally(net: Net, m: int, inherit: bool) -> tuple[float, float]:
    """What the parameters of a node add to the two log-likelihoods."""
    total = 0
    e = net.head[m]
    while e >= 0:
        total += net.n[e]
        e = net.after[e]
    train, valid = 0.0, 0.0
    even = 1.0 / max(1, net.arity[m])
    e = net.head[m]
    while e >= 0:
        if net.n[e] > 0 or net.valid_n[e] > 0:
            prior = net.prior[e] if inherit else even
            mass = total + net.strength[m]
            theta = (net.n[e] + net.strength[m] * prior) / mass if mass > 0 else even
            log = np.log(max(theta, _LEAST))
            train += net.n[e] * log
            valid += net.valid_n[e] * log
        e = net.after[e]
    return train, valid


@kernel
def recount(net: Net, order: IntArray, inherit: bool) -> None:
    """Both log-likelihoods, from all nodes."""
    net.tally[:] = 0.0
    for m in order:
        train, valid = node_tally(net, m, inherit)
        net.tally[0] += train
        net.tally[1] += valid


@kernel
def _live_elements(net: Net, live: IntArray) -> tuple[IntArray, LongArray]:
    start = np.zeros(live.size + 1, dtype=np.int64)
    for i in range(live.size):
        start[i + 1] = start[i] + net.arity[live[i]]
    found = np.zeros(start[-1], dtype=np.int32)
    for i in range(live.size):
        e, k = net.head[live[i]], start[i]
        while e >= 0:
            found[k] = e
            k += 1
            e = net.after[e]
    return found, start
