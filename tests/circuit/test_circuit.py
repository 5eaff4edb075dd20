"""The Circuit value: its arrays, what it refuses, and how it finds variables and values."""

import numpy as np
import pytest

import naive
from circuits import SORTS, random_circuit, running_example, without_sharing
from margmap import Circuit, QueryError, StructureError, Variable, circuit_of, gaussian
from margmap.circuit import (
    BERNOULLI,
    BINOMIAL,
    CATEGORICAL,
    GAUSSIAN,
    INDICATOR,
    MAX_CARDINALITY,
    PRODUCT,
    SUM,
    Parts,
    assemble,
)
from margmap.circuit.builder import reordered, sharing_equal
from margmap.inference.queries import value_pair
from margmap.inference.scaled import scaled

ARRAYS = ("kind", "start", "child", "log_weight", "var", "param_start", "param")


def arrays_of(circuit):
    return {name: getattr(circuit, name).copy() for name in ARRAYS}


def small():
    """0: [a = 1], 1: [a = 0], 2: Bernoulli(b), 3: product 0 2, 4: product 1 2, 5: sum."""
    parts = Parts.new()
    a1, a0 = parts.leaf(INDICATOR, 0, [1.0]), parts.leaf(INDICATOR, 0, [0.0])
    b = parts.leaf(BERNOULLI, 1, [np.log(0.3), np.log(0.7)])
    products = [parts.product([a1, b]), parts.product([a0, b])]
    parts.sum(products, [np.log(0.4), np.log(0.6)])
    return assemble([Variable("a"), Variable("b")], parts)


def altered(**changes):
    """The arrays of ``small`` with entries changed: ``kind=(2, 9)`` sets kind[2] = 9."""
    arrays = arrays_of(small())
    for name, (index, value) in changes.items():
        arrays[name][index] = value
    return [Variable("a"), Variable("b")], arrays


class TestValue:
    def test_counts(self):
        c = small()
        assert (c.num_nodes, c.num_edges, c.root, c.depth, c.names) == (6, 6, 5, 2, ("a", "b"))
        assert repr(c) == "Circuit(2 variables, 6 nodes, 6 edges)"

    @pytest.mark.parametrize("sort", SORTS)
    def test_children_come_first_and_depth_is_right(self, sort):
        c = random_circuit(np.random.default_rng(5), **SORTS[sort])
        depth = []
        for n in range(c.num_nodes):
            below = c.child[c.start[n] : c.start[n + 1]].tolist()
            assert all(b < n for b in below)
            depth.append(1 + max(depth[b] for b in below) if below else 0)
        assert c.depth == depth[-1]

    @pytest.mark.parametrize("name", ARRAYS)
    def test_arrays_are_read_only(self, name):
        array = getattr(small(), name)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
        assert array.base is None or not array.base.flags.writeable

    def test_later_changes_of_the_given_arrays_do_not_reach_the_circuit(self):
        arrays = arrays_of(small())
        c = Circuit([Variable("a"), Variable("b")], **arrays)
        for array in arrays.values():
            array[:] = 0
        for name in ARRAYS:
            assert getattr(c, name).tolist() == getattr(small(), name).tolist()

    @pytest.mark.parametrize("name", ARRAYS)
    def test_a_read_only_view_of_a_writable_array_is_copied(self, name):
        arrays = arrays_of(small())
        owner = arrays[name]
        arrays[name] = owner.view()
        arrays[name].setflags(write=False)
        c = Circuit([Variable("a"), Variable("b")], **arrays)
        before = owner.tolist()
        owner[:] = 0
        assert getattr(c, name).tolist() == before

    def test_plain_lists(self):
        c = Circuit([Variable("a"), Variable("b")], **{name: a.tolist() for name, a in arrays_of(small()).items()})
        for name in ARRAYS:
            assert getattr(c, name).tolist() == getattr(small(), name).tolist()
            assert getattr(c, name).dtype == getattr(small(), name).dtype

    def test_derived_values_are_computed_once(self):
        c = small()
        assert c.scopes is c.scopes
        assert c.properties is c.properties
        assert scaled(c) is scaled(c)

    def test_arrays_have_fixed_types(self):
        arrays = {name: array.astype(np.int64 if name != "log_weight" else np.float64)
                  for name, array in arrays_of(circuit_of(Variable("a")[1])).items()}  # fmt: skip
        c = Circuit([Variable("a")], **arrays)
        types = [str(getattr(c, name).dtype) for name in ARRAYS]
        assert types == ["int8", "int64", "int32", "float64", "int32", "int64", "float64"]


