"""The server of the page, without a browser: who may ask, what is refused, what is answered, when a query ends."""

import http.client
import json
import math
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from importlib import import_module

import pytest

import margmap as mm

pytest.importorskip("starlette", reason="the extra `explore` is not installed")
pytest.importorskip("uvicorn", reason="the extra `explore` is not installed")

from margmap import demo
from margmap.explore.questions import Asked, exported
from margmap.explore.server import FILES, HEADERS, MOST_BYTES, Server, Settings
from serving import hard_model, hostile_model, serving


@pytest.fixture(scope="module")
def server():
    with serving(demo.load_model(), name="clinic.json") as server:
        yield server


def call(server, path="", data=None, *, method=None, token=None, **headers):
    """Status, headers and body of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    body = data if data is None or isinstance(data, bytes) else json.dumps(data).encode()
    if body is not None:
        given.setdefault("Content-Type", "application/json")
    token = server.settings.token if token is None else token
    connection.request(method or ("GET" if body is None else "POST"), f"/{token}/{path}", body, given)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), text


def events(text):
    return [json.loads(line) for line in text.splitlines()]


def test_files_and_headers(server):
    for name in ["", *FILES]:
        status, headers, text = call(server, name)
        assert status == 200
        assert text
        for header, value in HEADERS.items():
            assert headers[header.lower()] == value
    assert "text/javascript" in call(server, "app.js")[1]["content-type"]
    assert "unsafe" not in HEADERS["Content-Security-Policy"]
    page = call(server)[2].decode()
    assert "http:" not in page
    assert "https:" not in page


@pytest.mark.parametrize(
    "name", ["nothing", "..%2fserver.py", "../server.py", "page/app.js", "%2e%2e/server.py", "%00"]
)
def test_no_other_file(server, name):
    assert call(server, name)[0] == 404


def test_who_may_ask(server):
    port = server.port
    assert call(server, "model")[0] == 200
    assert call(server, "model", token="x" * 24)[0] == 404
    assert call(server, "model", token="")[0] == 404
    assert call(server, "model", Host=f"localhost:{port}")[0] == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", ""):
        assert call(server, "model", Host=host)[0] == 421
    assert call(server, "model", Origin=f"http://127.0.0.1:{port}")[0] == 200
    for origin in ("http://evil.example", "null", f"https://127.0.0.1:{port}", f"http://localhost:{port}"):
        assert call(server, "model", Origin=origin)[0] == 403
    assert call(server, "model", Sec_Fetch_Site="cross-site")[0] == 403
    assert call(server, "ask", b"{}", Content_Type="text/plain")[0] == 415
    assert call(server, "ask", method="GET")[0] in (404, 405)
    assert len(server.settings.token) >= 20
    assert Settings(server.settings.model).token != Settings(server.settings.model).token


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        [],
        {"query": "all"},
        {"query": [99]},
        {"query": [-1]},
        {"query": [True]},
        {"query": ["9" * 5000]},
        {"query": [0], "evidence": []},
        {"query": [0], "evidence": {"x": 0}},
        {"query": [0], "evidence": {"1": 77}},
        {"query": [0], "evidence": {"1": "winter"}},
        {"query": [0], "evidence": {"1": {"0": -1}}},
        {"query": [0], "evidence": {"1": [None]}},
        {"query": [0], "k": 10**9},
        {"query": [0], "k": "5"},
        {"query": [0], "evidence": {"1": {"0": "1"}}},
    ],
)
def test_what_is_no_question(server, data):
    for path in ("ask", "changes", "export"):
        status, _, text = call(server, path, data)
        assert status == 400
        assert json.loads(text)["error"]
    assert call(server, "model")[0] == 200


def test_a_question_that_is_too_long(server):
    assert call(server, "ask", b" " * (MOST_BYTES + 1))[0] == 400


def test_answers_are_those_of_the_library(server):
    circuit = server.settings.model
    columns = [circuit.index(name) for name in demo.QUERY]
    evidence = circuit.observed(demo.EVIDENCE)
    found = events(call(server, "ask", {"query": columns, "evidence": evidence, "k": 4, "tab": "t"})[2])
    found = [event for event in found if event["kind"] != "progress"]
    assert [event["kind"] for event in found] == ["answer", "posteriors", "top"]
    expected = mm.marginal_map(circuit, list(demo.QUERY), demo.EVIDENCE, k=4)
    answer, posteriors, top = found
    assert answer["status"] == "optimal"
    assert answer["log_prob"] == expected.log_prob
    assert answer["proof"] == expected.proof
    for one, ranked in zip(top["top"], expected.top, strict=True):
        labels = [circuit.variables[c].label(x) for c, x in zip(columns, one["state"], strict=True)]
        assert labels == list(ranked.state.values())
        assert one["log_conditional"] == pytest.approx(ranked.log_conditional)
    known = mm.posteriors(circuit, demo.EVIDENCE)
    assert {circuit.names[int(c)] for c in posteriors["posteriors"]} == set(known)
    for column, numbers in posteriors["posteriors"].items():
        assert numbers == pytest.approx(known.array(circuit.names[int(column)]).tolist())


def test_what_would_change_the_answer(server):
    circuit = server.settings.model
    columns = [circuit.index(name) for name in demo.QUERY]
    evidence = circuit.observed(demo.EVIDENCE)
    *found, last = events(call(server, "changes", {"query": columns, "evidence": evidence})[2])
    base = mm.marginal_map(circuit, list(demo.QUERY), demo.EVIDENCE).state
    expected, tried = {}, 0
    for name in demo.EVIDENCE:
        variable = circuit.variables[circuit.index(name)]
        for label in [None, *variable.states]:
            if label == demo.EVIDENCE[name]:
                continue
            known = {k: x for k, x in demo.EVIDENCE.items() if k != name} | ({} if label is None else {name: label})
            state = mm.marginal_map(circuit, list(demo.QUERY), known).state
            tried += 1
            if state != base:
                expected[circuit.index(name), None if label is None else variable.code(label)] = list(state.values())
    names = [circuit.index(name) for name in demo.EVIDENCE]
    hidden = [e for e in found if e["column"] not in names]
    found = [e for e in found if e["column"] in names]
    for event in hidden:
        variable = circuit.variables[event["column"]]
        known = {**demo.EVIDENCE, variable.name: variable.label(event["to"])}
        state = mm.marginal_map(circuit, list(demo.QUERY), known).state
        assert [circuit.variables[c].label(x) for c, x in zip(columns, event["state"], strict=True)] == list(
            state.values()
        )
        assert state != base
    tried += sum(v.cardinality for i, v in enumerate(circuit.variables) if i not in {*names, *columns})
    assert last == {"kind": "tried", "tried": tried, "complete": True}
    assert expected
    assert hidden
    labels = [circuit.variables[c] for c in columns]
    assert {
        (e["column"], e["to"]): [v.label(x) for v, x in zip(labels, e["state"], strict=True)] for e in found
    } == expected


def test_impossible_evidence_is_told(server):
    x = mm.Variable("x")
    with serving(mm.circuit_of(1.0 * x[0] * mm.bernoulli(mm.Variable("y"), 0.5), [x, mm.Variable("y")])) as one:
        (event,) = events(call(one, "ask", {"query": [1], "evidence": {"0": 1}})[2])
        assert event["kind"] == "error"
        assert "probability 0" in event["error"]


def test_exports_can_be_run(tmp_path, as_users_start_it):
    circuit = hostile_model()
    path = tmp_path / "model 'x'.json"
    mm.save(circuit, path)
    asked = Asked.read(circuit, {"query": [0, 2, 3], "evidence": {"1": 1, "4": [0, 1]}, "k": 3})
    texts = exported(circuit, str(path), asked)
    (tmp_path / "question.py").write_text(texts["python"])
    found = runpy.run_path(str(tmp_path / "question.py"))["result"]
    expected = mm.marginal_map(circuit, [circuit.names[i] for i in (0, 2, 3)], {"a=b,c": "no, 1"}, k=3)
    assert [one.state for one in found.top] == [one.state for one in expected.top]
    (tmp_path / "question.json").write_text(texts["json"])
    command = shlex.split(texts["cli"])
    assert command[-2:] == ["--instance", "question.json"]
    run = [sys.executable, "-m", *command, "--json"]
    answer = json.loads(subprocess.run(run, cwd=tmp_path, capture_output=True, check=True).stdout)
    assert answer["log_prob"] == pytest.approx(expected.log_prob)

    plain = Asked.read(demo.load_model(), {"query": [0], "evidence": {"1": 0}})
    command = shlex.split(exported(demo.load_model(), "clinic.json", plain)["cli"])
    assert command[:3] == ["margmap", "solve", "clinic.json"]
    assert "--query" in command
    assert "--evidence" in command


def test_a_query_ends_with_its_tab():
    with serving(hard_model()) as server:
        body = json.dumps({"query": list(range(40)), "evidence": {}, "tab": "one"}).encode()

        def begin():
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            connection.request("POST", f"/{server.settings.token}/ask", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert json.loads(answer.readline())["kind"] == "progress"
            return connection, answer

        connection, answer = begin()
        assert server.running.number == 1
        again, other = begin()  # the same tab: the first one ends by itself
        assert [event for event in events(answer.read()) if event["kind"] != "progress"] == []
        connection.close()
        other.close()
        again.close()
        end = time.monotonic() + 10
        while server.running.number and time.monotonic() < end:
            time.sleep(0.02)
        assert server.running.number == 0


def test_a_question_that_comes_after_a_later_one_of_its_tab(server):
    question = {"query": [0], "evidence": {}, "tab": "overtaken"}

    def kinds(number, tab="overtaken"):
        return [event["kind"] for event in events(call(server, "ask", question | {"number": number, "tab": tab})[2])]

    assert "answer" in kinds(2)
    assert kinds(1) == []
    assert "answer" in kinds(3)
    assert "answer" in kinds(1, "another")


def test_a_question_that_was_overtaken_ends_no_other():
    with serving(hard_model()) as server:
        question = {"query": list(range(40)), "evidence": {}, "tab": "one"}
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        body = json.dumps(question | {"number": 2}).encode()
        connection.request("POST", f"/{server.settings.token}/ask", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert json.loads(answer.readline())["kind"] == "progress"
        assert events(call(server, "ask", question | {"number": 1})[2]) == []
        for _ in range(3):
            assert json.loads(answer.readline())["kind"] == "progress"
        assert server.running.number == 1
        connection.close()


def test_limits():
    with serving(hard_model(), time_limit=0.5) as server:
        found = events(call(server, "ask", {"query": list(range(40)), "evidence": {}})[2])
        answer = next(event for event in found if event["kind"] == "answer")
        assert answer["status"] == "time_limit"
        assert answer["gap"] > 0
        bounds = [event for event in found if event["kind"] == "progress" and event["lower"] is not None]
        assert bounds
        assert all(event["lower"] <= event["upper"] for event in bounds if event["upper"] is not None)
        assert len(bounds[-1]["best"]["state"]) == 40


def test_what_cannot_be_served():
    with pytest.raises(mm.QueryError, match="12 variables"):
        Server(Settings(demo.load_model(), grid=(3, 3)))
    with serving(demo.load_model()) as server, pytest.raises(mm.QueryError, match="another --port"):
        Server(Settings(demo.load_model(), port=server.port))


def test_numbers_that_json_lacks():
    a, b = mm.Variable("a"), mm.Variable("b")
    with serving(mm.circuit_of(mm.bernoulli(a, 1.0) * mm.bernoulli(b, 0.5), [a, b])) as server:
        text = call(server, "ask", {"query": [0, 1], "evidence": {}, "k": 4})[2]
        for event in events(text):
            json.dumps(event, allow_nan=False)
        top = events(text)[-1]["top"]
        assert math.exp(top[0]["log_prob"]) == pytest.approx(0.5)


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    monkeypatch.delitem(sys.modules, "margmap.explore.server")
    with pytest.raises(mm.MissingExtraError, match=r"margmap\[explore\]"):
        import_module("margmap.explore.server")


def test_the_command(tmp_path, as_users_start_it):
    run = [sys.executable, "-m", "margmap", "explore"]
    for wrong, why in (
        (["--grid", "8"], "such as 8x8"),
        (["--grid", "7x7"], "64 variables"),
        (["nowhere.json"], "nowhere"),
    ):
        end = subprocess.run([*run, *wrong], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
        assert end.returncode == 2
        assert why in end.stderr
        assert "Traceback" not in end.stderr
    process = subprocess.Popen([*run, "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        link = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/", link)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(link + "model", timeout=20) as answer:
            assert json.load(answer)["grid"] == [8, 8]
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) in (0, 130)
    finally:
        process.kill()
        process.stdout.close()
