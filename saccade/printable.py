"""Text that others wrote, made safe to show: names of classes and files, settings and sentences may hold anything.

visible("cat\\x1b[2J")         a terminal would obey the escape: it is spelled out
cell("a\\tb\\nc")              one cell of a line with tabs between them
spreadsheet_cell("=cmd()")    a spreadsheet would compute it: a quote before it makes it text
"""

import re

# Control characters of both kinds, and those that turn the direction of writing round.
_ORDERS = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u202a-\\u202e\\u2066-\\u2069"
_CONTROL = re.compile(f"[{_ORDERS}]")
_BREAKS = re.compile(f"[{_ORDERS}\\t\\n\\u2028\\u2029]")
_FORMULA = ("=", "+", "-", "@")


def visible(text: str) -> str:
    """For a terminal; tabs and ends of lines stay."""
    return _CONTROL.sub(_spelled, text)


def cell(text: str) -> str:
    """On one line, without tabs."""
    return _BREAKS.sub(_spelled, text)


def spreadsheet_cell(text: str) -> str:
    text = cell(text)
    return f"'{text}" if text.startswith(_FORMULA) else text


def visible_json(text: str) -> str:
    """JSON whose texts keep what they hold."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _spelled(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