class TestAssemble:
    def test_leaves_out_what_is_not_below_the_root(self):
        parts = Parts.new()
        parts.leaf(CATEGORICAL, 0, [0.0, -np.inf])
        a = parts.leaf(INDICATOR, 0, [1.0])
        b = parts.leaf(BERNOULLI, 1, [-0.1, -2.0])
        parts.sum([a], [0.0])
        root = parts.product([a, b])
        parts.sum([root], [0.0])
        c = assemble([Variable("a"), Variable("b")], parts, root)
        assert c.kind.tolist() == [INDICATOR, BERNOULLI, PRODUCT]
        assert c.child.tolist() == [0, 1]
        assert c.param.tolist() == [1.0, -0.1, -2.0]
        assert c.param_start.tolist() == [0, 1, 3, 3]

    def test_no_nodes(self):
        with pytest.raises(StructureError, match="at least one node"):
            assemble([Variable("a")], Parts.new())

    @pytest.mark.parametrize("child", [-1, 1, 5])
    def test_a_child_after_its_parent(self, child):
        parts = Parts.new()
        parts.leaf(INDICATOR, 0, [1.0])
        parts.product([0, child])
        with pytest.raises(StructureError, match="before its parent"):
            assemble([Variable("a")], parts)


class TestRefused:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"kind": (2, 9)}, r"node 2 \(unknown over variable 'b'\): this kind of node does not exist"),
            ({"kind": (2, -1)}, r"node 2 .*does not exist"),
            ({"kind": (3, INDICATOR)}, r"node 3 .*a leaf has no children"),
            ({"kind": (1, SUM)}, r"node 1 .*needs at least one child"),
            ({"child": (0, 4)}, r"node 3 \(product\): a child must come before its parent"),
            ({"child": (5, 5)}, r"node 5 \(sum\): a child must come before its parent"),
            ({"child": (0, -1)}, r"node 3 .*before its parent"),
            ({"log_weight": (4, np.nan)}, r"node 5 \(sum\): a weight is not a number"),
            ({"log_weight": (5, np.inf)}, r"node 5 \(sum\): a weight is infinite"),
            ({"log_weight": (1, -0.5)}, r"node 3 \(product\): an edge below a product has a weight"),
            ({"var": (2, 2)}, r"node 2 \(bernoulli\): its variable does not exist"),
            ({"var": (2, -1)}, r"node 2 .*its variable does not exist"),
            ({"param": (0, 2.0)}, r"node 0 \(indicator over variable 'a'\): its value is out of range"),
            ({"param": (1, 0.5)}, r"node 1 .*its value is out of range"),
            ({"param": (1, np.nan)}, r"node 1 .*its value is out of range"),
            ({"param": (2, 0.5)}, r"node 2 \(bernoulli over variable 'b'\): a probability is not in 0 to 1"),
            ({"param": (3, np.nan)}, r"node 2 .*a probability is not in 0 to 1"),
            ({"kind": (2, INDICATOR)}, r"node 2 .*wrong number of parameters"),
            ({"kind": (2, GAUSSIAN)}, r"node 2 .*a discrete variable cannot have a Gaussian leaf"),
            ({"start": (0, 1)}, "do not fit together"),
            ({"start": (4, 5)}, "do not fit together"),
            ({"param_start": (-1, 9)}, "do not fit together"),
        ],
    )
    def test_a_broken_array(self, changes, message):
        variables, arrays = altered(**changes)
        with pytest.raises(StructureError, match=message):
            Circuit(variables, **arrays)

    @pytest.mark.parametrize("name", ARRAYS)
    def test_an_array_of_another_length(self, name):
        arrays = arrays_of(small())
        arrays[name] = np.append(arrays[name], arrays[name][-1])
        with pytest.raises(StructureError):
            Circuit([Variable("a"), Variable("b")], **arrays)

    @pytest.mark.parametrize("name", ARRAYS)
    @pytest.mark.parametrize(
        "bad", [None, 5, "abc", [None], [[0]], [[0], [0, 1]], ["0"], [1j], [10**400], np.array([{}]), object()]
    )
    def test_something_that_is_no_array_of_numbers(self, name, bad):
        with pytest.raises(StructureError, match=f"{name} must be a list or an array of"):
            Circuit([Variable("a"), Variable("b")], **{**arrays_of(small()), name: bad})

    @pytest.mark.parametrize(
        ("name", "value"), [("kind", 256), ("kind", 0.5), ("child", 1 << 32), ("var", np.nan), ("start", 1e300)]
    )
    def test_a_number_that_does_not_fit(self, name, value):
        arrays = arrays_of(small())
        array = arrays[name].astype(np.float64 if isinstance(value, float) else np.int64)
        array[0] = value
        with pytest.raises(StructureError, match=f"{name} must be a list or an array of integers"):
            Circuit([Variable("a"), Variable("b")], **{**arrays, name: array})

    @pytest.mark.parametrize("variables", [5, None, ["a", "b"], [Variable("a"), None]])
    def test_variables_that_are_none(self, variables):
        with pytest.raises(StructureError, match="variables must be a list of Variable"):
            Circuit(variables, **arrays_of(small()))

    def test_no_nodes(self):
        empty = {name: array[:0] for name, array in arrays_of(small()).items()}
        with pytest.raises(StructureError, match="at least one node"):
            Circuit([Variable("a")], **empty)

    def test_a_name_used_twice(self):
        with pytest.raises(StructureError, match="variable 'a' is there twice"):
            Circuit([Variable("a"), Variable("a", 3)], **arrays_of(small()))

    @pytest.mark.parametrize(
        ("kind", "cardinality", "parameters", "message"),
        [
            (INDICATOR, 0, [0.0], "a continuous variable needs a Gaussian leaf"),
            (BERNOULLI, 3, [-1.0, -1.0], "a Bernoulli leaf needs a variable with two values"),
            (CATEGORICAL, 3, [-1.0, -1.0], "wrong number of parameters"),
            (CATEGORICAL, 2, [-1.0, 1.0], "a probability is not in 0 to 1"),
            (BINOMIAL, 4, [4.0, -1.0, -1.0], r"n trials need a variable with n \+ 1 values"),
            (BINOMIAL, 4, [3.0, 0.1, -1.0], "a probability is not in 0 to 1"),
            (BINOMIAL, 4, [3.0, -1.0, -1.0], r"p and 1 - p do not add up to 1"),
            (BINOMIAL, 4, [3.0, np.log(0.3), np.log(0.7 + 2e-6)], r"p and 1 - p do not add up to 1"),
            (BINOMIAL, 4, [3.0, -np.inf, -np.inf], r"p and 1 - p do not add up to 1"),
            (GAUSSIAN, 0, [np.nan, 1.0], "a parameter is not finite"),
            (GAUSSIAN, 0, [0.0, np.inf], "a parameter is not finite"),
            (GAUSSIAN, 0, [0.0, 0.0], "the standard deviation must be positive"),
            (GAUSSIAN, 0, [0.0, -1.0], "the standard deviation must be positive"),
        ],
    )
    def test_a_leaf(self, kind, cardinality, parameters, message):
        parts = Parts.new()
        parts.leaf(kind, 0, parameters)
        with pytest.raises(StructureError, match=f"node 0 .*over variable 'v'.*{message}"):
            assemble([Variable("v", cardinality)], parts)

    @pytest.mark.parametrize("p", [(-np.inf, 0.0), (0.0, -np.inf), (np.log(0.3), np.log(0.7 + 5e-7))])
    def test_a_binomial_leaf_that_is_right_or_nearly_so(self, p):
        parts = Parts.new()
        parts.leaf(BINOMIAL, 0, [3.0, *p])
        assert assemble([Variable("v", 4)], parts).num_nodes == 1


