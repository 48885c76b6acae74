"""Who asks, by the address that a request came from: how many requests are open, how many wrong tokens were tried."""

import ipaddress
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_MOST = 10_000  # addresses whose guesses are remembered


def address_of(peer: str, headers: Mapping[str, str], behind_proxy: bool) -> str:
    """The address of the client; of IPv6 the network, of which one client has as many addresses as it likes. Only what the nearest proxy
    added counts, the last of the header's entries: a client can write anything before it."""
    forwarded = headers.get("x-forwarded-for", "").rpartition(",")[2].strip() if behind_proxy else ""
    written = forwarded or peer
    try:
        address = ipaddress.ip_address(written)
    except ValueError:
        return written[:80]
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))


class Open:
    """Requests that are not answered yet."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()

    @contextmanager
    def one_more(self, client: str) -> Iterator[int]:
        """How many there are of this client now, this one included."""
        self._count[client] += 1
        try:
            yield self._count[client]
        finally:
            self._count[client] -= 1
            if not self._count[client]:
                del self._count[client]


class Guesses:
    """Wrong tokens: `most` of one address in so many seconds, and then none is looked at."""

    def __init__(self, most: int, seconds: float):
        self._most = most
        self._seconds = seconds
        self._times: dict[str, deque[float]] = {}

    def are_too_many(self, client: str) -> bool:
        times = self._times.get(client)
        while times and times[0] < time.monotonic() - self._seconds:
            times.popleft()
        return times is not None and len(times) >= self._most

    def add(self, client: str) -> None:
        if len(self._times) >= _MOST:
            now = time.monotonic()
            self._times = {
                who: times for who, times in self._times.items() if times and times[-1] > now - self._seconds
            }
        self._times.setdefault(client, deque(maxlen=self._most)).append(time.monotonic())
