"""The wheel that people install: nothing forgotten in it, and it works where nothing else is installed."""

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

import saccade

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Built:
    sources: frozenset[str]
    wheel: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Without a compiler, which is quick and has to work: only the kernels are missing then."""
    return _built(tmp_path_factory.mktemp("copy"), CC="false")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return _built(tmp_path_factory.mktemp("copy"))


def _built(copy: Path, **environment: str) -> Built:
    """From a copy, so that nothing lands in the repository and nothing stale in it lands in the wheel."""
    sources = _sources()
    for name in sources:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
    _run(
        sys.executable, "-m", "build", "--wheel", "--outdir", str(copy / "dist"), str(copy), folder=copy, **environment
    )
    (wheel,) = (copy / "dist").glob("*.whl")
    return Built(frozenset(sources), wheel)


def test_the_wheel_has_every_file_of_the_package(built: Built) -> None:
    inside = set(zipfile.ZipFile(built.wheel).namelist())
    package = {name for name in built.sources if name.startswith("saccade/")}
    assert "saccade/py.typed" in package
    assert package - inside == set()
    assert {name for name in inside if name.startswith(("tests/", "benchmarks/", "docs/"))} == set()


def test_the_installed_wheel_lists_its_recipes(built: Built, tmp_path: Path) -> None:
    """In an environment of its own, which borrows from this one what the package depends on."""
    python = _environment(tmp_path)
    site = Path(
        _run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=tmp_path).strip()
    )
    (site / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    _install(built, python, "--no-deps", "--ignore-installed")
    _require_it_works(built, python, tmp_path)


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(compiled: Built, tmp_path: Path) -> None:
    python = _environment(tmp_path)
    _install(compiled, python)
    _require_it_works(compiled, python, tmp_path)


def _environment(folder: Path) -> Path:
    _run(sys.executable, "-m", "venv", "--without-pip", str(folder / "environment"), folder=folder)
    return folder / "environment" / "bin" / "python"


def _install(built: Built, python: Path, *options: str) -> None:
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile"]
    _run(*install, *options, str(built.wheel), folder=python.parent)


def _require_it_works(built: Built, python: Path, folder: Path) -> None:
    where = _run(str(python), "-c", "import saccade; print(saccade.__file__)", folder=folder)
    assert Path(where.strip()).is_relative_to(python.parent.parent)
    command = str(python.parent / "saccade")
    assert _run(command, "--version", folder=folder) == f"saccade {saccade.__version__}\n"
    listed = [line.split("\t")[0] for line in _run(command, "recipes", folder=folder).splitlines()]
    recipes = [Path(name) for name in built.sources if name.startswith("saccade/recipes/") and name.endswith(".yaml")]
    assert listed == sorted(path.stem for path in recipes)


def _sources() -> list[str]:
    """The files of the project: what git tracks or would track, or else all that is neither built nor hidden."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        tracked = []
    walked = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if _is_source(path.relative_to(ROOT))]
    return [name for name in tracked or walked if (ROOT / name).is_file()]


def _is_source(path: Path) -> bool:
    built = any(part.startswith(".") or part in ("__pycache__", "build", "dist") for part in path.parts)
    return not built and not any(part.endswith(".egg-info") for part in path.parts)


def _run(*command: str, folder: Path, **more: str) -> str:
    """Run elsewhere than the repository, with its constraints, and without its environment's own settings."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= more
    environment["PIP_CONSTRAINT"] = str(ROOT / "constraints.txt")
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout
