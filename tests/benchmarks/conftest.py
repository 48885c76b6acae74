"""The benchmarks are run from the repository and are no part of the installed package, so the tests put it on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
