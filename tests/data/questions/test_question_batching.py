import itertools

import torch

from saccade.data.questions.batching import NO_ANSWER, collate, windows
from saccade.data.questions.words import Lexicon, cut, sentence_numbers


def test_words_and_their_places_spell_the_text():
    text = "It's 3,000.5 km, naïve “quotes”—हिन्दी!"
    words = cut(text)
    assert words.words == ("It", "'", "s", "3,000.5", "km", ",", "naïve", "“", "quotes", "”", "—", "हिन्दी", "!")
    assert [text[start:end] for start, end in zip(words.starts, words.ends, strict=True)] == list(words.words)


def test_sentences_end_at_marks_with_a_space_behind_them():
    words = cut('He said "Go." Then 3.5 km. End')
    numbers = sentence_numbers(words.words, words.starts, words.ends)
    assert numbers[words.words.index("Then")] == 1
    assert (numbers[words.words.index("km")], numbers[-1]) == (1, 2)


def test_windows_cover_a_long_context_and_know_which_holds_the_answer():
    text = " ".join(f"w{number}" for number in range(50))
    start = text.index("w33")
    made = windows(cut("which?"), cut(text), 20, 8, [(start, start + 7)])  # w33 w34
    assert made[0].first == 0
    assert made[-1].last == 50
    assert all(after.first - before.first == 8 for before, after in itertools.pairwise(made))
    for window in made:
        inside = window.first <= 33 and window.last > 34
        assert window.spans == (((34 - window.first, 35 - window.first),) if inside else (NO_ANSWER,))
    assert len(windows(cut("which?"), cut("one two"), 20, 8)) == 1


def test_a_batch_holds_each_word_once_and_marks_what_both_texts_share():
    lexicon = Lexicon.learn({"who": 3, "Ada": 2, "sang": 2}, 100, lowercase=True)
    made = windows(cut("Who sang?"), cut("ada Sang"), 20, 8, [(0, 3)])
    batch = collate(made, lexicon)
    assert batch.forms.tolist() == [0, *(lexicon.spelled(word)[0] for word in ("Who", "sang", "?", "ada", "Sang"))]
    assert batch.context_shared.tolist() == [[[0, 0], [0, 1]]]  # no spelling in common, one word in any case
    assert (batch.starts.tolist(), batch.ends.tolist()) == ([1], [1])
    assert torch.equal(batch.forms[batch.question[0]], batch.forms[1:4])


def test_a_lexicon_comes_back_from_its_file(tmp_path):
    lexicon = Lexicon.learn({"Ada": 2, "sang": 1, "odd": 1}, 100, lowercase=True, more=["sang", "moon"])
    assert lexicon.words == ["ada", "sang", "moon"]
    lexicon.save(tmp_path / "v.json")
    again = Lexicon.load(tmp_path / "v.json")
    assert (again.words, again.letters, again.spelled("MOON")) == (
        lexicon.words,
        lexicon.letters,
        lexicon.spelled("MOON"),
    )
