"""The server behind the page: Starlette on uvicorn, on this machine only unless told otherwise.

The address holds a random token; whoever does not have it sees nothing. Requests are refused whose Host is not this
server, or whose Origin is another page. Nothing that the page needs comes from elsewhere, and it may load nothing from
elsewhere. Each query runs in a thread of its own, within limits on time and memory; a tab's next question ends the one
before, and so does a tab that is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from margmap.circuit import Circuit
from margmap.errors import LimitError, MargmapError, MissingExtraError, QueryError
from margmap.explore.questions import Asked, Event, answers, changes, describe, exported
from margmap.network.network import Network
from margmap.solve.session import Session

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Mount, Route
except ImportError as error:
    raise MissingExtraError("margmap explore needs Starlette and uvicorn: pip install 'margmap[explore]'") from error

#: The files of the page, with their types.
FILES = {
    "index.html": "text/html",
    "page.css": "text/css",
    **dict.fromkeys(
        ("app.js", "answer.js", "ask.js", "dom.js", "export.js", "grid.js", "state.js", "variables.js"),
        "text/javascript",
    ),
}

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

#: A question is not longer than this many bytes, and so many are answered at once.
MOST_BYTES, MOST_RUNNING = 1 << 20, 16


@dataclass
class Settings:
    """What is explored, and how."""

    model: Circuit | Network
    name: str = "model"
    #: The file as code that is exported names it.
    path: str = "model"
    grid: tuple[int, int] | None = None
    time_limit: float = 60.0
    memory_limit: int = 2 << 30
    host: str = "127.0.0.1"
    port: int = 0
    token: str = field(default_factory=lambda: secrets.token_urlsafe(18))


class Running:
    """The queries under way: one a tab."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # What ends the last query of a tab, and the number that the tab gave it.
        self._by_tab: dict[str, tuple[threading.Event, int]] = {}
        self._threads: set[threading.Thread] = set()

    @property
    def number(self) -> int:
        """How many threads still work on one."""
        return sum(thread.is_alive() for thread in list(self._threads))

    def start(self, tab: str, number: int, work: Callable[[threading.Event], None]) -> threading.Event | None:
        """Begin a tab's next query in a thread, ending the one before; None if a later one has come before it.

        A busy machine may hand over two requests in another order than they were sent in. Who sent them waits for the
        one with the largest number.
        """
        stop = threading.Event()
        with self._lock:
            if tab in self._by_tab:
                before, last = self._by_tab[tab]
                if number < last:
                    return None
                before.set()
            self._threads = {thread for thread in self._threads if thread.is_alive()}
            busy = len(self._threads) >= MOST_RUNNING
            if not busy:
                self._by_tab[tab] = stop, number
                thread = threading.Thread(target=work, args=(stop,), daemon=True)
                self._threads.add(thread)
                thread.start()
        if busy:
            raise LimitError(f"{MOST_RUNNING} queries are under way already: try again when one has ended")
        return stop

    def stop_all(self) -> None:
        """End all of them."""
        with self._lock:
            for stop, _ in self._by_tab.values():
                stop.set()


