"""A real browser for tests and benchmarks: Chromium through ChromeDriver's WebDriver protocol.

Nothing but the standard library is needed beside Debian's packages ``chromium`` and ``chromium-driver``.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from margmap.errors import MissingExtraError

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

    def __init__(self, url: str, capabilities: dict[str, Any]) -> None:
        self.url = url
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback needs no proxy
        answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})
        self.url = f"{url}/session/{answer['sessionId']}"

    def call(self, verb: str, path: str, data: dict[str, Any] | None = None) -> Any:
        """What ChromeDriver answers to a command of the protocol."""
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"}, method=verb)
        try:
            with self.opener.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{verb} {path}: {error.read().decode()[:500]}") from None

    def open(self, path: str | PathLike[str]) -> None:
        """Show a file."""
        self.visit(Path(path).resolve().as_uri())

    def visit(self, address: str) -> None:
        """Show a page."""
        self.call("POST", "/url", {"url": address})
        self.settle()

    def new_tab(self) -> str:
        """Open a tab and go to it; :meth:`go_to` comes back to the one this returns."""
        before = str(self.call("GET", "/window"))
        self.go_to(self.call("POST", "/window/new", {"type": "tab"})["handle"])
        return before

    def go_to(self, tab: str) -> None:
        """Go to another tab."""
        self.call("POST", "/window", {"handle": tab})

    def until(self, script: str, *args: Any, seconds: float = 20) -> Any:
        """Wait until a JavaScript function body gives something that is true, and return it."""
        end = time.monotonic() + seconds
        while not (found := self.run(script, *args)):
            assert time.monotonic() < end, f"still not: {script}"
            time.sleep(0.02)
        return found

    def run(self, script: str, *args: Any) -> Any:
        """The value of a JavaScript function body."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(args)})

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.call(
            "POST",
            "/execute/async",
            {"script": "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))", "args": []},
        )

    def devtools(self, command: str, **parameters: Any) -> Any:
        """What a command of the DevTools protocol answers."""
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def resize(self, width: int, height: int = 800, dark: bool = False) -> None:
        """A screen of this size; a window cannot be as narrow as a telephone."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.devtools("Emulation.setEmulatedMedia", features=scheme)
        self.settle()

    def find(self, selector: str) -> str:
        """A reference to the first element that a CSS selector finds."""
        return str(self.call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT])

    def click(self, selector: str) -> None:
        """Click on an element."""
        self.call("POST", f"/element/{self.find(selector)}/click", {})
        self.settle()

    def keys(self, selector: str, text: str) -> None:
        """Type into an element."""
        self.call("POST", f"/element/{self.find(selector)}/value", {"text": text})
        self.settle()

    def drag(self, selector: str, *places: tuple[float, float], kind: str = "mouse") -> None:
        """Press the pointer at the first place (from the middle of the element), move it, let it go at the last."""
        first, *rest = [self._move(selector, *place) for place in places]
        self._pointer([first, {"type": "pointerDown", "button": 0}, *rest, {"type": "pointerUp", "button": 0}], kind)

    def hover(self, selector: str, x: float, y: float) -> None:
        """Move the pointer to a place, from the middle of the element."""
        self._pointer([self._move(selector, x, y)], "mouse")

    def wheel(self, selector: str, amount: int) -> None:
        """Turn the wheel over an element."""
        scroll = {"type": "scroll", "x": 0, "y": 0, "deltaX": 0, "deltaY": amount, "duration": 0}
        self._act({"type": "wheel", "id": "wheel", "actions": [scroll | {"origin": {ELEMENT: self.find(selector)}}]})

    def pinch(self, selector: str, before: float, after: float) -> None:
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

    def _move(self, selector: str, x: float, y: float) -> dict[str, Any]:
        origin = {ELEMENT: self.find(selector)}
        return {"type": "pointerMove", "duration": 20, "origin": origin, "x": int(x), "y": int(y)}

    def _pointer(self, actions: list[dict[str, Any]], kind: str) -> None:
        self._act({"type": "pointer", "id": kind, "parameters": {"pointerType": kind}, "actions": actions})

    def _act(self, *sources: dict[str, Any]) -> None:
        self.call("POST", "/actions", {"actions": list(sources)})
        self.settle()

    def console(self) -> list[str]:
        """What the browser complained about since it was last asked."""
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, path: str | PathLike[str], whole: bool = True) -> None:
        """Write what is shown as a PNG file."""
        data = self.devtools("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """End the session."""
        self.call("DELETE", "")


@contextmanager
def chromium(folder: str | PathLike[str]) -> Iterator[Browser]:
    """A browser whose profile is in ``folder``; :class:`MissingExtraError` where there is none."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not browser or not driver:
        raise MissingExtraError("needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)")
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