class TestVariable:
    def test_codes_and_labels(self):
        v = Variable("colour", 3, ("red", "green", "blue"))
        assert [v.code(x) for x in ("green", " blue ", np.str_("red"))] == [1, 2, 0]
        plain = Variable("x", 3)
        assert [plain.code(x) for x in (2, "0", "1.0", 1.0, np.int64(2), np.float32(1))] == [2, 0, 1, 1, 2, 1]
        assert [v.label(x) for x in range(3)] == ["red", "green", "blue"]
        assert Variable("x", 3).label(np.int32(2)) == 2
        assert type(Variable("x", 3).label(np.int32(2))) is int

    def test_a_state_name_that_looks_like_a_number(self):
        v = Variable("n", 2, ("1", "0"))
        assert [v.code(x) for x in ("1", 1, 1.0, "1.0", np.int8(1), np.float64(1))] == [0] * 6

    @pytest.mark.parametrize(
        ("value", "message"),
        [
            ("pink", "variable 'colour' has no state 'pink': its states are red, green"),
            (1, "variable 'colour' has no state 1: its states are red, green"),
            ("0", "variable 'colour' has no state '0': its states are red, green"),
            (True, "no state True"),
            (float("nan"), "no state nan"),
            (None, "variable 'colour': None is neither a number nor the name of a state"),
            (b"red", "neither a number nor the name of a state"),
        ],
    )
    def test_bad_values(self, value, message):
        with pytest.raises(QueryError, match=message):
            Variable("colour", 2, ("red", "green")).code(value)

    def test_no_state_names(self):
        with pytest.raises(QueryError, match="it has no state names"):
            Variable("x").code("on")
        for value, message in [
            (2, "variable 'x': value 2 is out of range 0 to 1"),
            (-1, "value -1 is out of range 0 to 1"),
            ("7", "value 7 is out of range"),
            (0.5, "value 0.5 is not an integer"),
            (float("nan"), "value nan is not an integer"),
            (float("inf"), "value inf is not an integer"),
            (True, "True is no number: write 0 to 1"),
            (np.False_, "False is no number"),
            ("True", "has no state 'True'"),
            ("0_1", "has no state '0_1'"),
            ("１", "has no state '１'"),
            (10**5000, "out of range"),
        ]:
            with pytest.raises(QueryError, match=message):
                Variable("x").code(value)

    def test_continuous(self):
        assert Variable("x", 0).continuous
        assert not Variable("x", 1).continuous
        with pytest.raises(QueryError, match="variable 'x' is continuous"):
            Variable("x", 0).code(1)

    @pytest.mark.parametrize("cardinality", [-1, MAX_CARDINALITY + 1])
    def test_cardinality_out_of_range(self, cardinality):
        with pytest.raises(StructureError, match=f"variable 'x': cardinality {cardinality} is not in 0"):
            Variable("x", cardinality)

    @pytest.mark.parametrize("name", [None, True, 1.5, ("a",)])
    def test_bad_names(self, name):
        with pytest.raises(StructureError, match="name is a string or an integer"):
            Variable(name)

    def test_bad_states(self):
        with pytest.raises(StructureError, match="1 state names for 2 values"):
            Variable("x", 2, ("on",))
        with pytest.raises(StructureError, match="not distinct"):
            Variable("x", 2, ("on", "on"))

    def test_is_frozen(self):
        with pytest.raises(AttributeError):
            Variable("x").cardinality = 3


