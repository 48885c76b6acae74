"""A connection on which no whole request head arrives in time is closed, and so is one whose client does not read its answer.

Uvicorn waits for the rest of a head as long as the client likes, and a client that likes it forever keeps a socket of ours. Bodies are the
guard's business (guard.py): they have a limit of their own, and an answer that says so. This stands around uvicorn's own protocol, of which
it knows what asyncio says of every protocol; when a request begins and ends the application says.
"""

import asyncio
from collections.abc import Callable
from typing import Any

Application = Callable[[Any, Any, Any], Any]


class Patience:
    """For one server: `protocol` goes to uvicorn.Config(http=...), and `application` around what is served."""

    def __init__(self, seconds: float):
        import uvicorn

        own = uvicorn.Config(_nothing, http="h11", log_config=None)
        own.load()
        self.seconds = seconds
        self.connections: dict[tuple[Any, ...], Impatient] = {}
        self._protocol: Callable[..., asyncio.Protocol] = own.http_protocol_class

    def protocol(self, **arguments: Any) -> "Impatient":
        return Impatient(self._protocol(**arguments), self)

    def application(self, app: Application) -> Application:
        async def patient(scope: Any, receive: Any, send: Any) -> None:
            connection = self.connections.get(tuple(scope.get("client") or ()))
            if connection is None:
                await app(scope, receive, send)
                return
            connection.begin()
            try:
                await app(scope, receive, send)
            finally:
                connection.end()

        return patient


class Impatient(asyncio.Protocol):
    def __init__(self, inner: asyncio.Protocol, patience: Patience):
        self._inner = inner
        self._patience = patience
        self._is_asked = False
        self._waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._loop = asyncio.get_running_loop()
        self._transport = transport
        self._client = tuple(transport.get_extra_info("peername") or ())[:2]
        self._patience.connections[self._client] = self
        self._inner.connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)
        if not self._is_asked and self._waiting is None:
            self._wait()

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._patience.connections.get(self._client) is self:
            del self._patience.connections[self._client]
        self._inner.connection_lost(exc)

    def begin(self) -> None:
        self._is_asked = True
        self._stop_waiting()

    def end(self) -> None:
        self._is_asked = False
        self._watch_answer(self._transport.get_write_buffer_size())

    def _watch_answer(self, unread: int) -> None:
        if unread:
            self._loop.call_later(self._patience.seconds, self._give_up_answer, unread)

    def _give_up_answer(self, unread: int) -> None:
        """Somebody slow may take as long as they like, but not stop."""
        now = self._transport.get_write_buffer_size()
        if now >= unread:
            self._transport.abort()
        else:
            self._watch_answer(now)

    def _wait(self) -> None:
        self._waiting = self._loop.call_later(self._patience.seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if not self._is_asked:
            self._transport.close()


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    """What a configuration must name, and nobody asks."""
