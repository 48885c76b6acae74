"""Mistakes that a person can mend: one sentence each, shown without a traceback."""


class UserError(Exception):
    """What was given, what is allowed, what to do next. The command line prints it and exits with `exit_code`."""

    exit_code = 1


class Diverged(UserError):
    """What a model computes is no number any more."""


class ConfigError(UserError):
    """A recipe, an override or an argument that is wrong before any work started."""

    exit_code = 2
