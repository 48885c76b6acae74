"""The page's JavaScript modules as one script.

A self-contained file may load nothing, so the modules are put one after the other, each after those it imports. They share one scope then:
no two of them may declare the same name at their top level.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_IMPORT = re.compile(r'^import \{(?P<names>[^}]*)\} from "\./(?P<module>[\w-]+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|const|class)", re.MULTILINE)


@cache
def modules() -> dict[str, str]:
    """The source of every module by its name."""
    folder = files("saccade.views").joinpath("page")
    return {file.name[:-3]: file.read_text("utf-8") for file in folder.iterdir() if file.name.endswith(".js")}


def bundle(entry: str, sources: Mapping[str, str]) -> str:
    """The module `entry` and all that it imports as one script in strict mode, with a scope of its own."""
    parts = [_EXPORT.sub("", _IMPORT.sub("", sources[name])).strip() for name in in_order(entry, sources)]
    return '(() => {\n"use strict";\n' + "\n\n".join(parts) + "\n})();\n"


def in_order(entry: str, sources: Mapping[str, str]) -> list[str]:
    """The names of the modules, each after those it imports."""
    order: list[str] = []
    open_modules: list[str] = []

    def visit(name: str) -> None:
        if name in open_modules:
            raise ValueError(f"modules import each other in a circle: {' -> '.join([*open_modules, name])}")
        if name in order:
            return
        open_modules.append(name)
        for imported in _IMPORT.finditer(sources[name]):
            visit(imported["module"])
        open_modules.pop()
        order.append(name)

    visit(entry)
    return order
