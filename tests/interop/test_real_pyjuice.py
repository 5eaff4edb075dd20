"""Models of pyjuice itself.

pyjuice evaluates circuits on a GPU only, so that likelihoods are computed here from the nodes' own parameters, with the
matrices that ``get_params(as_matrix=True)`` returns, in double precision.
"""

from __future__ import annotations

import contextlib
import time

import numpy as np
import pytest

import howto
import margmap as mm
from real import agree, check_marginal_map, states_of

torch = pytest.importorskip("torch", reason="torch is not installed")
juice = pytest.importorskip("pyjuice", reason="pyjuice is not installed")
dists = pytest.importorskip("pyjuice.nodes.distributions")
pytestmark = pytest.mark.filterwarnings("ignore")


def likelihood(root, rows):
    """The log-likelihoods of rows, from the nodes."""
    rows = torch.as_tensor(np.asarray(rows))
    values = {}
    for ns in root:
        if ns.is_input():
            (variable,) = ns.scope.to_list()
            values[ns] = table(ns)[:, rows[:, variable]].T
        elif ns.is_prod():
            edges, size = ns.edge_ids, ns.block_size
            if ns.is_block_sparse():
                edges = (edges[:, None, :] * size + torch.arange(size)[None, :, None]).reshape(ns.num_nodes, -1)
            values[ns] = torch.stack([values[c][:, edges[:, j]] for j, c in enumerate(ns.chs)]).prod(0)
        else:
            weights = ns.get_source_ns().get_params(as_matrix=True).double()
            values[ns] = torch.cat([values[c] for c in ns.chs], 1) @ weights.T
    return values[root][:, 0].log().numpy()


def table(ns):
    dist, name = ns.dist, type(ns.dist).__name__
    if name == "Literal":
        return (torch.arange(2) == dist.lit).double().expand(ns.num_nodes, 2)
    parameters = ns.get_source_ns()._params.double()
    if name == "Bernoulli":
        return torch.stack((1 - parameters, parameters), -1)
    if name == "DiscreteLogistic":
        mean, scale = parameters.reshape(-1, 2).T
        low, high = dist.val_range
        ends = low + (high - low) / dist.num_cats * torch.arange(1, dist.num_cats).double()
        below = torch.sigmoid((ends - mean[:, None]) / scale[:, None])
        return torch.diff(below, dim=1, prepend=torch.zeros(len(mean), 1), append=torch.ones(len(mean), 1))
    return parameters.reshape(ns.num_nodes, -1)[:, : dist.num_cats]


def rows_of_data(values):
    torch.manual_seed(1)
    data = torch.randint(0, values, (300, 6))
    data[:, 1] = (data[:, 0] + (torch.rand(300) < 0.2)) % values
    data[:, 4] = (data[:, 3] + (torch.rand(300) < 0.1)) % values
    return data


def hclt():
    return juice.structures.HCLT(rows_of_data(3).float(), num_latents=8, num_bins=3, input_node_params={"num_cats": 3})


def rat_spn():
    dist = dists.Categorical(num_cats=3)
    return juice.structures.RAT_SPN(num_vars=6, num_latents=4, depth=2, num_repetitions=3, input_dist=dist)


def hmm():
    return juice.structures.HMM(seq_length=6, num_latents=4, num_emits=3)


def by_hand(dist, blocks=2, size=2, **given):
    """Two regions of two variables with blocks, sparse edges, and a sum over two products."""
    with juice.set_block_size(size):
        a, b, c = (juice.inputs(i, num_node_blocks=blocks, dist=dist, **given) for i in range(3))
        ab = juice.summate(juice.multiply(a, b), num_node_blocks=blocks)
        edges = torch.tensor([[0, 0, 1], [0, 1, 1]])
        also = juice.summate(juice.multiply(a, b), num_node_blocks=blocks, edge_ids=edges)
        tops = [juice.multiply(ab, c), juice.multiply(also, c)]
    return juice.summate(*tops, num_node_blocks=1, block_size=1)


