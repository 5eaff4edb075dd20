"""The documentation site as a reader opens it: built strictly, seen in a real browser, alone on this machine."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from browser import chromium

ROOT = Path(__file__).parent.parent
NEEDED = ("mkdocs", "material", "mkdocstrings", "latex2mathml")

missing = [name for name in NEEDED if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"the extra `docs` is not installed: no {', '.join(missing)}")

#: With a table, formulas, code, pictures and entries of the reference.
PAGES = ("index", "tour", "gallery", "algorithms", "cli-help", "reference/asking", "benchmarks/paper/report")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    run = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as session:
        yield session


@pytest.mark.parametrize("page", PAGES)
def test_no_request_leaves_the_machine(site, browser, page):
    """Every file that a page asks for is one of the site, is there, and nothing is wider than a phone."""
    browser.resize(400)
    browser.open(site / f"{page}.html")
    asked = browser.run("return performance.getEntriesByType('resource').map(entry => entry.name)")
    linked = browser.run(
        "return [...document.querySelectorAll('link[rel=stylesheet], link[rel=icon], script[src], img, iframe')]"
        ".map(element => element.href || element.src)"
    )
    assert linked
    assert [name for name in (*asked, *linked) if not name.startswith((site.as_uri(), "data:", "blob:"))] == []
    browser.until("return [...document.images].every(image => image.complete)")
    assert browser.run("return [...document.images].filter(i => !i.naturalWidth || !i.alt).map(i => i.src)") == []
    assert [line for line in browser.console() if "http" in line.replace(site.as_uri(), "")] == []
    assert browser.run("return document.documentElement.scrollWidth") <= 400


def test_a_page_that_asks_for_more_is_noticed(site, browser):
    """The check above can fail."""
    page = site / "astray.html"
    page.write_text('<title>x</title><img alt="x" src="http://127.0.0.1:9/x.png">')
    browser.open(page)
    browser.until("return performance.getEntriesByType('resource').length")
    asked = browser.run("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert asked == ["http://127.0.0.1:9/x.png"]
    browser.console()
