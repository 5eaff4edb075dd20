"""The page of a report in a real browser: sorting, zooming, narrow and dark screens, nothing fetched, no complaints."""

import time

import pytest

from browser import chromium
from made_records import record, solved_records
from margmap.bench.report import report

HOSTILE = "</script><script>window.hacked = 1</script>\"'<b>"
PLOTS = ("cactus", "bounds", "sizes")

# What the two methods take for an instance of a dataset.
SECONDS = {"three": (30.0, 0.2), "two": (10.0, 0.1), HOSTILE: (2.0, 0.3)}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The report of small circuits that were really solved, and of some runs made up."""
    records = solved_records(number=1)
    for dataset, (slow, fast) in SECONDS.items():
        for instance in range(3):
            records.append(record(dataset, instance, "brute", seconds=slow + instance))
            records.append(record(dataset, instance, "frontier", seconds=fast))
    records.append(record("two", 3, "brute", "time_limit", log_prob=None, log_upper=None, seconds=60.0))
    folder = tmp_path_factory.mktemp("report")
    return report(records, folder, commands=["margmap " + "x" * 500], title=HOSTILE).written[1]


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def browser(session, page):
    session.resize(1200)
    session.open(page)
    yield session
    assert session.console() == []
    assert session.run("return performance.getEntriesByType('resource').map(entry => entry.name)") == []
    assert session.run("return window.hacked") is None


def column(browser, table, number):
    script = (
        "return [...document.getElementById(arguments[0]).tBodies[0].rows].map(r => r.cells[arguments[1]].innerText)"
    )
    return browser.run(script, table, number)


def ticks(browser, plot, axis):
    script = (
        "return [...document.querySelectorAll(`#figure-${arguments[0]} .${arguments[1]}-tick`)].map(t => t.innerHTML)"
    )
    return browser.run(script, plot, axis)


def sorted_by(browser, table):
    script = (
        "return [...document.querySelectorAll(`#${arguments[0]} thead th`)].map(th => th.getAttribute('aria-sort'))"
    )
    return browser.run(script, table)


def test_the_page_forbids_what_it_does_not_need(page):
    text = page.read_text()
    assert page.stat().st_size < 6_000_000
    policy = text.split('http-equiv="Content-Security-Policy" content="')[1].split('"')[0]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert "<link" not in text.replace('<link rel="icon" href="data:,">', "")


def test_a_click_on_a_heading_sorts_and_a_second_one_turns_round(browser):
    table = "times-1"
    before = column(browser, table, 0)
    assert len(before) == 5
    assert set(sorted_by(browser, table)) == {"none"}
    heading = f"#{table} thead th:nth-child(4) button"
    browser.click(heading)
    rising = column(browser, table, 3)
    seconds = [float(text.split()[0]) for text in rising]
    assert seconds == sorted(seconds)
    assert column(browser, table, 0) != before
    assert sorted_by(browser, table)[3] == "ascending"
    browser.click(heading)
    assert column(browser, table, 3) == rising[::-1]
    assert sorted_by(browser, table)[3] == "descending"
    # With the keyboard, and text as text.
    browser.keys(f"#{table} thead th:nth-child(1) button", "\ue007")
    assert column(browser, table, 0) == [HOSTILE, "one", "three", "tmovie", "two"]
    assert sorted_by(browser, table)[0] == "ascending"
    assert sorted_by(browser, table).count("none") == len(sorted_by(browser, table)) - 1
    assert browser.run("return document.querySelector('#times-1 tfoot').rows.length") == 1


def test_what_has_no_value_is_sorted_last(browser):
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    for clicks in (1, 2):
        browser.click("#runs thead th:nth-child(7) button")
        assert column(browser, "runs", 6)[-1] == "–", clicks
    assert "–" not in column(browser, "runs", 6)[:-1]


@pytest.mark.parametrize("plot", PLOTS)
def test_buttons_zoom_and_reset(browser, plot):
    home = ticks(browser, plot, "x"), ticks(browser, plot, "y")
    assert all(len(one) >= 2 for one in home)
    browser.click(f"#figure-{plot} .tools button:nth-child(1)")
    closer = ticks(browser, plot, "x"), ticks(browser, plot, "y")
    assert closer[0] != home[0]
    assert closer[1] != home[1]
    browser.click(f"#figure-{plot} .tools button:nth-child(1)")
    browser.click(f"#figure-{plot} .tools button:nth-child(2)")
    assert (ticks(browser, plot, "x"), ticks(browser, plot, "y")) == closer
    browser.click(f"#figure-{plot} .tools button:nth-child(3)")
    assert (ticks(browser, plot, "x"), ticks(browser, plot, "y")) == home


def test_dragging_wheel_keys_and_fingers_zoom(browser):
    canvas = "#figure-cactus .canvas"
    home = ticks(browser, "cactus", "x")
    browser.run("document.querySelector(arguments[0]).scrollIntoView({behavior: 'instant', block: 'center'})", canvas)

    def soon(holds, seconds=5.0):
        """Whether it holds before that: on a busy machine the page hears of a turned wheel later than the test."""
        deadline = time.monotonic() + seconds
        while not holds() and time.monotonic() < deadline:
            time.sleep(0.02)
        return holds()

    def changed_by(action, seconds=5.0):
        action()
        soon(lambda: ticks(browser, "cactus", "x") != home, seconds)
        now = ticks(browser, "cactus", "x")
        browser.keys(canvas, "0")
        assert ticks(browser, "cactus", "x") == home
        return now != home

    assert changed_by(lambda: browser.drag(canvas, (-100, -50), (0, 0), (100, 50)))
    assert not changed_by(lambda: browser.drag(canvas, (-100, -50), (-98, -50)), 0.1)
    assert changed_by(lambda: browser.keys(canvas, "++"))
    assert changed_by(lambda: browser.keys(canvas, "+\ue014\ue014"))  # arrow to the right
    assert changed_by(lambda: browser.wheel(canvas, -300))  # the plot has the focus from the keys
    assert changed_by(lambda: browser.pinch(canvas, 60, 300))
    scrolled = browser.run("document.activeElement.blur(); return scrollY")
    browser.wheel(canvas, 100)
    assert soon(lambda: browser.run("return scrollY") > scrolled)
    assert ticks(browser, "cactus", "x") == home


def test_tips_and_lines_that_can_be_hidden(browser):
    canvas = "#figure-cactus .canvas"
    browser.run("document.querySelector(arguments[0]).scrollIntoView({behavior: 'instant', block: 'center'})", canvas)
    place = browser.run(
        """const mark = document.querySelector('#figure-cactus .canvas path.m').getBBox();
        const svg = document.querySelector('#figure-cactus .canvas svg').viewBox.baseVal;
        return [mark.x + 4 - svg.width / 2, mark.y + mark.height - 4 - svg.height / 2]"""
    )
    hidden = "return document.querySelector('#figure-cactus .tip').hidden"
    assert browser.run(hidden)
    browser.hover(canvas, *place)
    tip = browser.run(
        "const tip = document.querySelector('#figure-cactus .tip'); return tip.hidden ? '' : tip.innerText"
    )
    assert "seconds: " in tip
    assert "instances solved: 1" in tip
    browser.keys(canvas, "+0")
    assert browser.run(hidden)
    browser.drag(canvas, place, kind="touch")
    assert not browser.run(hidden)
    lines = "return document.querySelectorAll('#figure-cactus .canvas path.line').length"
    assert browser.run(lines) == 3
    browser.click("#figure-cactus .legend button:nth-child(2)")
    assert browser.run(lines) == 2
    pressed = "return document.querySelector('#figure-cactus .legend button:nth-child(2)').getAttribute('aria-pressed')"
    assert browser.run(pressed) == "false"
    browser.click("#figure-cactus .legend button:nth-child(2)")
    assert browser.run(lines) == 3


@pytest.mark.parametrize("dark", [False, True])
def test_no_screen_is_too_narrow(browser, dark):
    browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    # A table that is wider than its frame scrolls there.
    wide = """const out = e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.scroll, pre');
        return [...document.querySelectorAll('body *')].filter(out).map(e => e.outerHTML.slice(0, 100))"""
    for width in (320, 768, 1600):
        browser.resize(width, dark=dark)
        assert browser.run("return [innerWidth, document.documentElement.scrollWidth <= innerWidth]") == [width, True]
        assert browser.run(wide) == []
    colours = browser.run("const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]")
    paper, ink = (sum(map(int, colour[4:-1].split(","))) for colour in colours)
    assert (paper < 150 and ink > 600) if dark else (paper > 600 and ink < 150)


def test_figures_have_text_alternatives(browser):
    for plot in PLOTS:
        named = browser.run(
            """const svg = document.querySelector(`#figure-${arguments[0]} .canvas svg`);
            const ids = svg.getAttribute('aria-labelledby').split(' ');
            return [svg.getAttribute('role'), ...ids.map(id => document.getElementById(id).textContent)]""",
            plot,
        )
        assert named[0] == "img"
        assert len(named[1]) > 10
        assert len(named[2]) > 40
    # A row for each power of ten up to the slowest run, which was really run: how many is a matter of the machine.
    assert browser.run("return document.querySelectorAll('#figure-cactus details table tbody tr').length") >= 1
    assert browser.run("return document.querySelectorAll('#figure-bounds details table tbody tr').length") >= 2
    assert browser.run("return [...document.querySelectorAll('h1, h2, h3')].map(h => h.tagName)[0]") == "H1"
    assert browser.run("return document.querySelector('h1').textContent") == HOSTILE
    twice = "const ids = [...document.querySelectorAll('[id]')].map(e => e.id); return ids.length - new Set(ids).size"
    assert browser.run(twice) == 0


def test_without_its_script_the_page_still_has_everything(browser):
    browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.devtools("Page.reload")
        found = browser.devtools("DOM.getDocument")["root"]["nodeId"]
        for selector in ("#figure-cactus .plot svg path.line", "#times-1 tbody tr", "#figure-bounds desc"):
            assert browser.devtools("DOM.querySelector", nodeId=found, selector=selector)["nodeId"]
    finally:
        browser.devtools("Emulation.setScriptExecutionDisabled", value=False)