MODELS = {
    "hclt": hclt,
    "rat_spn": rat_spn,
    "hmm": hmm,
    "bernoulli": lambda: by_hand(dists.Bernoulli()),
    "categorical": lambda: by_hand(dists.Categorical(num_cats=4)),
    "logistic": lambda: by_hand(dists.DiscreteLogistic(val_range=(0.0, 1.0), num_cats=5)),
    "masked": lambda: by_hand(
        dists.MaskedCategorical(num_cats=4, mask_mode="range"), mask=torch.tensor([[0, 2], [1, 4], [0, 4], [2, 4]])
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_likelihoods_and_answers(name):
    torch.manual_seed(7)
    root = MODELS[name]()
    root.init_parameters()
    circuit = mm.from_pyjuice(root)
    rows = states_of(circuit)
    agree(circuit, rows, likelihood(root, rows), 1e-9)
    check_marginal_map(root, lambda rows: likelihood(root, rows), 1e-8)


def test_tied_parameters_are_those_of_their_source():
    torch.manual_seed(2)
    x = [juice.inputs(i, num_node_blocks=3, dist=dists.Categorical(num_cats=2)) for i in range(2)]
    y = [x[0].duplicate(2, tie_params=True), x[1].duplicate(3, tie_params=True)]
    left = juice.summate(juice.multiply(*x), num_node_blocks=3)
    right = left.duplicate(juice.multiply(*y), tie_params=True)
    root = juice.summate(juice.multiply(left, right), num_node_blocks=1)
    root.init_parameters()
    circuit = mm.from_pyjuice(root, ["a", "b", "c", "d"])
    assert circuit.names == ("a", "b", "c", "d")
    rows = states_of(circuit)
    agree(circuit, rows, likelihood(root, rows), 1e-9)


def test_a_compiled_circuit_has_what_was_learned(monkeypatch):
    """Compiling asks for a GPU in three places that need none."""
    monkeypatch.setattr(torch.cuda, "device", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self, *_: self)
    torch.manual_seed(3)
    root = by_hand(dists.Categorical(num_cats=3))
    root.init_parameters()
    compiled = juice.compile(root, device=0, disable_gpu_compilation=True, verbose=False)
    before = likelihood(root, states_of(mm.from_pyjuice(root)))
    with torch.no_grad():  # a step of learning: the parameters on the device change, those of the nodes do not
        for ns in root:
            if ns.is_sum():
                start, end = ns._param_range
                compiled.params[start:end] = compiled.params[start:end] ** 2
    circuit = mm.as_model(compiled)
    rows = states_of(circuit)
    after = likelihood(root, rows)
    assert np.abs(after - before).max() > 0.01
    agree(circuit, rows, after, 1e-9)


def test_what_cannot_be_read_is_named():
    root = by_hand(dists.External())
    with pytest.raises(mm.MargmapError, match=r"External of pyjuice, which takes evidence from outside"):
        mm.as_model(root)
    several = juice.inputs(0, num_node_blocks=3, dist=dists.Categorical(num_cats=2))
    several.init_parameters()
    with pytest.raises(mm.MargmapError, match=r"InputNodes of pyjuice has 3 roots.*summate"):
        mm.as_model(several)
    with pytest.raises(mm.MargmapError, match=r"no parameters: call init_parameters"):
        mm.as_model(by_hand(dists.Categorical(num_cats=2)))


def test_gaussians_are_integrated_or_observed_and_not_asked():
    torch.manual_seed(5)
    root = by_hand(dists.Gaussian(mu=0.0, sigma=1.0))
    root.init_parameters()
    circuit = mm.as_model(root)
    assert mm.log_marginal(circuit, {}) == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(mm.MargmapError, match="continuous"):
        mm.marginal_map(root, [0])


def test_its_pickles_are_refused_with_the_way_to_convert_them(tmp_path):
    torch.manual_seed(0)
    root = hmm()
    root.init_parameters()
    juice.save(str(tmp_path / "model.jpc"), root)
    with pytest.raises(mm.FormatError, match=r"Python pickle.*margmap\.from_pyjuice\(pyjuice\.load\("):
        mm.load(tmp_path / "model.jpc")


def test_784_variables_and_64_states(tmp_path):
    """Two million edges, by layers and not by a loop over edges; the time is printed."""
    torch.manual_seed(0)
    data = torch.randint(0, 2, (50, 784)).float()
    root = juice.structures.HCLT(data, num_latents=64, num_bins=2, input_node_params={"num_cats": 2})
    root.init_parameters()
    begun = time.perf_counter()
    circuit = mm.from_pyjuice(root)
    print(f"{circuit} in {time.perf_counter() - begun:.2f} s")
    assert circuit.num_edges > 2_000_000


def test_the_how_to_runs(tmp_path):
    howto.run("pyjuice", tmp_path)
