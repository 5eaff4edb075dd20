"""The documentation site as a reader opens it: built strictly, seen in a real browser, alone on this machine."""

import os
import re
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import pytest

from browser import chromium

ROOT = Path(__file__).parent.parent
NEEDED = ("mkdocs", "material", "mkdocstrings", "latex2mathml")

missing = [name for name in NEEDED if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"the extra `docs` is not installed: no {', '.join(missing)}")

#: With a table, formulas, code, pictures and entries of the reference.
PAGES = (
    *("index", "tour", "gallery", "tutorials/images", "tutorials/diagnosis", "algorithms", "cli-help"),
    *("howto/trust", "reference/asking", "reference/learning", "benchmarks/paper/report"),
)

ASKED = "return performance.getEntriesByType('resource').map(entry => entry.name)"
LINKED = (
    "return [...document.querySelectorAll('link[rel=stylesheet], link[rel=icon], script[src], img, iframe')]"
    ".map(element => element.href || element.src)"
)


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
def address(site):
    """Where a server of this machine has the site."""
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Files, without a line on stderr for each."""

    def log_message(self, format, *args):
        """Nothing."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium(tmp_path_factory.mktemp("browser")) as session:
        yield session


@pytest.mark.parametrize("page", PAGES)
def test_no_request_leaves_the_machine(address, browser, page):
    """Every file that a page asks for is one of the site, is there, and nothing is wider than a phone."""
    browser.resize(400)
    browser.visit(f"{address}{page}.html")
    asked = browser.run(ASKED)
    linked = browser.run(LINKED)
    assert linked
    assert [name for name in (*asked, *linked) if not name.startswith((address, "data:", "blob:"))] == []
    browser.until("return [...document.images].every(image => image.complete)")
    assert browser.run("return [...document.images].filter(i => !i.naturalWidth || !i.alt).map(i => i.src)") == []
    assert browser.console() == []
    assert browser.run("return document.documentElement.scrollWidth") <= 400


@pytest.mark.parametrize("dark", [False, True])
def test_the_page_is_as_dark_as_the_reader_likes(address, browser, dark):
    browser.resize(1300, dark=dark)
    browser.visit(f"{address}assets/site.css")  # a place of the site without its scripts
    browser.run("localStorage.clear()")  # of what was chosen before
    browser.visit(f"{address}index.html")
    browser.until(f"return document.body.dataset.mdColorScheme == '{'slate' if dark else 'default'}'")


def test_files_alone_ask_for_nothing_else(site, browser):
    """Without a server, as `make docs` leaves them."""
    browser.open(site / "tour.html")
    asked = [*browser.run(ASKED), *browser.run(LINKED)]
    assert asked
    assert [name for name in asked if not name.startswith((site.as_uri(), "data:", "blob:"))] == []
    browser.console()


def test_a_page_that_asks_for_more_is_noticed(site, browser):
    """The check above can fail."""
    page = site / "astray.html"
    page.write_text('<title>x</title><img alt="x" src="http://127.0.0.1:9/x.png">')
    browser.open(page)
    browser.until("return performance.getEntriesByType('resource').length")
    asked = browser.run(ASKED)
    assert asked == ["http://127.0.0.1:9/x.png"]
    browser.console()


def test_what_is_written_in_tables_can_be_typed(site):
    """A bar in a table has a backslash before it in Markdown, and none on the page; options are not cut at hyphens."""
    page = (site / "howto" / "evidence.html").read_text()
    assert '<code class="short">age=young|old</code>' in page
    assert [file.name for file in site.rglob("*.html") if re.search(r"<td[^>]*>[^\n]*\\\|", file.read_text())] == []
