"""The published circuits and vtrees, where the shared data folder is at hand."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from margmap.circuit import Circuit
from margmap.circuit.transform import log_totals
from margmap.circuit.vtree import vtree_of
from margmap.io.formats import load_circuit, load_vtree, save

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the shared data folder ../shared/data is not there")

PSDDS = sorted((DATA / "psdd").glob("*.psdd.gz"))
VTREES = DATA / "other" / "learnpsdd_vtrees.tar.gz"


def mass(circuit: Circuit) -> float:
    return float(log_totals(circuit)[-1])


@pytest.mark.parametrize("path", PSDDS, ids=lambda path: path.name)
def test_psdd(path: Path) -> None:
    circuit = load_circuit(path)
    assert circuit.names == tuple(range(1, len(circuit.names) + 1))
    assert abs(mass(circuit)) < 1e-3
    assert vtree_of(circuit).num_nodes == 2 * len(circuit.names) - 1


@pytest.mark.parametrize("name", ["nltcs", "mnist", "elevators", "asia.uai", "msnbc-yitao-a"])
def test_psdd_again(name: str, tmp_path: Path) -> None:
    circuit = load_circuit(DATA / "psdd" / f"{name}.psdd.gz")
    for suffix in ("psdd", "jpc", "spn", "ac", "json"):
        save(circuit, tmp_path / f"a.{suffix}")
        result = load_circuit(tmp_path / f"a.{suffix}")
        assert abs(mass(result) - mass(circuit)) < 1e-9
        assert len(result.names) == len(circuit.names)


def test_mnist_in_both_formats_is_one_circuit() -> None:
    jpc = load_circuit(DATA / "other" / "mnist_cats8_181.jpc.gz")
    spn = load_circuit(DATA / "other" / "mnist_cats8_181.spn.gz")
    assert jpc.names == tuple(range(1, 785))
    assert spn.names == tuple(range(784))
    for name in ("kind", "start", "child", "log_weight", "var", "param"):
        assert getattr(jpc, name).tolist() == getattr(spn, name).tolist()


@pytest.mark.parametrize(("name", "leaves"), [("50-20-5", 3842), ("DBN_11", 1760)])
def test_vtree(name: str, leaves: int, tmp_path: Path) -> None:
    vtree = load_vtree(DATA / "other" / f"{name}.vtree.gz")
    assert len(vtree.variables) == leaves
    save(vtree, tmp_path / "a.vtree")
    assert load_vtree(tmp_path / "a.vtree").in_order().tolist() == vtree.in_order().tolist()


@pytest.mark.skipif(not VTREES.is_file(), reason="the archive of learned vtrees is not there")
def test_learned_vtrees(tmp_path: Path) -> None:
    path = tmp_path / "a.vtree"
    count = 0
    with tarfile.open(VTREES) as archive:
        for member in archive:
            if member.name.endswith(".vtree") and (stream := archive.extractfile(member)):
                path.write_bytes(stream.read())
                assert load_vtree(path).num_nodes > 1
                count += 1
    assert count > 50
