"""The page in a real browser: clicks, keys, painting, cancelling, two tabs, a killed server, hostile names, screens."""

import base64
import csv
import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest

import margmap as mm

pytest.importorskip("starlette", reason="the extra `explore` is not installed")
pytest.importorskip("uvicorn", reason="the extra `explore` is not installed")

from browser import chromium
from margmap import demo
from serving import hard_model, hostile_model, serving

SETTLED = "return ['answered', 'error', 'gone'].includes(document.body.dataset.state)"
STATE = "return document.body.dataset.state"


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="module")
def clinic():
    with serving(demo.load_model(), name="clinic.json") as server:
        yield server


@pytest.fixture(scope="module")
def digits():
    with serving(demo.load_digits(), name="digits", grid=(8, 8)) as server:
        yield server


@pytest.fixture
def browser(session):
    session.resize(1200)
    session.console()
    yield session
    assert session.console() == []
    assert session.run("return window.hacked") is None


def link(data):
    return "#q=" + base64.urlsafe_b64encode(data).decode().rstrip("=")


def visit(browser, server, question=None):
    """Open the page, with a question in the link if there is one, and wait for the answer."""
    browser.visit("about:blank")
    browser.visit(server.link + ("" if question is None else link(json.dumps(question).encode())))
    browser.until(SETTLED)


def click(browser, selector):
    browser.click(selector)
    browser.until(SETTLED)


def text(browser, selector):
    return browser.run("return document.querySelector(arguments[0]).innerText", selector)


def answer(browser):
    """The state on the screen."""
    rows = "[...document.querySelectorAll('dl.found > div')]"
    return dict(browser.run(f"return {rows}.map(d => [...d.children].map(part => part.textContent))"))


def shown(state):
    """A state as the screen has it."""
    return {str(name): str(value) for name, value in state.items()}


def row(circuit, name, part=""):
    return f"li[data-column='{circuit.index(name)}'] {part}"


def test_clicks_give_the_answer_of_the_library(browser, clinic):
    circuit = clinic.settings.model
    visit(browser, clinic)
    assert "Nothing is asked yet" in text(browser, "#answer")
    for name in demo.QUERY:
        click(browser, row(circuit, name, "[data-role=asked]"))
    for name, value in demo.EVIDENCE.items():
        code = circuit.variables[circuit.index(name)].code(value)
        click(browser, row(circuit, name, f".state[data-code='{code}']"))
    expected = mm.marginal_map(circuit, list(demo.QUERY), demo.EVIDENCE, k=5)
    assert answer(browser) == shown(expected.state)
    assert "Proven optimal" in text(browser, "#status")
    assert f"{expected.log_prob:.6f}" in text(browser, ".probability")
    browser.until("return document.querySelectorAll('#top tbody tr').length === 5")
    posterior = mm.posteriors(circuit, demo.EVIDENCE)
    name = next(iter(posterior))
    numbers = "return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)"
    found = browser.run(numbers, row(circuit, name, ".state .number"))
    assert [float(s.removesuffix(" %").lstrip("<>")) for s in found] == pytest.approx(
        [100 * p for p in posterior.array(name)], abs=0.06
    )
    # The same state again takes the observation back.
    name, value = next(iter(demo.EVIDENCE.items()))
    code = circuit.variables[circuit.index(name)].code(value)
    click(browser, row(circuit, name, f".state[data-code='{code}']"))
    known = {k: x for k, x in demo.EVIDENCE.items() if k != name}
    assert answer(browser) == shown(mm.marginal_map(circuit, list(demo.QUERY), known).state)
    click(browser, "#clear")
    assert text(browser, "#counts").startswith("0 observed, 0 asked")
    click(browser, "#ask-rest")
    assert len(answer(browser)) == len(circuit.variables)
    assert answer(browser) == shown(mm.mpe(circuit).state)