class TestIndex:
    def test_by_name_and_by_text(self):
        parts = Parts.new()
        parts.product([parts.leaf(INDICATOR, i, [0.0]) for i in range(3)])
        c = assemble([Variable(7), Variable("8"), Variable("x")], parts)
        assert [c.index(name) for name in (7, "7", 7.0, np.int64(7), "8", 8, np.float32(8), "x")] == [0] * 4 + [
            1
        ] * 3 + [2]
        for name in (True, "7.0", " 7", "0_7", "７", 7.5, 10**400, [7], {}):
            with pytest.raises(QueryError, match="unknown variable"):
                c.index(name)

    def test_a_name_that_can_mean_two_variables(self):
        parts = Parts.new()
        parts.product([parts.leaf(INDICATOR, i, [0.0]) for i in range(3)])
        c = assemble([Variable(7), Variable("8"), Variable(8)], parts)
        for name in ("8", 8, np.int64(8), 8.0):
            with pytest.raises(QueryError, match="can mean the variable '8' or the variable 8"):
                c.index(name)
        assert [c.index(variable) for variable in c.variables] == [0, 1, 2]
        assert [c.own(name) for name in (7, "7", "8", 8)] == [0, 0, 1, 2]

    @pytest.mark.parametrize("name", ["X4", 1, None, 1.0, (1,)])
    def test_unknown_names_list_the_known_ones(self, name):
        with pytest.raises(QueryError) as caught:
            running_example().index(name)
        assert str(caught.value) == f"unknown variable {name!r}: the circuit has X1, X2, X3"

    def test_many_known_names_are_shortened(self):
        parts = Parts.new()
        parts.product([parts.leaf(INDICATOR, i, [0.0]) for i in range(20)])
        c = assemble([Variable(f"v{i}") for i in range(20)], parts)
        with pytest.raises(QueryError, match=r"the circuit has v0, v1, .*v6, \.\.\. v19 \(20 in all\)"):
            c.index("w")


