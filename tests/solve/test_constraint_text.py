"""The grammar of constraints: what is written is what is built, and errors point at the character."""

import pytest

import margmap as mm

c = mm.constraints

WRITTEN = [
    ("at most 2 of pump=broken, valve=stuck", c.at_most(2, [("pump", "broken"), ("valve", "stuck")])),
    ("at least 1 of a=0,b=1", c.at_least(1, [("a", "0"), ("b", "1")])),
    ("  exactly   5 of a = 1 , b = 1", c.exactly(5, [("a", "1"), ("b", "1")])),
    ("budget 10: a=1 3, b=1 2.5, c=x 1/3", c.budget({("a", "1"): 3, ("b", "1"): 2.5, ("c", "x"): "1/3"}, 10)),
    ("any of a=1, b=0", c.clause([("a", "1"), ("b", "0")])),
    ("if a=1 then b=0", c.implies(("a", "1"), ("b", "0"))),
    ("mutex a=1, b=1, c=1", c.mutex([("a", "1"), ("b", "1"), ("c", "1")])),
    ("age in young, old", c.allowed("age", ["young", "old"])),
    ("equal a, b", c.equal("a", "b")),
    ("ordered first, second", c.ordered("first", "second")),
    ("any of 'blood pressure'=\"very high\", a\\=b=1", c.clause([("blood pressure", "very high"), ("a=b", "1")])),
    ('"at" in x', c.allowed("at", ["x"])),
    ("mutex in x, y", c.allowed("mutex", ["x", "y"])),
    (r"""any of "a \"b\""=1""", c.clause([('a "b"', "1")])),
]


@pytest.mark.parametrize(("text", "constraint"), WRITTEN, ids=[text for text, _ in WRITTEN])
def test_texts_mean_what_the_functions_build(text, constraint):
    assert c.parse(text) == constraint
    assert c.parse(str(constraint)) == constraint


@pytest.mark.parametrize(
    ("text", "character", "message"),
    [
        ("at most x of a=1", 9, "a whole number should be here"),
        ("at mots 2 of a=1", 4, "'most' or 'least' should be here"),
        ("at most 2 off a=1", 11, "'of' should be here"),
        ("at most 2 of", 13, "it ends where a literal such as pump=broken should be"),
        ("at most 2 of a=1, =2", 19, "a literal such as pump=broken should be here"),
        ("at most 2 of a", 15, "it ends where '=' should be"),
        ("at most 2 of a=1 b=1", 18, "the constraint should end here"),
        ("budget -3: a=1 1", 8, "a number of at least 0"),
        ("budget 3: a=1 1, a=1 2", 22, "a=1 has a cost already"),
        ("budget 3 a=1 1", 10, "':' should be here"),
        ("if a=1 than b=1", 8, "'then' should be here"),
        ("any of a='x", 10, "is not closed"),
        ("any of a=x\\", 11, "has no meaning here"),
        ("equal a", 8, "it ends where ',' should be"),
        ("a < b", 3, "'in' should be here"),
        ("", 1, "it ends where a form such as"),
    ],
)
def test_errors_point_at_the_character(text, character, message):
    with pytest.raises(mm.QueryError) as caught:
        c.parse(text)
    assert f"character {character}: " in str(caught.value)
    assert message in str(caught.value)
    assert f"({text[: character - 1]}>>>{text[character - 1 :]})" in str(caught.value)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: c.at_most(-1, [("a", 1)]), "-1 literals"),
        (lambda: c.at_most(True, [("a", 1)]), "True literals"),
        (lambda: c.at_most(1, []), "needs a list of literals"),
        (lambda: c.at_most(1, "ab"), "needs a list of literals"),
        (lambda: c.clause([("a", 1, 2)]), "a literal is a pair"),
        (lambda: c.clause([3]), "a literal is a pair"),
        (lambda: c.allowed("a", "young"), "needs a list of values"),
        (lambda: c.budget({("a", 1): -2}, 3), "is -2: give a number of at least 0"),
        (lambda: c.budget({("a", 1): float("nan")}, 3), "is nan"),
        (lambda: c.budget({("a", 1): 1}, float("inf")), "is inf"),
        (lambda: c.budget([("a", 1)], 3), "give a mapping"),
        (lambda: c.parse(3), "written as text, not 3"),
    ],
)
def test_what_cannot_be_meant_is_refused(build, message):
    with pytest.raises(mm.QueryError, match=message):
        build()


def test_names_are_looked_up_when_a_model_is_asked():
    a, b = mm.Variable("a", 2, ("off", "on")), mm.Variable("b", 3)
    circuit = mm.circuit_of(mm.bernoulli(a, 0.9) * mm.categorical(b, [0.2, 0.3, 0.5]))
    assert mm.mpe(circuit, constraints=["if a=on then b=0"]).state == {"a": "on", "b": 0}
    for rule, message in [
        ("any of z=1", "constraint 'any of z=1': unknown variable 'z'"),
        ("any of a=up", "variable 'a' has no state 'up'"),
        ("equal a, b", "do not have the same states"),
        ("equal a, a", "compared with itself"),
        ("at most 1 of b=1, b=1.0", "twice with the value 1"),
    ]:
        with pytest.raises(mm.QueryError, match=message):
            mm.mpe(circuit, constraints=[rule])
    with pytest.raises(mm.QueryError, match="give a list"):
        mm.mpe(circuit, constraints="if a=on then b=0")
    with pytest.raises(mm.QueryError, match=r"2\^60|too large"):
        mm.mpe(circuit, constraints=[mm.constraints.budget({("a", "on"): 10**17, ("b", 1): "1/1000003"}, 3)])
