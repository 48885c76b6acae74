"""What the package is made from: versions are locked, hashes known, and what others may change at any time is used knowingly."""

import ast
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    tomllib = pytest.importorskip("tomli", reason="reading pyproject.toml needs Python 3.11 or tomli")

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]

# Names of torch that are not promised to stay, and for which there is no promised one; the project works with the versions it names.
PRIVATE = {
    "torch._C._are_functorch_transforms_active",
    "torch._C._current_graph_task_id",
    "torch._dynamo.utils.counters",
    "torch._foreach_mul_",
    "torch._foreach_norm",
    "torch.autograd.Variable._execution_engine.queue_callback",
    "torch.autograd.forward_ad._current_level",
    "torch.nn.modules.batchnorm._BatchNorm",
}


def is_private(name):
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def imported(tree):
    """Names of a module by what they stand for elsewhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


@cache
def names_used():
    return frozenset(_names_used())


def _names_used():
    for file in sorted((ROOT / "saccade").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names = dict(imported(tree))
        yield from names.values()
        for node in ast.walk(tree):
            parts = []
            while isinstance(node, ast.Attribute):
                parts.append(node.attr)
                node = node.value
            if parts and isinstance(node, ast.Name) and node.id in names:
                yield ".".join([names[node.id], *reversed(parts)])


def test_private_names_of_others_are_few_and_known():
    theirs = {name for name in names_used() if is_private(name)} - {"os._exit"}  # which Python documents
    longest = {name for name in theirs if not any(other.startswith(f"{name}.") for other in theirs)}
    assert {name for name in longest if not name.startswith("saccade")} == PRIVATE
    of_uvicorn = {".".join(name.split(".")[:2]) for name in names_used() if name.startswith("uvicorn.")}
    assert of_uvicorn == {"uvicorn.Config", "uvicorn.Server"}


def test_packages_whose_private_names_are_used_have_a_newest_version():
    (torch,) = [needed for needed in PROJECT["dependencies"] if needed.startswith("torch")]
    assert re.search(r"<\d+\.\d+", torch)


def pins():
    """Name and version, for this Python and whether for others, too."""
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            requirement, _, marker = line.partition(" ; ")
            name, _, number = requirement.partition("==")
            yield name, number, marker


def locked():
    for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            found = re.fullmatch(r"([a-z0-9.-]+)==(\S+) --hash=sha256:([0-9a-f]{64})", line)
            assert found, line
            yield found[1], found[2]


def test_the_lock_and_the_constraints_agree_and_hold_all_that_the_checks_need():
    versions = {name: number for name, number, _ in pins()}
    hashed = dict(locked())
    assert hashed.items() <= versions.items()
    assert {name for name in versions.keys() - hashed.keys() if not name.startswith("nvidia-")} <= {"torch", "triton"}
    needed = [*PROJECT["dependencies"], *EXTRAS["dev"], *EXTRAS["serve"], *EXTRAS["export"], *EXTRAS["captions"]]
    names = {re.match(r"[\w.-]+", one)[0].lower().replace("_", "-") for one in needed} - {"saccade"}
    assert names - versions.keys() == set(), "run `make lock`"


def test_what_is_installed_is_what_is_locked():
    import sys

    here = f'python_version == "{sys.version_info.major}.{sys.version_info.minor}"'
    for name, number, marker in pins():
        if marker in ("", here):
            try:
                assert version(name).partition("+")[0] == number, f"{name}: run `make lock`, or install what it wrote"
            except PackageNotFoundError:
                continue  # not everything is for every system


def test_no_place_is_named_where_packages_come_from():
    for file in ("constraints.txt", "requirements.lock", "pyproject.toml", "Makefile", ".ci/run", ".ci/lock.py"):
        said = (ROOT / file).read_text(encoding="utf-8")
        assert not re.search(r"https?://|file://|index-url|--find-links", said), file
