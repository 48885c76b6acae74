"""A connection on which no whole request head arrives in time is closed, and so is one whose client does not read its answer.

Uvicorn waits for the rest of a head as long as the client likes, and a client that likes it forever keeps a socket of ours. Bodies are the
guard's business (guard.py): they have a limit of their own, and an answer that says so.
"""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from saccade.serve.limits import Limits


class Impatient(H11Protocol):
    seconds = Limits.upload_seconds
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._between_requests():
            self._stop_waiting()
        elif self._waiting is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_answer(self.transport.get_write_buffer_size())

    def _watch_answer(self, unread: int) -> None:
        if unread:
            self.loop.call_later(self.seconds, self._give_up_answer, unread)

    def _give_up_answer(self, unread: int) -> None:
        """Somebody slow may take as long as they like, but not stop."""
        now = self.transport.get_write_buffer_size()
        if now >= unread:
            self.transport.abort()
        else:
            self._watch_answer(now)

    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self.seconds, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if self._between_requests():
            self.transport.close()