def test_sets_and_likelihoods(browser, clinic):
    circuit = clinic.settings.model
    visit(browser, clinic, {"query": ["course"], "evidence": {}})
    illness = circuit.variables[circuit.index("illness")]
    click(browser, row(circuit, "illness", "[data-form=set]"))
    states = f'document.querySelectorAll("{row(circuit, "illness", ".state[aria-pressed=true]")}")'
    pressed = f"return [...{states}].map(e => Number(e.dataset.code))"
    first = browser.run(pressed)
    other = next(code for code in range(illness.cardinality) if code not in first)
    click(browser, row(circuit, "illness", f".state[data-code='{other}']"))
    codes = browser.run(pressed)
    assert sorted(codes) == sorted([*first, other])
    expected = mm.marginal_map(circuit, ["course"], {"illness": {illness.label(x) for x in codes}})
    assert f"{expected.log_prob:.6f}" in text(browser, ".probability")

    click(browser, row(circuit, "illness", "[data-form=soft]"))
    browser.run(
        "const i = document.querySelectorAll(arguments[0])[0]; i.value = 0.25; i.dispatchEvent(new Event('input'))",
        row(circuit, "illness", ".sliders input"),
    )
    browser.until(SETTLED)
    weights = {illness.label(x): 0.25 if x == 0 else 1.0 for x in range(illness.cardinality)}
    expected = mm.marginal_map(circuit, ["course"], {"illness": weights})
    assert f"{expected.log_prob:.6f}" in text(browser, ".probability")


def test_continuous_variables(browser):
    g, x = mm.Variable("g", 0), mm.Variable("x", 2, ("low", "high"))
    circuit = mm.circuit_of(
        0.5 * mm.gaussian(g, 0.0, 1.0) * x["low"] + 0.5 * mm.gaussian(g, 3.0, 1.0) * x["high"], [g, x]
    )
    with serving(circuit) as server:
        visit(browser, server)
        assert "mean 1.5, deviation 1.8" in text(browser, "li[data-column='0'] .number")
        assert browser.run("return document.querySelector(\"li[data-column='0'] [data-role=asked]\").disabled")
        click(browser, "li[data-column='1'] [data-role=asked]")
        for value, best in (("2.5", "high"), ("-1", "low")):
            enter = "i.value = arguments[0]; i.dispatchEvent(new Event('change'))"
            browser.run(f"const i = document.querySelector('li input'); {enter}", value)
            browser.until(SETTLED)
            assert answer(browser) == {"x": best}
            expected = mm.marginal_map(circuit, ["x"], {"g": float(value)})
            assert f"{expected.log_prob:.6f}" in text(browser, ".probability")


def test_keys_alone(browser, clinic):
    circuit = clinic.settings.model
    visit(browser, clinic)
    browser.run("document.querySelector('#variables li').focus()")
    active = "return document.activeElement.dataset.column"
    keys = lambda given: browser.keys(f"li[data-column='{browser.run(active)}']", given)  # noqa: E731
    keys("a")
    browser.until(SETTLED)
    keys("\ue015")  # down
    keys("\ue015")
    assert browser.run(active) == "2"
    keys("1")
    browser.until(SETTLED)
    names = circuit.names
    expected = mm.marginal_map(circuit, [names[0]], {names[2]: circuit.variables[2].label(1)})
    assert answer(browser) == shown(expected.state)
    label = browser.run("return document.activeElement.getAttribute('aria-label')")
    assert label == f"{names[2]}: observed, {circuit.variables[2].label(1)}"
    keys("s")
    browser.until(SETTLED)
    assert text(browser, "#counts").startswith("0 observed, 1 asked")
    keys("/")
    assert browser.run("return document.activeElement.id") == "search"
    # One variable and its parts are one stop of the tab key.
    assert browser.run("return document.querySelectorAll('#variables [tabindex=\"0\"]').length") == 1
    browser.until("return document.getElementById('announce').textContent.startsWith('Answer: ')")


def test_search_and_filter(browser, clinic):
    circuit = clinic.settings.model
    visit(browser, clinic, {"query": ["illness"], "evidence": {"season": "winter"}})
    listed = "return [...document.querySelectorAll('#variables .name')].map(e => e.innerText)"
    browser.keys("#search", "winter")
    assert browser.run(listed) == [
        str(v.name) for v in circuit.variables if any("winter" in s for s in (str(v.name), *v.states))
    ]
    browser.run("const s = document.getElementById('search'); s.value = ''; s.oninput()")
    browser.click("#filters [data-value=asked]")
    assert browser.run(listed) == ["illness"]
    browser.click("#filters [data-value=observed]")
    assert browser.run(listed) == ["season"]
    browser.click("#filters [data-value=all]")
    assert len(browser.run(listed)) == len(circuit.variables)


