"""`saccade serve`: the API and the page on a port, until somebody stops it."""

import ipaddress
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from saccade.errors import ConfigError, UserError


def serve(
    paths: Sequence[Path], host: str = "127.0.0.1", port: int = 8000, token: str | None = None, public: bool = False
) -> None:
    """Serve runs until interrupted; what is running then is finished first.

    Anybody on this machine may ask a server on a loopback address. On any other address it needs a token, or the word that none is wanted.
    """
    try:
        import uvicorn

        from saccade.serve.app import create_app
        from saccade.serve.patience import Impatient
    except ImportError:
        raise UserError("serving needs fastapi and uvicorn: pip install 'saccade[serve]'") from None
    from saccade.serve.guard import LOOPBACK, Access
    from saccade.serve.limits import Limits
    from saccade.serve.served import open_runs

    local = is_loopback(host)
    check_access(host, local, token, public)
    listening = _listen(host, port)
    limits = Limits()
    runs = open_runs(paths, limits)
    listening.listen(1024)  # whoever reads the address below may ask at once
    app = create_app(
        runs,
        limits,
        Access(hosts=frozenset({*LOOPBACK, host}), token=token) if local else Access(hosts=None, token=token),
    )
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}/"
    secret = "" if token is None else f"#token={quote(token, safe='')}"
    print(f"{', '.join(runs)} at {address}{secret} (stop with Ctrl-C)", file=sys.stderr)
    config = uvicorn.Config(
        app, http=Impatient, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=60
    )
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_access(host: str, local: bool, token: str | None, public: bool) -> None:
    if token is not None and public:
        raise ConfigError("--token and --public were both given: a public server asks for no token, choose one of them")
    if token is not None and (len(token) < 8 or not token.isascii() or not token.isprintable() or " " in token):
        raise ConfigError("the token must be 8 or more letters and digits: choose a longer one that nobody guesses")
    if not local and token is None and not public:
        raise ConfigError(
            f"--host {host} lets other machines ask: give a --token that they must send, or --public if anybody may"
        )


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
