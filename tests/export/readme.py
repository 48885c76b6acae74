"""The program that a README.txt shows, to be run as a reader would run it."""

import itertools
import textwrap


def program_of(readme):
    """The indented lines of a README.txt, from its first import on."""
    lines = readme.split("\n")
    begin = next(number for number, line in enumerate(lines) if line.startswith("    import "))
    block = itertools.takewhile(lambda line: not line or line.startswith("    "), lines[begin:])
    return textwrap.dedent("\n".join(block))
