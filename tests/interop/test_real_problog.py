"""Programs of ProbLog itself, against its answers and against worlds that are enumerated with ProbLog."""

from __future__ import annotations

import itertools
import math

import pytest

import howto
import margmap as mm

problog = pytest.importorskip("problog", reason="ProbLog is not installed")
from problog.ddnnf_formula import DDNNF  # noqa: E402
from problog.formula import LogicDAG, LogicFormula  # noqa: E402
from problog.program import PrologString  # noqa: E402
from problog.tasks import map as problog_map  # noqa: E402
from problog.tasks import mpe as problog_mpe  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

ALARM = """
0.1::burglary. 0.2::earthquake.
0.9::alarm :- burglary, earthquake.
0.8::alarm :- burglary, \\+earthquake.
0.1::alarm :- \\+burglary, earthquake.
person(john). person(mary).
0.7::hears(X) :- person(X).
0.3::colour(red); 0.5::colour(green); 0.1::colour(blue) :- alarm.
calls(X) :- alarm, hears(X).
"""
PROGRAMS = {
    "alarm": ALARM + "evidence(calls(john)). query(burglary). query(earthquake). query(colour(red)). query(calls(_)).",
    "disjunction": "0.3::c(r); 0.5::c(g); 0.2::c(b). z :- c(r). z :- c(b). w :- z. query(c(_)). query(z). query(w).",
    "rest": "0.3::c(r); 0.5::c(g). 0.4::x. n :- \\+c(r), \\+c(g). query(c(_)). query(n). query(x). query(\\+x).",
    "negation": "0.3::a. b :- \\+a. c. d :- \\+c. query(a). query(b). query(c). query(d).",
    "cycle": """0.4::e(1,2). 0.5::e(2,3). 0.6::e(1,3). 0.2::e(3,1). 0.7::e(3,2).
        p(X,Y) :- e(X,Y). p(X,Y) :- e(X,Z), p(Z,Y).
        query(p(1,3)). query(p(2,1)). query(p(1,2)). evidence(\\+p(3,2)).""",
    "impossible": "0.3::a. 0.4::b. q :- a, \\+a. query(q). query(b). evidence(a, false). query(a).",
    "smokers": """person(1). person(2). person(3). 0.3::stress(X) :- person(X).
        0.2::influences(X,Y) :- person(X), person(Y).
        friend(1,2). friend(2,1). friend(2,3). friend(3,2).
        smokes(X) :- stress(X). smokes(X) :- friend(X,Y), influences(Y,X), smokes(Y).
        0.4::asthma(X) :- smokes(X). query(smokes(_)). query(asthma(_)). evidence(smokes(2)).""",
    "sure": "a. query(a).",
}


def literal(term):
    """The name and the value that a query of ProbLog asks for."""
    text, value = str(term), 1
    while text.startswith("\\+"):
        text, value = text[2:].strip(), 1 - value
    return text, value


def probability(text, literals):
    """p(literals, evidence) / p(evidence), by ProbLog alone: the conjunction is a query of its own."""
    conjunction = ", ".join(name if value else f"\\+{name}" for name, value in literals)
    program = PrologString(
        text.replace("query(", "ignored(") + f"\nthe_conjunction :- {conjunction}. query(the_conjunction)."
    )
    (found,) = DDNNF.create_from(program).evaluate().values()
    return found


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("form", [str, PrologString, LogicFormula.create_from, LogicDAG.create_from, DDNNF.create_from])
def test_posteriors(name, form):
    text = PROGRAMS[name]
    model = form(text if form in (str, PrologString) else PrologString(text))
    circuit = mm.from_problog(model) if form is str else mm.as_model(model)
    answers = DDNNF.create_from(PrologString(text)).evaluate()
    total = mm.log_marginal(circuit, {})
    assert answers
    for term, expected in answers.items():
        atom, value = literal(term)
        assert math.exp(mm.log_marginal(circuit, {atom: value}) - total) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", ["alarm", "disjunction", "rest", "cycle", "smokers"])
def test_marginal_map_of_the_queries_against_enumeration(name):
    text = PROGRAMS[name]
    circuit = mm.from_problog(text)
    total = mm.log_marginal(circuit, {})
    fixed = {str(term) for term, _ in DDNNF.create_from(PrologString(text)).evidence()}
    atoms = sorted({literal(term)[0] for term in DDNNF.create_from(PrologString(text)).evaluate()} - fixed)[:4]
    best = max(
        probability(text, list(zip(atoms, state, strict=True)))
        for state in itertools.product((0, 1), repeat=len(atoms))
    )
    result = mm.marginal_map(circuit, atoms)
    assert result.status == "optimal"
    assert math.exp(result.log_prob - total) == pytest.approx(best, abs=1e-9)
    assert probability(text, list(result.state.items())) == pytest.approx(best, abs=1e-9)


def test_the_map_task_of_problog_asks_something_else(tmp_path):
    """It maximises a sum of posteriors, one an atom: here that state is less likely than the proven one."""
    text = """0.5::a. 0.5::b. 0.7::t1. 0.7::t2. 0.6::t3. ok :- a, \\+b, t1. ok :- \\+a, b, t2. ok :- \\+a, \\+b, t3.
        evidence(ok). query(a). query(b)."""
    (tmp_path / "x.pl").write_text(text)
    done, (chosen, _, _) = problog_map.main([str(tmp_path / "x.pl")], result_handler=lambda result, out: None)
    assert done
    theirs = {str(term): int(value) for term, value in chosen.items()}
    circuit = mm.from_problog(text)
    ours = mm.marginal_map(circuit, ["a", "b"])
    assert math.exp(ours.log_prob) == pytest.approx(0.175, abs=1e-9)
    assert math.exp(mm.log_marginal(circuit, theirs)) == pytest.approx(0.15, abs=1e-9)


def test_the_most_probable_explanation_is_that_of_problog():
    text = ALARM + "evidence(calls(john))."
    formula = LogicFormula.create_from(PrologString(text), label_all=True, avoid_name_clash=True)
    value, _ = problog_mpe.mpe_semiring(formula)
    assert math.exp(mm.mpe(mm.from_problog(text)).log_prob) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.3::a. query(", "ProbLog cannot compile this program"),
        ("0.3::a.", "no query and no evidence"),
        ("?::a. query(a).", "a weight that is no probability"),
        ("evidence(a). a :- b. b :- fail. query(b).", "the evidence a of this program is impossible"),
        ("0.3::a. evidence(a). evidence(\\+a). query(a).", "evidence for a and against it"),
        ("-0.3::a. query(a).", "a weight that is no probability"),
    ],
)
def test_programs_that_cannot_be_read(text, message):
    with pytest.raises(mm.ModelError, match=message):
        mm.from_problog(text)


def test_objects_that_are_no_program():
    with pytest.raises(mm.ModelError, match=r"ProbLog cannot compile this problog\.Term"):
        mm.as_model(problog.logic.Term("a"))


def test_howto(tmp_path):
    howto.run("ProbLog", tmp_path)
