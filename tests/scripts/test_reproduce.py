"""scripts/reproduce.py: what it says of the claims, from records that are made here."""

import json
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def reproduce(monkeypatch, tmp_path):
    """The script, which writes into an empty folder and finds no data."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setenv("MARGMAP_DATA", str(tmp_path / "none" / "debd"))
    import reproduce

    monkeypatch.setattr(reproduce, "PLACE", tmp_path)
    yield reproduce
    for name in ("reproduce", "paper", "ablation"):
        sys.modules.pop(name, None)


def record(label, log_prob, status="optimal", seconds=0.5, instance=0):
    return {
        "label": label,
        "dataset": "nltcs",
        "instance": instance,
        "status": status,
        "log_prob": log_prob,
        "seconds": seconds,
    }


def test_claims_that_need_no_data(reproduce):
    assert reproduce.the_published_bound_is_none([]).held is True
    assert reproduce.mpe_is_another_answer([]).held is True
    assert reproduce.a_joint_table_does_not_fit([]).held is None  # the network is not there


@pytest.mark.parametrize("apart", [0.0, 1e-3])
def test_methods_that_disagree(reproduce, apart):
    runs = [record("frontier", -2.0), record("UB", -2.0 - apart)]
    assert reproduce.no_two_methods_disagree(runs).held is (apart == 0)


def test_a_question_that_is_not_proven(reproduce):
    runs = [record("frontier", -2.0), record("frontier", -2.0, "time_limit", instance=1)]
    claim = reproduce.every_question_is_proven(runs)
    assert claim.held is False
    assert "1 of 2" in claim.measured


def test_an_unsolved_run_counts_as_the_limit(reproduce):
    runs = [record("frontier", -2.0, seconds=1.0), record("UB", None, "time_limit", seconds=0.1)]
    claim = reproduce.frontier_is_fastest(runs)
    assert claim.held is True
    assert f"UB {reproduce.SOLVE:.1f} s (0 solved)" in claim.measured


@pytest.mark.parametrize(("value", "wrong"), [(-2.0, False), (-2.5, True)])
def test_the_printed_rule(reproduce, tmp_path, value, wrong):
    (tmp_path / "printed.jsonl").write_text(json.dumps(record("printed rule", value)) + "\n")
    assert reproduce.the_published_rule_ends_on_wrong_answers([record("frontier", -2.0)]).held is wrong


def test_the_page_has_all_three_verdicts(reproduce, tmp_path):
    claims = [
        reproduce.Claim("one", True, "a"),
        reproduce.Claim("two", False, "b"),
        reproduce.Claim("three", None, "c"),
    ]
    reproduce.write(claims, ["nltcs"], 90.0)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "| one | yes | a |\n| two | **no** | b |\n| three | not checked | c |" in page


def test_without_datasets_it_says_how_to_get_them(reproduce, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["reproduce.py"])
    with pytest.raises(SystemExit, match="margmap datasets --download all"):
        reproduce.main()