class TestEvidenceCodes:
    def test_discrete_and_continuous(self):
        x, g, s = Variable("x", 3), Variable("g", 0), Variable("s", 2, ("off", "on"))
        c = circuit_of(x[0] * gaussian(g, 0, 1) * s["on"])
        codes, reals = c.evidence_codes({"s": "on", "g": "1.5"})
        assert codes[[0, 2]].tolist() == [3, 1]
        assert np.isnan(reals[[0, 2]]).all()
        assert reals[1] == 1.5

    @pytest.mark.parametrize("value", ["tall", "nan", np.inf])
    def test_bad_reals(self, value):
        c = circuit_of(gaussian(Variable("g", 0), 0, 1))
        with pytest.raises(QueryError, match="variable 'g'"):
            c.evidence_codes({"g": value})


def test_generated_circuits_cover_every_kind_of_node():
    seen, shared, twice, single = set(), False, False, False
    for sort, options in SORTS.items():
        for seed in range(30):
            c = random_circuit(np.random.default_rng(seed), **options)
            seen |= set(c.kind.tolist())
            shared |= bool((np.bincount(c.child, minlength=1) > 1).any())
            for n in range(c.num_nodes):
                below = c.child[c.start[n] : c.start[n + 1]].tolist()
                twice |= len(set(below)) < len(below)
                single |= len(below) == 1
            assert naive.probability(c) > 0, sort
    assert seen == set(range(SUM + 1))
    assert shared
    assert twice
    assert single


def described(circuit):
    """All that makes a node what it is, of each node."""
    for n in range(circuit.num_nodes):
        edges = slice(circuit.start[n], circuit.start[n + 1])
        params = circuit.param[circuit.param_start[n] : circuit.param_start[n + 1]]
        below = (tuple(circuit.child[edges].tolist()), circuit.log_weight[edges].tobytes())
        yield (int(circuit.kind[n]), int(circuit.var[n]), params.tobytes(), *below)


