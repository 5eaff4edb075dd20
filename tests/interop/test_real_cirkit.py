"""Circuits of cirkit itself, in double and in single precision, folded or not, fused or not."""

from __future__ import annotations

import numpy as np
import pytest

import howto
import margmap as mm
from real import agree, check_marginal_map, states_of

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cirkit.backend.torch", reason="libcirkit is not installed")

from cirkit.pipeline import PipelineContext  # noqa: E402
from cirkit.symbolic import functional  # noqa: E402
from cirkit.symbolic.circuit import Circuit  # noqa: E402
from cirkit.symbolic.layers import CategoricalLayer, HadamardLayer, SumLayer  # noqa: E402
from cirkit.templates import data_modalities, utils  # noqa: E402
from cirkit.utils.scope import Scope  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
SOFTMAX = utils.Parameterization(activation="softmax", initialization="normal")


@pytest.fixture(params=["float64", "float32"])
def precision(request):
    """The type of numbers that cirkit computes in, and how closely likelihoods agree then."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, request.param))
    torch.manual_seed(1)
    yield 1e-9 if request.param == "float64" else 1e-4
    torch.set_default_dtype(before)


def image(rows=2, columns=3, graph="quad-graph", layer="cp", leaves="categorical", **given):
    given = {"num_classes": 1, "sum_weight_param": SOFTMAX, **given}
    if leaves == "embedding":
        given["input_params"] = {"weight": SOFTMAX}
    return data_modalities.image_data(
        (1, rows, columns),
        region_graph=graph,
        input_layer=leaves,
        num_input_units=3,
        sum_product_layer=layer,
        num_sum_units=3,
        **given,
    )


def compiled(symbolic, fold=True, optimize=True, semiring="lse-sum"):
    return PipelineContext(backend="torch", semiring=semiring, fold=fold, optimize=optimize).compile(symbolic)


def likelihood(model, rows):
    with torch.no_grad():
        return model(torch.as_tensor(np.asarray(rows))).ravel().double().numpy()


@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("fold", [True, False])
@pytest.mark.parametrize("layer", ["cp", "cp-t", "tucker"])
@pytest.mark.parametrize("leaves", ["categorical", "binomial", "embedding"])
def test_likelihoods(precision, leaves, layer, fold, optimize):
    graphs = ("quad-graph", "random-binary-tree", "quad-tree-4", "poon-domingos", "linear-tree")
    for graph in graphs if fold and optimize else graphs[:2]:
        model = compiled(image(graph=graph, layer=layer, leaves=leaves), fold, optimize)
        circuit = mm.from_cirkit(model)
        # Far out in binomial tails cirkit's sums underflow: the rows are drawn from the circuit itself.
        rows = mm.sample(circuit, 500, seed=0) if leaves == "binomial" else states_of(circuit)
        # Single precision has seven digits of the log factorials in a binomial, which come to a thousand.
        tolerance = 1e-2 if leaves == "binomial" and precision > 1e-6 else precision
        agree(circuit, rows, likelihood(model, rows), tolerance)


def few_values(layer="hadamard", size=3, values=3):
    """Two pairs of variables with few values each, so that all states can be listed."""
    made, inputs = [], {}

    def add(node, *below):
        made.append(node)
        inputs[node] = list(below)
        return node

    leaf = [add(CategoricalLayer(Scope([i]), size, num_categories=values)) for i in range(4)]
    pairs = [add(HadamardLayer(size, 2), leaf[0], leaf[1]), add(HadamardLayer(size, 2), leaf[2], leaf[3])]
    weights = utils.parameterization_to_factory(SOFTMAX)
    sums = [add(SumLayer(size, size, weight_factory=weights), pair) for pair in pairs]
    top = add(HadamardLayer(size, 2), *sums)
    root = add(SumLayer(size, 1, weight_factory=weights), top)
    return Circuit(made, inputs, [root])


def test_answers(precision):
    for fold in (True, False):
        model = compiled(few_values(), fold)
        check_marginal_map(model, lambda rows, model=model: likelihood(model, rows), max(precision, 1e-8))


def test_answers_in_the_semiring_of_plain_numbers(precision):
    model = compiled(few_values(), semiring="sum-product")
    circuit = mm.as_model(model)
    rows = states_of(circuit)
    agree(circuit, rows, np.log(likelihood(model, rows)), precision)


def test_gaussian_layers(precision):
    model = compiled(image(2, 2, leaves="gaussian"))
    circuit = mm.from_cirkit(model)
    assert all(variable.continuous for variable in circuit.variables)
    rows = np.random.default_rng(0).normal(size=(200, 4))
    agree(circuit, rows, likelihood(model, rows.astype(torch.empty(0).numpy().dtype)), 10 * precision)
    with pytest.raises(mm.MargmapError, match="continuous"):
        mm.marginal_map(model, [0])


def test_squared_circuits_and_negative_weights_are_refused():
    torch.manual_seed(0)
    normal = utils.Parameterization(activation="none", initialization="normal")
    signed = image(1, 4, graph="random-binary-tree", leaves="embedding", sum_weight_param=normal)
    with pytest.raises(mm.MargmapError, match=r"Torch\w+Layer of cirkit has a negative weight"):
        mm.as_model(compiled(signed, semiring="complex-lse-sum"))
    squared = functional.multiply(signed, signed)
    with pytest.raises(mm.MargmapError, match="of cirkit"):
        mm.as_model(compiled(squared, semiring="complex-lse-sum"))


def test_what_cannot_be_read_is_named():
    symbolic = image()
    with pytest.raises(mm.MargmapError, match=r"a Circuit of cirkit has no parameters yet.*pipeline\.compile"):
        mm.as_model(symbolic)
    with pytest.raises(mm.MargmapError, match=r"TorchCircuit of cirkit has 3 roots.*num_classes = 1"):
        mm.as_model(compiled(image(num_classes=3)))
    part = compiled(functional.integrate(symbolic, scope=Scope([0, 1])))
    with pytest.raises(mm.MargmapError, match=r"observed or integrated.*evidence to margmap\.marginal_map"):
        mm.as_model(part)


def test_the_how_to_runs(tmp_path):
    howto.run("cirkit", tmp_path)
