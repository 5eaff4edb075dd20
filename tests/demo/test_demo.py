"""The bundled models and the questions asked of them."""

from __future__ import annotations

import itertools
import math
import runpy
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

import margmap as mm
from margmap import demo

SCRIPTS = Path(__file__).parents[2] / "scripts"


# The clinic.


def test_the_model_is_what_the_script_makes() -> None:
    bundled, made = demo.load_model(), runpy.run_path(str(SCRIPTS / "make_demo_model.py"))["clinic"]()
    assert bundled.variables == made.variables
    for name in ("kind", "start", "child", "var", "param_start"):
        assert np.array_equal(getattr(bundled, name), getattr(made, name))
    for name in ("log_weight", "param"):
        assert getattr(bundled, name) == pytest.approx(getattr(made, name), rel=1e-12)


@pytest.mark.parametrize("load", [demo.load_model, demo.load_digits])
def test_the_models_are_distributions(load) -> None:
    circuit = load()
    assert mm.log_marginal(circuit) == pytest.approx(0, abs=1e-9)
    properties = circuit.properties
    assert properties.smooth
    assert properties.decomposable
    assert properties.normalised


def test_mpe_gives_another_answer_than_marginal_map() -> None:
    circuit = demo.load_model()
    found = demo.compare(circuit)
    assert found.marginal_map.status == found.mpe.status == "optimal"
    assert found.marginal_map.state == {"illness": "flu", "course": "severe"}
    assert found.projected == {"illness": "cold", "course": "mild"}
    assert math.exp(found.marginal_map.log_conditional) == pytest.approx(0.438, abs=1e-3)
    assert math.exp(found.log_projected) == pytest.approx(0.246, abs=1e-3)


def test_both_answers_are_right_by_enumeration() -> None:
    circuit = demo.load_model()
    found = demo.compare(circuit)
    asked = [circuit.variables[circuit.index(name)] for name in demo.QUERY]
    marginals = {
        states: mm.log_conditional(circuit, dict(zip(demo.QUERY, states, strict=True)), demo.EVIDENCE)
        for states in itertools.product(*(variable.states for variable in asked))
    }
    assert sum(map(math.exp, marginals.values())) == pytest.approx(1)
    assert max(marginals, key=lambda states: marginals[states]) == tuple(found.marginal_map.state.values())
    assert found.marginal_map.log_conditional == pytest.approx(max(marginals.values()))

    observed = {circuit.index(name): value for name, value in demo.EVIDENCE.items()}
    values = [
        [variable.code(observed[i])] if i in observed else range(variable.cardinality)
        for i, variable in enumerate(circuit.variables)
    ]
    rows = np.array(list(itertools.product(*values)))
    assert found.mpe.log_prob == pytest.approx(float(mm.log_likelihood(circuit, rows).max()))


# The digits.


def test_the_digits_model_is_a_learned_circuit_and_small() -> None:
    circuit = demo.load_digits()
    assert circuit.names == tuple(range(1, 65))
    assert circuit.properties[:5] == (True,) * 5
    assert (Path(demo.__file__).parent / "models" / demo.DIGITS_MODEL).stat().st_size < 300_000


def test_the_digits_model_is_what_the_script_learns() -> None:
    """The rows, and how likely they are; the script itself takes its time and is not run here."""
    pytest.importorskip("sklearn")
    script = runpy.run_path(str(SCRIPTS / "make_digits_model.py"))
    rows, labels = script["digits"]()
    start = script["TRAIN"] + script["VALID"]
    circuit = demo.load_digits()
    assert mm.log_likelihood(circuit, rows[:1300]).mean() == pytest.approx(-17.582, abs=1e-3)
    assert mm.log_likelihood(circuit, rows[start:]).mean() == pytest.approx(-18.556, abs=1e-3)
    unseen = {(int(label), tuple(row)) for row, label in zip(rows[start:].tolist(), labels[start:], strict=True)}
    assert {(d.label, d.pixels) for d in demo.held_out()} <= unseen


def test_the_two_answers_on_digits_differ() -> None:
    circuit = demo.load_digits()
    shown = demo.held_out()
    assert len(shown) == len({digit.label for digit in shown}) >= 3
    for digit in shown:
        found = demo.complete_digit(circuit, digit)
        assert found.marginal_map.status == found.mpe.status == "optimal"
        assert len(found.marginal_map.state) == 16
        assert found.projected != found.marginal_map.state
        assert found.marginal_map.log_conditional > found.log_projected
        assert found.marginal_map.log_conditional == pytest.approx(
            mm.log_conditional(circuit, found.marginal_map.state, found.evidence)
        )


def test_the_answer_on_a_digit_is_right_by_enumeration() -> None:
    circuit, digit = demo.load_digits(), demo.held_out()[0]
    found = demo.complete_digit(circuit, digit)
    rows = np.full((1 << 16, 64), -1)
    rows[:, :32] = digit.pixels[:32]
    columns = [int(name) - 1 for name in found.query]
    rows[:, columns] = (np.arange(1 << 16)[:, None] >> np.arange(16)) & 1
    values = mm.log_likelihood(circuit, rows)
    assert found.marginal_map.log_prob == pytest.approx(values.max())
    best = rows[values.argmax()]
    assert [found.marginal_map.state[name] for name in found.query] == best[columns].tolist()


def test_pictures(tmp_path: Path) -> None:
    circuit, digit = demo.load_digits(), demo.held_out()[0]
    pictures = demo.panels(digit, demo.complete_digit(circuit, digit))
    assert pictures[-1] == list(digit.pixels)
    assert all(picture[:32] == list(digit.pixels[:32]) for picture in pictures)
    lines = demo.text(pictures)
    assert len(lines) == 9
    assert lines[0].split() == ["seen", "marginal", "MAP", "MPE", "in", "truth"]
    assert "??" in lines[5]

    demo.write_picture([pictures, pictures], tmp_path / "digits.png")
    data = (tmp_path / "digits.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (4 * 108 + 12, 2 * 108 + 12)
    size = struct.unpack(">I", data[33:37])[0]
    raw = zlib.decompress(data[41 : 41 + size])
    image = np.frombuffer(raw, dtype=np.uint8).reshape(height, width + 1)[:, 1:]
    tile = image[12 : 12 + 96 : 12, 3 * 108 + 12 : 4 * 108 : 12]
    assert ((tile < 128).astype(int).reshape(-1) == digit.pixels).all()
    with pytest.raises(mm.FormatError, match=r"end in \.png"):
        demo.write_picture([pictures], tmp_path / "digits.jpg")
    with pytest.raises(mm.FormatError, match="cannot be written"):
        demo.write_picture([pictures], tmp_path / "no" / "digits.png")