def test_painting(browser, digits):
    circuit = digits.settings.model
    visit(browser, digits)
    cell = lambda i: f".cell[data-column='{i}']"  # noqa: E731
    side = browser.run("return document.querySelector('.cell').getBoundingClientRect().width") + 2
    browser.drag(cell(0), (0, 0), (side, 0), (3 * side, 0))  # with ink
    browser.click("#brushes [data-value='value 0']")
    browser.drag(cell(8), (0, 0), (side, 0))
    browser.click("#brushes [data-value=asked]")
    browser.drag(cell(58), (0, 0), (2 * side, 0), kind="touch")
    browser.until(SETTLED)
    evidence = {1: 1, 2: 1, 3: 1, 4: 1, 9: 0, 10: 0}
    expected = mm.marginal_map(circuit, [59, 60, 61], evidence)
    assert answer(browser) == shown(expected.state)
    assert text(browser, "#counts").startswith("6 observed, 3 asked")
    # A stroke that begins on such a pixel takes it away; keys paint too.
    browser.drag(cell(58), (0, 0), (side, 0))
    browser.run("document.querySelector(arguments[0]).focus()", cell(16))
    browser.keys(cell(16), "1")
    browser.until(SETTLED)
    assert text(browser, "#counts").startswith("7 observed, 1 asked")
    assert "observed 1" in browser.run("return document.querySelector(arguments[0]).ariaLabel", cell(16))


def test_links_files_and_exports(browser, clinic, tmp_path):
    circuit = clinic.settings.model
    question = {"query": list(demo.QUERY), "evidence": dict(demo.EVIDENCE)}
    visit(browser, clinic, question)
    address = browser.run("return location.href")
    before = answer(browser)
    click(browser, "#clear")
    browser.visit("about:blank")
    browser.visit(address)
    browser.until(SETTLED)
    assert answer(browser) == before
    for kind in ("json", "python", "cli"):
        browser.run("document.getElementById('exported-text').textContent = ''")
        browser.click(f"[data-export={kind}]")
        found = browser.until("return document.getElementById('exported-text').textContent")
        if kind == "json":
            assert json.loads(found) == question
        assert "illness" in found
    browser.until("return document.querySelectorAll('#top tbody tr').length === 5")
    browser.click("[data-export=csv]")
    rows = list(csv.DictReader(io.StringIO(text(browser, "#exported-text"))))
    expected = mm.marginal_map(circuit, list(demo.QUERY), demo.EVIDENCE, k=5)
    assert [{k: r[k] for k in demo.QUERY} for r in rows] == [one.state for one in expected.top]
    browser.devtools("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.click("[data-export=png]")
    end = time.monotonic() + 10
    while not (tmp_path / "answer.png").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert (tmp_path / "answer.png").read_bytes().startswith(b"\x89PNG")
    browser.click("#changes-find")
    browser.until("return /single changes/.test(document.getElementById('changes-text').textContent)")
    assert browser.run("return document.querySelectorAll('#changes li').length") > 0
    click(browser, "#changes li button")
    assert answer(browser) != before
    # What the model does not have is left out, and told.
    script = """
      const box = new DataTransfer();
      box.items.add(new File([arguments[0]], "q.json"));
      const input = document.getElementById("open");
      input.files = box.files;
      input.dispatchEvent(new Event("change"));
    """
    browser.run(script, json.dumps({"query": ["illness", "nobody"], "evidence": {"season": "summer"}}))
    assert "nobody" in browser.until("return document.getElementById('export-note').textContent")
    browser.until(SETTLED)
    assert text(browser, "#counts").startswith("1 observed, 1 asked")


def test_a_hard_query_shows_its_bounds_and_gives_way(browser):
    with serving(hard_model()) as server:
        visit(browser, server)
        browser.click("#ask-rest")
        browser.until("return document.getElementById('status').innerText.startsWith('Searching')")
        gap = "return Number(/, ([\\d.e-]+) nats apart/.exec(document.getElementById('bounds-text').textContent)?.[1])"
        assert browser.until(gap) > 0
        assert len(answer(browser)) == 40  # the best so far
        assert server.running.number == 1
        # The next click ends it, and is answered.
        click(browser, "#clear")
        assert browser.run(STATE) == "answered"
        click(browser, "li[data-column='0'] [data-role=asked]")
        assert text(browser, "#status") == "✓ Proven optimal"
        browser.click("#ask-rest")
        browser.until("return !document.getElementById('stop').hidden")
        browser.click("#stop")
        browser.until("return document.getElementById('status').innerText.startsWith('Stopped')")
        assert len(answer(browser)) == 40
        end = time.monotonic() + 10
        while server.running.number and time.monotonic() < end:
            time.sleep(0.02)
        assert server.running.number == 0


def test_fifty_rapid_clicks(browser, clinic):
    circuit = clinic.settings.model
    visit(browser, clinic, {"query": ["course"], "evidence": {}})
    browser.run(
        """
        const states = [...document.querySelectorAll(arguments[0])];
        for (let i = 0; i < 50; i++) { states[i % 2].click(); await new Promise(done => setTimeout(done, 1)); }
        """,
        row(circuit, "illness", ".state"),
    )
    browser.until("return (await (await fetch('status')).json()).running <= 1")  # those given up end at once
    browser.until(SETTLED)
    expected = mm.marginal_map(circuit, ["course"], {"illness": circuit.variables[circuit.index("illness")].label(1)})
    assert answer(browser) == shown(expected.state)
    assert f"{expected.log_prob:.6f}" in text(browser, ".probability")


def test_two_tabs(browser):
    with serving(hard_model()) as server:
        visit(browser, server)
        browser.click("#ask-rest")
        browser.until("return document.getElementById('status').innerText.startsWith('Searching')")
        first = browser.new_tab()
        visit(browser, server, {"query": ["coin3"], "evidence": {"coin1": "1"}})
        assert text(browser, "#status") == "✓ Proven optimal"
        assert list(answer(browser)) == ["coin3"]
        assert server.running.number == 1  # the first tab's
        browser.call("DELETE", "/window")
        browser.go_to(first)
        assert text(browser, "#status").startswith("Searching")
        click(browser, "#clear")


def test_a_killed_server(browser, tmp_path):
    path = tmp_path / "model.json"
    mm.save(demo.load_model(), path)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "margmap", "explore", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    try:
        link = process.stdout.readline().strip()
        browser.visit(link)
        browser.until(SETTLED)
        click(browser, "li[data-column='0'] [data-role=asked]")
        before = answer(browser)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=10)
        browser.click("li[data-column='1'] .state")
        browser.until(f"{STATE} === 'gone'")
        assert browser.run("return document.getElementById('gone').hidden") is False
        assert "does not answer" in text(browser, "#gone")
        assert answer(browser) == before
        browser.click("[data-export=json]")
        browser.until("return /does not answer/.test(document.getElementById('export-note').textContent)")
    finally:
        process.kill()
        process.stdout.close()
        process.wait(timeout=10)
    assert all("ERR_CONNECTION_REFUSED" in line for line in browser.console())


