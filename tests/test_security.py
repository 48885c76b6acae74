"""Every promise of docs/guides/security.md names a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| (?!Promise|-)(.+?) \| `([\w/]+\.py)::(\w+)` \|$", re.MULTILINE)


def test_every_promise_names_a_test_that_exists():
    text = (ROOT / "docs" / "guides" / "security.md").read_text(encoding="utf-8")
    rows = ROW.findall(text)
    assert len(rows) >= 25
    assert len(rows) == sum(line.startswith("| ") and not line.startswith("| Promise") for line in text.splitlines())
    for promise, file, name in rows:
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), promise