class Server:
    """The page's server; :meth:`run` serves until it is told to end."""

    def __init__(self, settings: Settings) -> None:
        grid = settings.grid
        if grid is not None and grid[0] * grid[1] != len(settings.model.variables):
            count = len(settings.model.variables)
            raise QueryError(
                f"--grid {grid[0]}x{grid[1]} has {grid[0] * grid[1]} places, but the model {count} variables"
            )
        self.settings, self.session, self.running = settings, Session(settings.model), Running()
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind((settings.host, settings.port))
            self.socket.listen(64)
        except OSError as problem:
            self.socket.close()
            where = f"{settings.host} port {settings.port}"
            raise QueryError(f"cannot listen on {where}: {problem.strerror}; choose another --port") from None
        self.port = self.socket.getsockname()[1]
        self.hosts = {f"{name}:{self.port}" for name in ("127.0.0.1", "localhost", "[::1]", _in_address(settings.host))}
        self._server = uvicorn.Server(
            uvicorn.Config(
                self.app(),
                log_level="critical",
                lifespan="off",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )

    @property
    def link(self) -> str:
        """The address of the page."""
        return f"http://{_in_address(self.settings.host)}:{self.port}/{self.settings.token}/"

    def run(self) -> None:
        """Serve until Ctrl-C, or until :meth:`end`."""
        try:
            self._server.run(sockets=[self.socket])
        except KeyboardInterrupt:
            pass
        finally:
            self.running.stop_all()
            self.socket.close()

    @contextlib.contextmanager
    def serving(self) -> Iterator[Server]:
        """Serve in another thread until the end of the block."""
        thread = threading.Thread(target=self.run, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.end()
            thread.join(timeout=10)

    def end(self) -> None:
        """Let :meth:`run` come to its end, from any thread."""
        self._server.should_exit = True
        self.running.stop_all()

    def app(self) -> Any:
        """The application: everything below the token, behind the checks."""
        routes = [
            Route("/", self._file, methods=["GET"]),
            Route("/model", self._model, methods=["GET"]),
            Route("/status", self._status, methods=["GET"]),
            Route("/ask", self._ask, methods=["POST"]),
            Route("/changes", self._changes, methods=["POST"]),
            Route("/export", self._export, methods=["POST"]),
            Route("/{file}", self._file, methods=["GET"]),
        ]
        inner = Starlette(routes=[Mount(f"/{self.settings.token}", routes=routes)])
        return Guarded(inner, self.hosts, self.settings.token)

    async def _file(self, request: Request) -> Response:
        name = request.path_params.get("file", "index.html")
        if name not in FILES:
            return Response("not here", 404)
        data = files("margmap.explore").joinpath("page").joinpath(name).read_bytes()
        return Response(data, media_type=FILES[name])

    async def _model(self, request: Request) -> Response:
        return JSONResponse(describe(self.settings.model, self.settings.name, self.settings.grid))

    async def _status(self, request: Request) -> Response:
        return JSONResponse({"running": self.running.number})

    async def _export(self, request: Request) -> Response:
        try:
            asked = Asked.read(self.settings.model, await _json(request))
            return JSONResponse(exported(self.settings.model, self.settings.path, asked))
        except MargmapError as error:
            return JSONResponse({"kind": "error", "error": str(error)}, 400)

    async def _ask(self, request: Request) -> Response:
        def steps(asked: Asked, tell: Callable[[Event], None], stop: threading.Event) -> Iterator[Event]:
            return answers(self.session, asked, tell, stop.is_set, self._limits())

        return await self._streamed(request, steps)

    async def _changes(self, request: Request) -> Response:
        def steps(asked: Asked, tell: Callable[[Event], None], stop: threading.Event) -> Iterator[Event]:
            return changes(self.session, asked, stop.is_set, self._limits())

        return await self._streamed(request, steps)

    def _limits(self) -> dict[str, Any]:
        return {"time_limit": self.settings.time_limit, "memory_limit": self.settings.memory_limit}

    async def _streamed(self, request: Request, steps: Callable[..., Iterator[Event]]) -> Response:
        """Answer with one line of JSON an event, as they come."""
        try:
            data = await _json(request)
            tab, number = _sender(data)
            asked = Asked.read(self.settings.model, data)
        except MargmapError as error:
            return JSONResponse({"kind": "error", "error": str(error)}, 400)
        loop, events = asyncio.get_running_loop(), asyncio.Queue[Event | None]()

        def put(event: Event | None) -> None:
            with contextlib.suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(events.put_nowait, event)

        def work(stop: threading.Event) -> None:
            try:
                for event in steps(asked, put, stop):
                    if stop.is_set():
                        break
                    put(event)
            except MargmapError as error:
                put({"kind": "error", "error": str(error)})
            except MemoryError:
                put({"kind": "error", "error": "that takes more memory than there is"})
            except Exception as error:  # a bug: say so, and go on serving
                put({"kind": "error", "error": f"unexpected {type(error).__name__}: {error}"})
            finally:
                put(None)

        try:
            stop = self.running.start(f"{request.url.path} {tab}", number, work)
        except LimitError as error:
            return JSONResponse({"kind": "error", "error": str(error)}, 503)
        if stop is None:
            events.put_nowait(None)
        return Streamed(events, stop or threading.Event())


def _sender(data: object) -> tuple[str, int]:
    """The tab that a question comes from, and its number there; 0 for one without."""
    if not isinstance(data, dict):
        return "", 0
    number = data.get("number")
    return str(data.get("tab", ""))[:64], number if isinstance(number, int) else 0


class Streamed(Response):
    """Events as lines of JSON; when the browser hangs up, the query is ended."""

    def __init__(self, events: asyncio.Queue[Event | None], stop: threading.Event) -> None:
        super().__init__(media_type="application/x-ndjson")
        del self.headers["content-length"]
        self._events, self._stop = events, stop

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send what comes until there is no more, or nobody listens."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

        async def hung_up() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        listening = asyncio.ensure_future(hung_up())
        try:
            while not listening.done():
                coming = asyncio.ensure_future(self._events.get())
                await asyncio.wait({coming, listening}, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    coming.cancel()
                    return
                event = coming.result()
                if event is None:
                    break
                line = json.dumps(event, allow_nan=False).encode() + b"\n"
                await send({"type": "http.response.body", "body": line, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except OSError:  # gone in the middle of a line
            pass
        finally:
            self._stop.set()
            listening.cancel()


class Guarded:
    """The checks before everything else, and the headers on everything."""

    def __init__(self, app: Any, hosts: set[str], token: str) -> None:
        self._app, self._hosts, self._token = app, hosts, token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Refuse or pass on."""

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", ()),
                    *((name.lower().encode(), value.encode()) for name, value in HEADERS.items()),
                ]
            await send(message)

        if scope["type"] != "http":
            return
        refused = self._refusal(scope)
        app = self._app if refused is None else Response(refused[1], refused[0], media_type="text/plain")
        await app(scope, receive, with_headers)

    def _refusal(self, scope: Any) -> tuple[int, str] | None:
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            if name.decode("latin-1") in headers and name in (b"host", b"origin"):
                return 400, "twice the same header"
            headers[name.decode("latin-1")] = value.decode("latin-1")
        host = headers.get("host", "")
        if host not in self._hosts:
            return 421, "this is another host"
        if "origin" in headers and headers["origin"] != f"http://{host}":
            return 403, "another page may not ask"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "another page may not ask"
        first = scope["path"].lstrip("/").partition("/")[0]
        if not secrets.compare_digest(first.encode(), self._token.encode()):
            return 404, "not here: open the link that margmap explore printed"
        if scope["method"] == "POST" and headers.get("content-type", "").partition(";")[0] != "application/json":
            return 415, "JSON only"
        return None


async def _json(request: Request) -> Any:
    """The body of a request as JSON, if it is not too long."""
    body = bytearray()
    with contextlib.suppress(ClientDisconnect):
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                raise QueryError(f"a question has at most {MOST_BYTES} bytes")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise QueryError("this is not JSON") from None


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host
