"""`saccade serve`: the API and the page on a port, until somebody stops it."""

import ipaddress
import os
import secrets
import socket
import ssl
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import quote

from saccade.errors import ConfigError, UserError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from saccade.serve.guard import Access


@dataclass(frozen=True)
class Opening:
    """Where and for whom runs are served."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    public: bool = False
    behind_proxy: bool = False
    certificate: Path | None = None
    key: Path | None = None
    workers: int | None = None


def serve(paths: Sequence[Path], opening: Opening) -> None:
    """Serve runs until interrupted; what is running then is finished first.

    Anybody on this machine may ask a server on a loopback address. On any other address, or behind a proxy, it asks for a token, unless it
    was said that none is wanted.
    """
    try:
        import uvicorn

        from saccade.serve.patience import Patience
    except ImportError:
        raise UserError("serving needs fastapi and uvicorn: pip install 'saccade[serve]'") from None
    from saccade.serve.keeper import start_importing
    from saccade.serve.limits import Limits

    token = token_for(opening)
    check_certificate(opening.certificate, opening.key)
    listening = _listen(opening.host, opening.port)
    Thread(target=start_importing, daemon=True).start()
    app, names = _application(paths, opening, token)
    listening.listen(1024)  # whoever reads the address below may ask at once
    print(f"{', '.join(names)} at {_address(opening, listening, token)} (stop with Ctrl-C)", file=sys.stderr)
    patience = Patience(Limits().upload_seconds)
    config = uvicorn.Config(
        patience.application(app),
        http=patience.protocol,  # type: ignore[arg-type]
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # it would believe a header that any client on this machine can send
        timeout_graceful_shutdown=60,
        ssl_certfile=opening.certificate,
        ssl_keyfile=opening.key,
    )
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def _application(paths: Sequence[Path], opening: Opening, token: str | None) -> "tuple[FastAPI, list[str]]":
    """The models are not kept here: the workers hold them."""
    from saccade.serve.app import create_app
    from saccade.serve.limits import Limits
    from saccade.serve.served import open_runs

    limits = Limits()
    runs = open_runs(paths, limits)
    workers = opening.workers or default_workers(os.cpu_count() or 1)
    return create_app(runs, limits, _access(opening, token), workers), list(runs)


def _access(opening: Opening, token: str | None) -> "Access":
    from saccade.serve.guard import LOOPBACK, Access

    hosts = None if is_open(opening) else frozenset({*LOOPBACK, opening.host})
    return Access(hosts, token, opening.behind_proxy)


def default_workers(processors: int) -> int:
    """One for every two processors, so that each has two; two at least, so that one that hangs does not stop the others."""
    return min(max(processors // 2, 2), 8)


def _address(opening: Opening, listening: socket.socket, token: str | None) -> str:
    host = opening.host
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    scheme = "http" if opening.certificate is None else "https"
    secret = "" if token is None else f"?token={quote(token, safe='')}"
    return f"{scheme}://{shown}:{listening.getsockname()[1]}/{secret}"


def is_open(opening: Opening) -> bool:
    """Whether others than this machine can ask."""
    return opening.behind_proxy or not is_loopback(opening.host)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def token_for(opening: Opening) -> str | None:
    """What callers must know: a token of one's own, or a new one where others can ask; None where nobody needs one."""
    token = opening.token
    if token is not None and opening.public:
        raise ConfigError("--token and --public were both given: a public server asks for no token, choose one of them")
    if token is not None and (len(token) < 8 or not token.isascii() or not token.isprintable() or " " in token):
        raise ConfigError("the token must be 8 or more letters and digits: choose a longer one that nobody guesses")
    if token is None and is_open(opening) and not opening.public:
        return secrets.token_urlsafe(24)
    return token


def check_certificate(certificate: Path | None, key: Path | None) -> None:
    """Both can be read and belong together."""
    if certificate is None and key is None:
        return
    if certificate is None or key is None:
        given, missing = ("--key", "--certificate") if certificate is None else ("--certificate", "--key")
        raise ConfigError(f"{given} was given alone: TLS needs {missing}, too")
    for path in (certificate, key):
        if not path.is_file():
            raise UserError(f"{path} is no file: give the PEM files of a certificate and its key")
    try:
        # A password cannot be asked for: nobody may be there to type it.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or str(error)
        raise UserError(
            f"{certificate} and {key} are no certificate with its key ({reason}): give PEM files without a password"
        ) from None


def _listen(host: str, port: int) -> socket.socket:
    """Bound before the models are read, so that a port in use is known at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise UserError(f"cannot listen on {host} port {port} ({error}): choose another --port or --host") from None
    listening.set_inheritable(True)
    return listening
