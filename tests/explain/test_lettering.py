"""Letters that no font has are known by name, and whoever asks for them hears of them."""

import pytest
from matplotlib.font_manager import fontManager

from saccade.explain import lettering
from saccade.explain.lettering import Lettering, letters_without_font


@pytest.fixture
def only_matplotlibs_fonts(monkeypatch):
    own = [entry for entry in fontManager.ttflist if "mpl-data" in entry.fname]
    monkeypatch.setattr(fontManager, "ttflist", own)
    lettering._fonts.cache_clear()
    yield
    lettering._fonts.cache_clear()


def test_letters_that_only_a_box_stands_for_are_gathered(only_matplotlibs_fonts):
    with letters_without_font() as letters:
        Lettering(["a cat", "猫 кот"])
        Lettering(["日 \ud800"])
    assert letters == {"猫", "日", "\ud800"}
    Lettering(["犬"])
    assert "犬" not in letters


def test_what_is_written_whole_is_as_wide_as_all_of_it():
    words = "one and two and three and four and five"
    measure = Lettering([words])
    assert measure.width([words], 9, whole=True) > 1.2 * measure.width([words], 9)
