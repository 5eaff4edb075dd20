"""Names with any characters: through files, the command line and its JSON, and never raw to a terminal."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from typer.testing import CliRunner

import margmap as mm
from margmap.cli import app
from margmap.cli.output import printable
from margmap.io.formats import load_circuit

NAMES = {
    "quotes": 'it\'s "x"',
    "separators": "a=1,b;c|d",
    "new lines": "a\nb\r\nc\u2028d",
    "escape codes": "\x1b[31mred\x1b]0;title\x07\x9b2J",
    "emoji": "\U0001f600\u200d\U0001f468",
    "right to left": "abc\u202edef\u2066",
    "empty": "",
    "number": "3",
    "negative": "-1",
    "not a number": "nan",
    "spaces": "  x  ",
    "lone surrogate": "\ud800",
    "zero": "a\0b",
    "markup": "[bold]x[/bold]",
    "braces": "{0} {} %s ${HOME}",
    "long": "n" * 100_000,
    "option": "--help",
}
EVERY_NAME = pytest.mark.parametrize("name", list(NAMES.values()), ids=list(NAMES))


def circuit_with(name: str) -> mm.Circuit:
    """p(name = low) = 0.4 alone, and 0.8 where the other variable is 1."""
    odd, other = mm.Variable(name, 2, ("low" + name, "high")), mm.Variable("other")
    return mm.circuit_of(
        0.25 * mm.categorical(odd, (0.8, 0.2)) * other[1] + 0.75 * mm.categorical(odd, (0.8 / 3, 2.2 / 3)) * other[0]
    )


def run(*args: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(arg) for arg in args], prog_name="margmap")
    return result.exit_code, result.stdout, result.stderr


def assert_harmless(text: str) -> None:
    """Nothing but line ends and what can be printed."""
    for char in text:
        assert char == "\n" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp"), repr(char)


@EVERY_NAME
def test_names_survive_json(name: str, tmp_path: Path) -> None:
    circuit = circuit_with(name)
    mm.save(circuit, tmp_path / "a.json")
    (tmp_path / "a.json").read_bytes().decode("ascii")
    assert mm.load(tmp_path / "a.json").variables == circuit.variables
    for suffix in ("psdd", "jpc", "spn", "ac"):  # which have numbers only
        mm.save(circuit, tmp_path / f"a.{suffix}")
        assert all(isinstance(number, int) for number in load_circuit(tmp_path / f"a.{suffix}").names)
    with pytest.raises(mm.QueryError, match="unknown variable"):
        circuit.index("n" + name)


@EVERY_NAME
def test_names_on_the_command_line(name: str, tmp_path: Path) -> None:
    model, instance = tmp_path / "a.json", tmp_path / "instance.json"
    mm.save(circuit_with(name), model)
    instance.write_text(json.dumps({"query": [name], "evidence": {"other": 1}}))
    code, out, _ = run("solve", model, "--instance", instance, "--json")
    assert code == 0
    assert json.loads(out)["state"] == {name: "low" + name}
    instance.write_text(json.dumps({"query": ["other"], "evidence": {name: "low" + name}}))
    code, out, _ = run("solve", model, "--instance", instance, "--json")
    assert code == 0
    assert list(json.loads(out)["state"]) == ["other"]
    instance.write_text(json.dumps({"query": [name], "evidence": {name: "high"}}))
    code, out, err = run("solve", model, "--instance", instance)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert_harmless(err)
    for command in (["solve", model], ["marginal", model, "--posteriors"], ["info", model]):
        code, out, err = run(*command)
        assert code == 0
        assert err == ""
        assert_harmless(out)


@pytest.mark.parametrize("name", [NAMES["escape codes"], NAMES["emoji"], NAMES["lone surrogate"], NAMES["new lines"]])
def test_names_of_networks(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.bif"
    name = name.replace("\ud800", "\u20ac")  # no UTF-8 file can have a lone surrogate
    head, table = f'variable "{name}" {{ type discrete [2]', f'probability ( "{name}" ) {{ table 0.7, 0.3; }}'
    path.write_bytes(f'{head} {{ "x,{name}", y }}; }}\n{table}\n'.encode())
    network = mm.load_network(path)
    assert network.names == (name,)
    assert mm.marginal_map(network, [name], {}).state == {name: f"x,{name}"}
    code, out, _ = run("solve", path)
    assert code == 0
    assert_harmless(out)
    path.write_bytes(f"{head} {{ x, x }}; }}".encode())
    code, out, err = run("solve", path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert_harmless(err)


def test_a_terminal_without_unicode(tmp_path: Path) -> None:
    mm.save(circuit_with(NAMES["emoji"]), tmp_path / "a.json")
    done = subprocess.run(
        [sys.executable, "-m", "margmap", "solve", tmp_path / "a.json"],
        capture_output=True,
        check=False,
        env={"PYTHONIOENCODING": "ascii", "PATH": "", "PYTHONUTF8": "0", "TERM": "dumb"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"U0001f600" in done.stdout


@EVERY_NAME
def test_printable(name: str) -> None:
    assert_harmless(printable(name))
    assert "\n" not in printable(name)
    assert printable("plain caf\u00e9") == "plain caf\u00e9"
