import shutil
from pathlib import Path

import pytest


@pytest.fixture
def copied(tiny_run: Path, tmp_path: Path) -> Path:
    """A run of its own for a test that damages it."""
    return Path(shutil.copytree(tiny_run, tmp_path / "run"))


@pytest.fixture
def old(copied: Path) -> Path:
    """The same as a stranger would send it, or as it was before runs had checksums."""
    (copied / "checksums.json").unlink()
    return copied
