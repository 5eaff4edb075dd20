"""The list of breaks fits the sources and the tests; the script that makes them tells what tests see from what not."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
import mutate
from mutations import MUTATIONS, Mutation


def test_every_break_still_fits():
    """Whoever changes a line that is on the list, or renames a test, changes the list too."""
    assert mutate.check(MUTATIONS) == []


def test_the_list_is_long_enough_and_has_every_solver():
    assert len(MUTATIONS) >= 60
    assert len({(m.file, m.after, m.old, m.new) for m in MUTATIONS}) == len(MUTATIONS)
    files = {m.file for m in MUTATIONS}
    methods = ("frontier/sweep", "frontier/solve", "frontier/scope_tree", "branch_and_bound", "iter_solve", "maxspn")
    assert {f"solve/methods/{name}.py" for name in (*methods, "brute_force")} <= files
    steps = ("output_bounds", "edge_bounds", "conditional_bounds", "supports", "regroup", "split", "prune", "report")
    steps = (*steps, "hill_climb", "marginals", "share_query")
    assert {f"solve/{name}.py" for name in steps} <= files
    assert {f"network/{name}.py" for name in ("elimination", "compile", "relevance")} <= files
    assert {f"certificate/{name}.py" for name in ("intervals", "blocks", "verify", "upper_circuit")} <= files


TEXT = "def one():\n    return 1\n\n\ndef two():\n    return 1 + 1\n"


@pytest.mark.parametrize(
    ("after", "old", "message"),
    [
        ("", "return 1", "occurs 2 times"),
        ("", "return 7", "occurs 0 times"),
        ("def three", "return 1", "occurs 0 times"),
        ("def one", "1 + 1", "occurs 0 times"),
        ("def", "1 + 1", "occurs 2 times"),
        ("def one", "return 2", "occurs 0 times"),
    ],
)
def test_a_break_has_one_place(after, old, message):
    with pytest.raises(ValueError, match=message):
        mutate.broken(TEXT, Mutation("x.py", old, "return 2", "", (), after))


def test_a_break_is_made_in_its_function():
    found = mutate.broken(TEXT, Mutation("x.py", "return 1", "return 2", "", (), "def one"))
    assert found == TEXT.replace("return 1\n", "return 2\n")
    with pytest.raises(ValueError, match="is not broken"):
        mutate.broken(TEXT, Mutation("x.py", "1 + 1", "1 + 1", "", ()))


def test_what_the_tests_see_and_what_not(tmp_path, monkeypatch):
    """On a package of one function: a break that is seen, one that is not, one that hangs, one that is no program."""
    package = tmp_path / "src" / "margmap"
    (package / "foundation").mkdir(parents=True)
    (tmp_path / "tests").mkdir()
    (package / "__init__.py").write_text("")
    (package / "foundation" / "jit.py").write_text("# _Stamp(index._source_stamp, \nfrom types import CodeType\n")
    (package / "a.py").write_text("def bound(x, slack=0.0):\n    return x + 1 + slack\n")
    test = "from margmap.a import bound\n\n\ndef test_bound():\n    assert bound(1) == 2\n"
    (tmp_path / "tests" / "test_a.py").write_text(test)
    monkeypatch.setattr(mutate, "SECONDS", 20)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    tests = ("tests/test_a.py::test_bound",)

    def of(new):
        return Mutation("a.py", "return x + 1 + slack", new, f"{new} instead", tests)

    hang = of("\n    while True:\n        pass")
    mutations = [of("return x + slack"), of("return x + 1 - slack"), of("return x + 1 + sluck")]
    assert mutate.check([*mutations, hang], tmp_path) == []
    said = []
    outcomes = mutate.run(mutations, 1, said.append, tmp_path)
    assert [outcome.seen for outcome in outcomes] == [True, False, False], said
    assert outcomes[0].by == "tests/test_a.py::test_bound"
    assert outcomes[1].by == "nothing"
    assert "no program" in outcomes[2].by
    assert "| `a.py` | return x + slack instead | `test_a.py::test_bound` |" in mutate.table(outcomes)
    assert len(said) == 4
    monkeypatch.setattr(mutate, "SECONDS", 3)
    assert [(o.seen, o.by) for o in mutate.run([hang], 1, said.append, tmp_path)] == [
        (False, "nothing: the tests do not end within 3 s")
    ]
    (tmp_path / "tests" / "test_a.py").write_text(test.replace("== 2", "== 3"))
    with pytest.raises(RuntimeError, match="the tests fail before anything is broken"):
        mutate.run(mutations, 1, said.append, tmp_path)
    assert mutate.check([mutations[0]._replace(tests=("tests/test_a.py::test_other",))], tmp_path) != []
