"""What stands before the API: who may ask, how much, how long, and what a browser may do with the answers.

A page of another site cannot ask (its browser says where a request comes from, and a name that is not ours is refused, which also stops
DNS rebinding), a body is read whole and within limits before anything looks at it, work for a client that has gone is given up, and every
answer carries the headers that keep a page to itself. Whether the server is up may be asked by anybody at any time.
"""

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from saccade.serve.addresses import Guesses, Open, address_of
from saccade.serve.limits import Limits
from saccade.serve.metrics import Metrics

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
_log = logging.getLogger("saccade.serve")


class Refused(Exception):
    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
CLIENT = "saccade.client"  # in the scope of a request: the address that its limits are counted by
_GONE = 499  # in the metrics, of a request whose client left
_DISCARDED = 8  # times the largest body: what is read of a larger one before its client is told


@dataclass(frozen=True)
class Access:
    """Who may ask. `hosts` are the names that this server answers to (None: any), `token` what the API asks for (None: nothing).
    `behind_proxy`: all requests come through a proxy, which says from where in X-Forwarded-For; otherwise that header is not believed."""

    hosts: frozenset[str] | None = LOOPBACK
    token: str | None = None
    behind_proxy: bool = False


class Guard:
    """ASGI middleware around everything."""

    def __init__(self, app: Any, limits: Limits, access: Access, metrics: Metrics, paths: Sequence[str]):
        self.app = app
        self.limits = limits
        self.access = access
        self.metrics = metrics
        self.paths = frozenset(paths)
        self._open = Open()
        self._guesses = Guesses(limits.guesses, limits.guess_seconds)
        self._bodies = Bodies(limits.bodies)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, answering = time.monotonic(), 500, False

        async def send_guarded(message: Any) -> None:
            nonlocal status, answering
            if message["type"] == "http.response.start":
                answering = True
                status = message["status"]
                own = {name for name, _ in message["headers"]}
                more = [(k.encode(), v.encode()) for k, v in _HEADERS.items() if k.encode() not in own]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        try:
            await self._ask(scope, receive, send_guarded)
        except Refused as refused:
            await _say(send_guarded, refused)
        except _Gone:
            status = _GONE
        except Exception:
            _log.exception("a request to %s failed", scope["path"])
            if not answering:
                await _say(send_guarded, Refused(500, "something went wrong here; the server's log says what"))
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.metrics.count(path, status, time.monotonic() - started)

    async def _ask(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        client = address_of((scope.get("client") or ("",))[0], headers, self.access.behind_proxy)
        self._require_known(scope, headers)
        if scope["path"] == "/healthz":
            await self.app(scope, receive, send)
            return
        with self._open.one_more(client) as count:
            if count > self.limits.per_client:
                raise Refused(429, f"you have {self.limits.per_client} requests open already: wait for their answers")
            self._admit(scope, headers, client)
            with self._bodies.one_more() as held:
                body = await self._body(receive, headers, held)
                await _while_there(self.app, {**scope, CLIENT: client}, body, receive, send)

    def _require_known(self, scope: Any, headers: Mapping[str, str]) -> None:
        host = headers.get("host", "")
        if self.access.hosts is not None and _name(f"//{host}") not in self.access.hosts:
            raise Refused(403, "this server answers under its own address only: ask 127.0.0.1 or localhost")
        origin = headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc != host
        if foreign or (
            scope["path"].startswith("/api") and headers.get("sec-fetch-site") in ("cross-site", "same-site")
        ):
            raise Refused(403, "a page of another site may not ask this server: open its own page")

    def _admit(self, scope: Any, headers: Mapping[str, str], client: str) -> None:
        guarded = scope["path"].startswith("/api") or scope["path"] == "/metrics"
        if guarded and self.access.token is not None:
            self._require_token(headers.get("authorization", "").removeprefix("Bearer "), self.access.token, client)
        if (
            scope["method"] == "POST"
            and headers.get("content-type", "").partition(";")[0].strip() != "application/json"
        ):
            raise Refused(415, "the body must be JSON: send it with the header `Content-Type: application/json`")

    def _require_token(self, said: str, token: str, client: str) -> None:
        """Once too many were wrong even the right one is refused: an answer would tell a guess from it."""
        if self._guesses.are_too_many(client):
            raise Refused(
                429, f"too many wrong tokens came from your address: wait {self.limits.guess_seconds:g} seconds"
            )
        if not hmac.compare_digest(said.encode("latin-1", "replace"), token.encode()):
            if said:
                self._guesses.add(client)
            raise Refused(401, "this server asks for its token: send the header `Authorization: Bearer TOKEN`")

    async def _body(self, receive: Any, headers: Mapping[str, str], held: Callable[[int], None]) -> bytes:
        """The whole body, read within the limits."""
        largest = self.limits.body
        length = headers.get("content-length", "0")
        try:
            if not length.isdigit() or int(length[:20]) > largest:
                raise _TooLarge(goes_on=True)
            return await asyncio.wait_for(_whole(receive, largest, held), self.limits.upload_seconds)
        except _TooLarge as too_large:
            if too_large.goes_on:
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(_discard(receive, _DISCARDED * largest), self.limits.upload_seconds)
            raise Refused(
                413, f"the request is larger than the {largest:,} bytes that are allowed: send less at a time"
            ) from None
        except asyncio.TimeoutError:
            seconds = self.limits.upload_seconds
            raise Refused(408, f"the request did not arrive within {seconds:g} seconds: send it again") from None


class Bodies:
    """The bytes of all bodies that are here at a time."""

    def __init__(self, most: int):
        self._most = most
        self._held = 0

    @contextmanager
    def one_more(self) -> Iterator[Callable[[int], None]]:
        own = 0

        def add(size: int) -> None:
            nonlocal own
            own += size
            self._held += size
            if self._held > self._most:
                raise Refused(503, "too many large requests are here already: ask again in a moment")

        try:
            yield add
        finally:
            self._held -= own


async def _while_there(app: Any, scope: Any, body: bytes, receive: Any, send: Any) -> None:
    """The application's answer to a body that has been read; it is cancelled when the client goes."""
    left, is_read, is_answered = asyncio.Event(), False, False

    async def replay() -> Any:
        nonlocal is_read
        if is_read:
            await left.wait()
            return {"type": "http.disconnect"}
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send_noted(message: Any) -> None:
        nonlocal is_answered
        is_answered = message["type"] == "http.response.body" and not message.get("more_body", False)
        await send(message)

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    answering, watching = asyncio.ensure_future(app(scope, replay, send_noted)), asyncio.ensure_future(watch())
    try:
        await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done() and not is_answered:
            answering.cancel()
        await asyncio.wait({answering})
        if answering.cancelled():
            raise _Gone
        answering.result()
    finally:
        for task in (answering, watching):
            task.cancel()


async def _whole(receive: Any, largest: int, held: Callable[[int], None]) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(400, "the request ended before its body did: send all of it")
        body += message.get("body", b"")
        held(len(message.get("body", b"")))
        more = message.get("more_body", False)
        if len(body) > largest:
            raise _TooLarge(more)
    return bytes(body)


async def _discard(receive: Any, most: int) -> None:
    """Reads on, so that the client is still there to be told: one that is cut off while it sends sees a broken connection only."""
    message = await receive()
    while message["type"] == "http.request" and message.get("more_body", False) and most > 0:
        most -= len(message.get("body", b""))
        message = await receive()


class _TooLarge(Exception):
    """More was sent than is read."""

    def __init__(self, goes_on: bool):
        self.goes_on = goes_on


class _Gone(Exception):
    """The client went before it was answered."""


def _name(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


async def _say(send: Any, refused: Refused) -> None:
    body = json.dumps({"error": refused.sentence}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refused.status in (429, 503):
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
