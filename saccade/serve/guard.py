"""What stands before the API: who may ask, how much, how long, and what a browser may do with the answers.

A page of another site cannot ask (its browser says where a request comes from, and a name that is not ours is refused, which also stops
DNS rebinding), a body is read whole and within limits before anything looks at it, and every answer carries the headers that keep a page
to itself.
"""

import asyncio
import hmac
import json
import logging
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

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
_DISCARDED = 8  # times the largest body: what is read of a larger one before its client is told


@dataclass(frozen=True)
class Access:
    """Who may ask. `hosts` are the names that this server answers to (None: any), `token` what the API asks for (None: nothing)."""

    hosts: frozenset[str] | None = LOOPBACK
    token: str | None = None


class Guard:
    """ASGI middleware around everything."""

    def __init__(self, app: Any, limits: Limits, access: Access, metrics: Metrics, paths: Sequence[str]):
        self.app = app
        self.limits = limits
        self.access = access
        self.metrics = metrics
        self.paths = frozenset(paths)
        self._asking: Counter[str] = Counter()

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

        client = (scope.get("client") or ("",))[0]
        self._asking[client] += 1
        try:
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self._admit(scope, headers, client)
            await self.app(scope, await self._body(receive, headers), send_guarded)
        except Refused as refused:
            await _say(send_guarded, refused)
        except Exception:
            _log.exception("a request to %s failed", scope["path"])
            if not answering:
                await _say(send_guarded, Refused(500, "something went wrong here; the server's log says what"))
        finally:
            self._asking[client] -= 1
            if not self._asking[client]:
                del self._asking[client]
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.metrics.count(path, status, time.monotonic() - started)

    def _admit(self, scope: Any, headers: dict[str, str], client: str) -> None:
        host = headers.get("host", "")
        if self.access.hosts is not None and _name(f"//{host}") not in self.access.hosts:
            raise Refused(403, "this server answers under its own address only: ask 127.0.0.1 or localhost")
        origin = headers.get("origin")
        foreign = origin is not None and urlsplit(origin).netloc != host
        if foreign or (
            scope["path"].startswith("/api") and headers.get("sec-fetch-site") in ("cross-site", "same-site")
        ):
            raise Refused(403, "a page of another site may not ask this server: open its own page")
        guarded = scope["path"].startswith("/api") or scope["path"] == "/metrics"
        if guarded and self.access.token is not None:
            token = headers.get("authorization", "").removeprefix("Bearer ").encode("latin-1", "replace")
            if not hmac.compare_digest(token, self.access.token.encode()):
                raise Refused(401, "this server asks for its token: send the header `Authorization: Bearer TOKEN`")
        if self._asking[client] > self.limits.per_client:
            raise Refused(429, f"you have {self.limits.per_client} requests open already: wait for their answers")
        if (
            scope["method"] == "POST"
            and headers.get("content-type", "").partition(";")[0].strip() != "application/json"
        ):
            raise Refused(415, "the body must be JSON: send it with the header `Content-Type: application/json`")

    async def _body(self, receive: Any, headers: dict[str, str]) -> Any:
        """The whole body, read within the limits, and then the client's own messages (it may leave)."""
        largest = self.limits.body
        length = headers.get("content-length", "0")
        try:
            if not length.isdigit() or int(length[:20]) > largest:
                raise _TooLarge(goes_on=True)
            body = await asyncio.wait_for(_whole(receive, largest), self.limits.upload_seconds)
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
        is_sent = False

        async def replay() -> Any:
            nonlocal is_sent
            if is_sent:
                return await receive()
            is_sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        return replay


async def _whole(receive: Any, largest: int) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(400, "the request ended before its body did: send all of it")
        body += message.get("body", b"")
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
    if refused.status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
