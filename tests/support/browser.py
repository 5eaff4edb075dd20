"""A real browser for tests: Chromium through ChromeDriver's WebDriver protocol, nothing but the standard library."""

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the name that the protocol gives to references


class Browser:
    """One session."""

    def __init__(self, url, capabilities):
        self.url = url
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback needs no proxy
        answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.url = f"{url}/session/{answer['sessionId']}"

    def call(self, verb, path, data=None):
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"}, method=verb)
        try:
            with self.opener.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{verb} {path}: {error.read().decode()[:500]}") from None

    def open(self, path):
        self.visit(Path(path).resolve().as_uri())

    def visit(self, address):
        self.call("POST", "/url", {"url": address})
        self.settle()

    def new_tab(self):
        """Open a tab and go to it; :meth:`go_to` comes back to the one this returns."""
        before = self.call("GET", "/window")
        self.go_to(self.call("POST", "/window/new", {"type": "tab"})["handle"])
        return before

    def go_to(self, tab):
        self.call("POST", "/window", {"handle": tab})

    def until(self, script, *args, seconds=20):
        """Wait until a JavaScript function body gives something that is true, and return it."""
        end = time.monotonic() + seconds
        while not (found := self.run(script, *args)):
            assert time.monotonic() < end, f"still not: {script}"
            time.sleep(0.02)
        return found

    def run(self, script, *args):
        """The value of a JavaScript function body."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(args)})

    def settle(self):
        """Wait until what was asked for is drawn."""
        self.call(
            "POST",
            "/execute/async",
            {"script": "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))", "args": []},
        )

    def devtools(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width, height=800, dark=False):
        """A screen of this size; a window cannot be as narrow as a telephone."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.devtools("Emulation.setEmulatedMedia", features=scheme)
        self.settle()

    def find(self, selector):
        return self.call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.call("POST", f"/element/{self.find(selector)}/click", {})
        self.settle()

    def keys(self, selector, text):
        self.call("POST", f"/element/{self.find(selector)}/value", {"text": text})
        self.settle()

    def drag(self, selector, *places, kind="mouse"):
        """Press the pointer at the first place (from the middle of the element), move it, let it go at the last."""
        first, *rest = [self._move(selector, *place) for place in places]
        self._pointer([first, {"type": "pointerDown", "button": 0}, *rest, {"type": "pointerUp", "button": 0}], kind)

    def hover(self, selector, x, y):
        self._pointer([self._move(selector, x, y)], "mouse")

    def wheel(self, selector, amount):
        scroll = {"type": "scroll", "x": 0, "y": 0, "deltaX": 0, "deltaY": amount, "duration": 0}
        self._act({"type": "wheel", "id": "wheel", "actions": [scroll | {"origin": {ELEMENT: self.find(selector)}}]})

    def pinch(self, selector, before, after):
        """Two fingers, as far apart as ``before`` and then ``after``, side by side."""
        fingers = []
        for side, name in ((-1, "left"), (1, "right")):
            near, far = (self._move(selector, side * apart / 2, 0) for apart in (before, after))
            down, up = ({"type": f"pointer{what}", "button": 0} for what in ("Down", "Up"))
            fingers.append(
                {
                    "type": "pointer",
                    "id": name,
                    "parameters": {"pointerType": "touch"},
                    "actions": [near, down, far, up],
                }
            )
        self._act(*fingers)

    def _move(self, selector, x, y):
        origin = {ELEMENT: self.find(selector)}
        return {"type": "pointerMove", "duration": 20, "origin": origin, "x": int(x), "y": int(y)}

    def _pointer(self, actions, kind):
        self._act({"type": "pointer", "id": kind, "parameters": {"pointerType": kind}, "actions": actions})

    def _act(self, *sources):
        self.call("POST", "/actions", {"actions": list(sources)})
        self.settle()

    def console(self):
        """What the browser complained about since it was last asked."""
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, path, whole=True):
        data = self.devtools("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        self.call("DELETE", "")


@contextmanager
def chromium(folder):
    """A browser whose profile is in ``folder``; the test is skipped where there is none."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not browser or not driver:
        pytest.skip("needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (Path(folder) / "chromedriver.log").open("wb") as log:
        process = subprocess.Popen([driver, f"--port={port}"], stdout=log, stderr=log)
        try:
            for _ in range(200):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            options = {"binary": browser, "args": [*FLAGS, f"--user-data-dir={folder}/profile"]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            session = Browser(f"http://127.0.0.1:{port}", wanted)
            try:
                yield session
            finally:
                session.close()
        finally:
            process.terminate()
            process.wait(timeout=10)
