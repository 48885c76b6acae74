"""Letters that no font has are known by name, and whoever asks for them hears of them."""

import pytest
from matplotlib.font_manager import fontManager

from saccade.views import lettering
from saccade.views.lettering import Lettering, letters_without_font


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


def test_a_long_title_is_wrapped_between_words():
    words = "one and two and three and four and five and six and seven"
    measure = Lettering([words])
    lines = measure.wrapped(words, 14, room=2.5).splitlines()
    assert " ".join(lines) == words
    assert len(lines) > 1
    assert measure.width(lines, 14, whole=True) <= 2.5
    assert measure.wrapped("a-word-that-is-wider-than-all-the-room and", 14, room=0.5).splitlines() == [
        "a-word-that-is-wider-than-all-the-room",
        "and",
    ]
    assert measure.wrapped("", 14, room=1.0) == ""
