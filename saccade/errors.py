"""Messages for people: errors shown as one sentence without a traceback, and notices while work goes on."""

from collections.abc import Callable

Say = Callable[[str], None]  # shows a notice: one sentence


class UserError(Exception):
    """What was given, what is allowed, what to do next. The command line prints it and exits with `exit_code`."""

    exit_code = 1


class Diverged(UserError):
    """The outputs or weights of a model became NaN or infinite."""


class ConfigError(UserError):
    """A recipe, an override or an argument that is wrong before any work started."""

    exit_code = 2
