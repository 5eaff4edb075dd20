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
from margmap.demo import letters, picture

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
    properties = circuit.properties
    assert properties.structured
    assert not properties.deterministic  # so that MPE itself needs the solver
    assert (Path(demo.__file__).parents[1] / "models" / demo.DIGITS_MODEL).stat().st_size < 450_000


def test_the_digits_model_is_what_the_script_learns() -> None:
    """The rows, and how likely they are; the script itself takes its time and is not run here."""
    pytest.importorskip("sklearn")
    script = runpy.run_path(str(SCRIPTS / "make_digits_model.py"))
    rows, labels = script["digits"]()
    start = script["TRAIN"] + script["VALID"]
    circuit = demo.load_digits()
    assert mm.log_likelihood(circuit, rows[:1300]).mean() == pytest.approx(-16.810, abs=1e-3)
    assert mm.log_likelihood(circuit, rows[start:]).mean() == pytest.approx(-17.635, abs=1e-3)
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


def test_what_was_measured_on_all_digits() -> None:
    """Each sum is possible, and marginal MAP is never less likely than what MPE suggests."""
    sums = demo.measured()
    assert sums["digits"] == sums["proven"] == 247
    assert sums["pixels"] == 16 * 247
    assert 0 < sums["differ"] < 247
    assert 0 < sums["mpe_probability"] < sums["map_probability"] < 1
    for who in ("map", "mpe", "single"):
        assert sums[f"{who}_pixels_right"] <= sums["pixels"]
        assert 16 * sums[f"{who}_digits_right"] <= sums[f"{who}_pixels_right"]


def test_the_sums_are_what_the_script_measures() -> None:
    """On a few of the digits, counted here again in another way."""
    pytest.importorskip("sklearn")
    script = runpy.run_path(str(SCRIPTS / "make_digits_model.py"))
    circuit = demo.load_digits()
    found = [(digit, demo.complete_digit(circuit, digit)) for digit in demo.held_out()[:3]]
    sums = script["tally"](circuit, found)
    assert sums["differ"] == sums["digits"] == 3
    for name, shown in (("map", 1), ("mpe", 2)):
        tiles = [np.array(picture.panels(digit, answer)).reshape(4, 8, 8)[:, 4:, 2:6] for digit, answer in found]
        same = np.array([tile[shown] == tile[3] for tile in tiles])
        assert sums[f"{name}_pixels_right"] == same.sum()
        assert sums[f"{name}_digits_right"] == same.all(axis=(1, 2)).sum()
    assert sums["map_probability"] > sums["mpe_probability"]


def test_pictures(tmp_path: Path) -> None:
    circuit, digit = demo.load_digits(), demo.held_out()[0]
    pictures = picture.panels(digit, demo.complete_digit(circuit, digit))
    assert pictures[-1] == list(digit.pixels)
    assert all(panel[:32] == list(digit.pixels[:32]) for panel in pictures)
    lines = picture.text(pictures)
    assert len(lines) == 9
    assert lines[0].split() == ["seen", "marginal", "MAP", "MPE", "in", "truth"]
    assert "??" in lines[5]

    picture.write_picture([pictures, pictures], tmp_path / "digits.png", [["", "12.5 %"]])
    data = (tmp_path / "digits.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    size = struct.unpack(">I", data[33:37])[0]
    raw = zlib.decompress(data[41 : 41 + size])
    image = np.frombuffer(raw, dtype=np.uint8).reshape(height, width + 1)[:, 1:]
    side = 8 * picture.SCALE
    for row in range(2):
        top, left = picture.TOP + row * picture.STEP_DOWN, picture.LEFT + 3 * picture.STEP_RIGHT
        tile = image[top : top + side : picture.SCALE, left : left + side : picture.SCALE]
        assert ((tile < 128).astype(int).reshape(-1) == digit.pixels).all()
    # The text below the second picture of the first row, and none below that of the second row.
    top, left = picture.TOP + side + 6, picture.LEFT + picture.STEP_RIGHT
    dots = letters.drawn("12.5 %")
    for row, there in ((0, dots), (1, np.zeros_like(dots))):
        area = image[top + row * picture.STEP_DOWN :, left:][: 2 * dots.shape[0] : 2, : 2 * dots.shape[1] : 2]
        assert np.array_equal(area < 128, there)
    for title in picture.TITLES:  # every title fits above its column
        assert 2 * letters.drawn(title).shape[1] < picture.STEP_RIGHT
    with pytest.raises(mm.FormatError, match=r"end in \.png"):
        picture.write_picture([pictures], tmp_path / "digits.jpg")
    with pytest.raises(mm.FormatError, match="cannot be written"):
        picture.write_picture([pictures], tmp_path / "no" / "digits.png")


def test_letters_are_all_of_one_height() -> None:
    for dots in letters._LETTERS.values():
        rows = dots.split("|")
        assert len(rows) <= letters.HEIGHT
        assert len({len(row) for row in rows}) == 1
        assert set(dots) <= set("#.|")


def test_mpe_is_far_off_for_a_fever_in_spring() -> None:
    found = demo.compare(demo.load_model(), demo.QUERY, demo.FEVER, k=3)
    assert found.marginal_map.state == {"illness": "flu", "course": "severe"}
    assert found.projected == {"illness": "allergy", "course": "mild"}
    assert math.exp(found.marginal_map.log_conditional) == pytest.approx(0.666, abs=1e-3)
    assert math.exp(found.log_projected) == pytest.approx(0.034, abs=1e-3)
