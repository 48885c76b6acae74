"""The command line: each command parses its arguments, calls one function and prints what comes back.

Results go to stdout, everything else to stderr. What a command needs is imported inside it, so that `--help` and shell
completion stay quick.
"""

import errno
import os
import sys

from saccade.cli import recipes, runs
from saccade.cli.app import app
from saccade.errors import UserError
from saccade.printable import visible

__all__ = ["app", "main", "recipes", "runs"]


def main() -> None:
    """Run a command; a person's mistake ends in one sentence and an exit code, never in a traceback."""
    try:
        try:
            runs.register(sys.argv[1:])
            app()
        finally:
            sys.stdout.flush()
    except UserError as error:
        if os.environ.get("RANK", "0") == "0":  # of several processes under torchrun, one speaks
            print(f"error: {visible(str(error))}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        _forget_stdout()  # the reader has gone (`| head`)
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _forget_stdout()
        place = f"{error.filename} cannot be written: " if error.filename else ""
        print(f"error: {visible(place)}the disk is full; free some space or write elsewhere", file=sys.stderr)
        sys.exit(1)


def _forget_stdout() -> None:
    """Without this, Python would complain when it flushes stdout at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