@pytest.mark.parametrize("sort", SORTS)
def test_equal_nodes_are_made_one(sort):
    rng = np.random.default_rng(3)
    for _ in range(6):
        tree = without_sharing(random_circuit(rng, **SORTS[sort]))
        shared = sharing_equal(tree)
        nodes = list(described(shared))
        assert len(set(nodes)) == len(nodes)
        assert sharing_equal(shared) is shared
        assert scaled(shared)[-3:] == scaled(tree)[-3:]  # the total mass, and the count of roundings
        for _ in range(5):
            known = {v.name: v.label(int(rng.integers(v.cardinality))) for v in tree.variables if not v.continuous}
            row = tree.evidence_codes({name: value for name, value in known.items() if rng.random() < 0.7})
            assert value_pair(shared, *row) == value_pair(tree, *row)


def another_order(rng, circuit):
    """The nodes in an order of chance, children first."""
    parents = [[] for _ in range(circuit.num_nodes)]
    left = np.diff(circuit.start)
    for n in range(circuit.num_nodes):
        for c in circuit.child[circuit.start[n] : circuit.start[n + 1]]:
            parents[c].append(n)
    ready, order = np.flatnonzero(left == 0).tolist(), []
    while ready:
        order.append(ready.pop(int(rng.integers(len(ready)))))
        for n in parents[order[-1]]:
            left[n] -= 1
            if left[n] == 0:
                ready.append(n)
    return np.array(order, dtype=np.int64)


@pytest.mark.parametrize("sort", SORTS)
def test_nodes_in_another_order_have_the_same_values(sort):
    rng, moved = np.random.default_rng(4), 0
    for _ in range(8):
        circuit = random_circuit(rng, **SORTS[sort])
        order = another_order(rng, circuit)
        if order[-1] != circuit.root:  # a node that the root does not reach
            order = np.append(order[order != circuit.root], circuit.root)
        found = reordered(circuit, order)
        assert found.variables == circuit.variables
        assert (found.num_nodes, found.num_edges, found.depth) == (circuit.num_nodes, circuit.num_edges, circuit.depth)
        for _ in range(6):
            known = {v.name: v.label(int(rng.integers(v.cardinality))) for v in circuit.variables if not v.continuous}
            known |= {v.name: float(rng.normal()) for v in circuit.variables if v.continuous}
            row = circuit.evidence_codes({name: value for name, value in known.items() if rng.random() < 0.7})
            assert value_pair(found, *row) == value_pair(circuit, *row)
            state = tuple(int(rng.integers(max(1, v.cardinality))) for v in circuit.variables)
            values = [naive.node_values(one, [state]) for one in (found, circuit)]
            assert values[0] == [values[1][n] for n in order]
        moved += not np.array_equal(order, np.arange(order.size))
    assert moved > 3


def test_nodes_that_differ_in_one_number_are_not_made_one():
    x, y = Variable("x"), Variable("y")
    less = np.nextafter(0.3, 0)
    parts = Parts.new()
    leaves = [parts.leaf(BERNOULLI, column, [np.log(p), np.log(1 - p)]) for column in (0, 1) for p in (0.3, less, 0.3)]
    pairs = [parts.product([leaves[i], leaves[3 + i]]) for i in range(3)]
    parts.sum([*pairs, parts.product([leaves[0], leaves[4]])], np.log([0.4, 0.3, 0.2, 0.1]).tolist())
    circuit = assemble([x, y], parts)
    shared = sharing_equal(circuit)
    assert (circuit.num_nodes, shared.num_nodes) == (11, 8)  # both third leaves go, and the product of the two
    assert shared.num_edges == circuit.num_edges - 2  # the sum keeps both edges to the node that is left


def test_a_node_that_equals_the_root_but_is_not_below_it():
    parts = Parts.new()
    a = [parts.leaf(INDICATOR, 0, [value]) for value in (0.0, 1.0)]
    for _ in range(2):
        parts.sum(a, [np.log(0.25), np.log(0.75)])
    types = (np.int8, np.int64, np.int32, np.float64, np.int32, np.int64, np.float64)
    arrays = [np.array(part, dtype=dtype) for part, dtype in zip(parts, types, strict=True)]
    shared = sharing_equal(Circuit([Variable("a")], *arrays))
    assert shared.kind[shared.root] == SUM
    assert shared.num_nodes == 4