def test_hostile_names(browser):
    circuit = hostile_model()
    with serving(circuit, name=circuit.names[0]) as server:
        visit(browser, server)
        click(browser, "li[data-column='0'] [data-role=asked]")
        click(browser, "li[data-column='4'] [data-role=asked]")
        for column in (1, 2, 3):
            click(browser, f"li[data-column='{column}'] .state")
        known = {circuit.names[i]: circuit.variables[i].label(0) for i in (1, 2, 3)}
        expected = mm.marginal_map(circuit, [circuit.names[0], circuit.names[4]], known)
        assert answer(browser) == expected.state
        assert browser.run("return document.querySelectorAll('img, iframe').length") == 0
        browser.click("[data-export=csv]")
        (head, *_) = csv.reader(io.StringIO(browser.run("return document.getElementById('exported-text').textContent")))
        assert head[1] == circuit.names[0]
        assert head[2] == "'=1+1"  # a spreadsheet would compute it
        browser.click("#changes-find")
        browser.until("return /single changes/.test(document.getElementById('changes-text').textContent)")
        address = browser.run("return location.href")
        browser.visit("about:blank")
        browser.visit(address)
        browser.until(SETTLED)
        assert answer(browser) == expected.state
        for junk in ("#q=%%%", "#q=AAAA", link(b'{"query":7,"evidence":[1]}')):
            browser.visit("about:blank")
            browser.visit(server.link + junk)
            browser.until(SETTLED)
            assert text(browser, "#counts").startswith("0 observed, 0 asked")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [320, 390, 800, 1400])
def test_screens(browser, digits, width, dark):
    browser.resize(width, dark=dark)
    visit(browser, digits, {"query": ["40", "41"], "evidence": {"1": "1"}})
    assert browser.run("return document.documentElement.scrollWidth") <= width
    light = browser.run("return getComputedStyle(document.documentElement).backgroundColor")
    assert (int(light.split("(")[1].split(",")[0]) < 60) == dark
    named = "e.ariaLabel || e.textContent || e.labels?.length || e.title"
    every = "[...document.querySelectorAll('button, input, select')]"
    assert browser.run(f"return {every}.filter(e => !({named})).length") == 0


def test_nothing_comes_from_elsewhere(browser, clinic):
    visit(browser, clinic, {"query": ["illness"], "evidence": {}})
    names = browser.run("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert names
    assert all(name.startswith(clinic.link) for name in names)
    blocked = browser.run("return fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'blocked')")
    assert blocked == "blocked"
    assert any("Content Security Policy" in line for line in browser.console())
