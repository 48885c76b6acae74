import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.text.pairs import Report, read_pairs
from saccade.data.text.tokenizer import BOS, EOS, PAD, UNK, Tokenizer, Vocabularies
from saccade.errors import ConfigError, UserError

ENGLISH = [
    "The agreement on the European Economic Area was signed in August 1992.",
    "Two young men are outside near many bushes.",
    "A man in a blue shirt is standing on a ladder, cleaning a window.",
    "The man's dog doesn't like the cat's toys (or 3.5 of them)!",
]
FRENCH = [
    "L'accord sur la zone économique européenne a été signé en août 1992.",
    "Deux jeunes hommes sont dehors près de buissons.",
    "Un homme en chemise bleue se tient sur une échelle pour nettoyer une fenêtre.",
    "Aujourd'hui, qu'est-ce que l'homme d'affaires mange ?",
]
TEXTS = ENGLISH + FRENCH
KINDS = ["bpe", "words", "characters"]
TOKENIZERS = {kind: Tokenizer.train(TEXTS, kind, 400) for kind in KINDS}
any_text = st.text(st.characters(codec="utf-8"))
kinds = st.sampled_from(KINDS)


@settings(max_examples=60, deadline=None)
@given(any_text)
def test_bpe_gives_any_text_back_exactly(text):
    tokenizer = TOKENIZERS["bpe"]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not any(token < 4 for token in ids)


@pytest.mark.parametrize(
    "text", ["", " ", "  a \t b\r\n ", "👩‍👩‍👧 é e\u0301", "\0\x7f\u00ad\u200b\u2028", "▁Ġ␣·", "<unk><pad>"]
)
def test_bpe_gives_odd_texts_back_exactly(text):
    assert TOKENIZERS["bpe"].decode(TOKENIZERS["bpe"].encode(text)) == text


@given(st.text(sorted(set("".join(TEXTS)))))
def test_characters_seen_in_training_come_back_exactly(text):
    tokenizer = TOKENIZERS["characters"]
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode(text)) == len(text)


@pytest.mark.parametrize("text", TEXTS)
def test_words_come_back_as_they_are_written(text):
    tokenizer = TOKENIZERS["words"]
    assert tokenizer.decode(tokenizer.encode(text)) == text.replace(" ?", "?")


@pytest.mark.parametrize(
    "text",
    [
        'He said "yes, and no" (twice).',
        "„Ja“, sagt sie.",
        "“Yes”, she says...",
        "L'été, c'est l’heure d'aller jusqu'ici.",
        "the '80s and/or the U.S. Army",
        "We're at 50% of $3.50: don't!",
        "a « mot » - ici",
    ],
)
def test_words_keep_quotes_brackets_and_apostrophes_where_they_belong(text):
    tokenizer = Tokenizer.train([text], "words", 100)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_cannot_be_written(kind):
    special = "<eos>"
    texts = [f"a {special} b", special]
    tokenizer = Tokenizer.train(texts, kind, 400)
    ids = tokenizer.encode(f"a {special} b")
    assert min(ids) > UNK
    assert len(ids) > 3
    assert tokenizer.decode(ids).replace(" ", "") == f"a{special}b"


@pytest.mark.parametrize("kind", KINDS)
def test_special_ids_are_fixed_and_tokens_are_numbered_without_gaps(kind):
    tokenizer = TOKENIZERS[kind]
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert tokenizer.vocabulary[:4] == ["<pad>", "<bos>", "<eos>", "<unk>"]
    assert len(set(tokenizer.vocabulary)) == len(tokenizer) == len(tokenizer.vocabulary)


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_stops_at_the_end_and_skips_padding(kind):
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode("Two young men")
    assert tokenizer.decode([BOS, *ids, PAD, EOS, *ids]) == "Two young men"
    assert tokenizer.decode([]) == tokenizer.decode([EOS]) == ""


@pytest.mark.parametrize("kind", ["words", "characters"])
def test_what_was_not_seen_becomes_unknown(kind):
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode("A ☃ man")
    assert ids.count(UNK) == 1
    assert tokenizer.decode(ids) == "A <unk> man"


def test_a_word_vocabulary_is_the_most_frequent_words():
    texts = ["b b b b a a a c c, d"]
    counts = Counter(texts[0].replace(",", " ,").split())
    expected = sorted(counts, key=lambda word: (-counts[word], word))
    assert Tokenizer.train(texts, "words", 100).vocabulary[4:] == expected
    assert Tokenizer.train(texts, "words", 6).vocabulary[4:] == ["b", "a"]
    assert Tokenizer.train(texts, "words", 100, min_count=2).vocabulary[4:] == ["b", "a", "c"]


def test_bpe_merges_the_pairs_of_the_paper():
    """The toy dictionary of Sennrich et al.: low 5, lower 2, newest 6, widest 3."""
    texts = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
    tokenizer = Tokenizer.train(texts, "bpe", 264)
    assert tokenizer.vocabulary[260:] == ["es", "est", "lo", "low"]
    assert tokenizer.pieces(tokenizer.encode("lowest")) == ["low", "·est"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_larger_than_the_data_gives_has_its_true_size(kind):
    tokenizer = Tokenizer.train(["ab ab"], kind, 50_000)
    assert len(tokenizer) == {"bpe": 4 + 256 + len(["ab", " ab"]), "words": 5, "characters": 7}[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_lowercase_is_part_of_the_tokenizer(kind):
    tokenizer = Tokenizer.from_json(Tokenizer.train(TEXTS, kind, 400, lowercase=True).to_json())
    assert tokenizer.encode("TWO Young mEn") == tokenizer.encode("two young men")
    assert tokenizer.decode(tokenizer.encode("TWO Young mEn")) == "two young men"


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_is_encoded_like_its_texts(kind):
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.encode_batch(TEXTS) == [tokenizer.encode(text) for text in TEXTS]
    assert tokenizer.encode_batch([]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_json_gives_the_same_tokenizer(kind):
    tokenizer = TOKENIZERS[kind]
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.to_json() == tokenizer.to_json()
    assert again.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
    assert again.pieces(again.encode(FRENCH[0])) == tokenizer.pieces(tokenizer.encode(FRENCH[0]))


def test_training_is_the_same_in_every_process():
    program = (
        "import sys, json, hashlib; from saccade.data.text.tokenizer import Tokenizer\n"
        "texts = json.loads(sys.argv[1])\n"
        "print([hashlib.md5(Tokenizer.train(texts, kind, 400).to_json().encode()).hexdigest()"
        " for kind in ('bpe', 'words', 'characters')])"
    )
    digests = set()
    for seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "TOKENIZERS_PARALLELISM": "true" if seed == "1" else "false",
        }
        run = subprocess.run(
            [sys.executable, "-c", program, json.dumps(TEXTS)],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        digests.add(run.stdout)
    assert len(digests) == 1


def test_words_of_subwords_separate_punctuation_and_elisions():
    tokenizer = TOKENIZERS["bpe"]
    ids = tokenizer.encode("L'accord, aujourd'hui : l'homme d’affaires  européenne's 😀.")
    expected = ["L'", "accord", ",", "aujourd'hui", ":", "l'", "homme", "d’", "affaires", "européenne", "'s", "😀", "."]
    assert tokenizer.words([*ids, EOS]) == [*expected, "<eos>"]
    assert len(ids) > len(expected)


@pytest.mark.parametrize("kind", ["bpe", "characters"])
def test_words_of_subwords_are_the_words_of_the_word_tokenizer(kind):
    word_tokenizer = TOKENIZERS["words"]
    for text in TEXTS:
        ids = TOKENIZERS[kind].encode(text)
        assert TOKENIZERS[kind].words(ids) == word_tokenizer.words(word_tokenizer.encode(text))


@settings(max_examples=60, deadline=None)
@given(kinds, any_text)
def test_word_groups_count_up_over_the_tokens_of_any_text(kind, text):
    check_groups(TOKENIZERS[kind], TOKENIZERS[kind].encode(text))


@settings(max_examples=60, deadline=None)
@given(kinds, st.data())
def test_word_groups_count_up_over_any_tokens(kind, data):
    check_groups(TOKENIZERS[kind], data.draw(st.lists(st.integers(0, len(TOKENIZERS[kind]) - 1))))


def check_groups(tokenizer, ids):
    groups, words, pieces = tokenizer.word_groups(ids), tokenizer.words(ids), tokenizer.pieces(ids)
    assert len(groups) == len(ids) == len(pieces)
    assert sorted(set(groups)) == list(range(len(words)))
    assert groups == sorted(groups)
    assert all(words)
    assert all(pieces)
    for token, group in zip(ids, groups, strict=True):
        if token < 4:
            assert groups.count(group) == 1
            assert words[group] == tokenizer.vocabulary[token]


def test_pieces_can_be_read():
    tokenizer = Tokenizer.train(["play house playhouse"] * 3 + ["play"], "bpe", 270)
    assert tokenizer.pieces(tokenizer.encode("play")) == ["play"]
    odd = [BOS, *tokenizer.encode("\t é"), EOS]
    assert tokenizer.pieces(odd) == ["<bos>", "\\t", "␣", "\\xc3", "·\\xa9", "<eos>"]
    assert TOKENIZERS["characters"].pieces(TOKENIZERS["characters"].encode("a b")) == ["a", "␣", "b"]
    assert TOKENIZERS["words"].pieces(TOKENIZERS["words"].encode("A man ☃")) == ["A", "man", "<unk>"]


@pytest.mark.parametrize("joint", [True, False])
def test_both_vocabularies_live_in_one_file(tmp_path, joint):
    source = TOKENIZERS["bpe"]
    saved = Vocabularies(source, source if joint else TOKENIZERS["words"])
    saved.save(tmp_path / "tokenizer.json")
    loaded = Vocabularies.load(tmp_path / "tokenizer.json")
    assert loaded.joint is saved.joint is joint
    assert loaded.source.to_json() == saved.source.to_json()
    assert loaded.target.to_json() == saved.target.to_json()
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"version": 2}', b'{"version": 1, "source": {"kind": "bpe"}}', b"\xff"]
)
def test_a_file_that_is_no_vocabulary_is_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(UserError, match="is not a vocabulary"):
        Vocabularies.load(tmp_path / "tokenizer.json")


def test_a_vocabulary_with_other_special_tokens_is_refused(tmp_path):
    Vocabularies(TOKENIZERS["words"], TOKENIZERS["words"]).save(tmp_path / "tokenizer.json")
    content = (tmp_path / "tokenizer.json").read_text(encoding="utf-8").replace("<bos>", "<start>")
    (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match="is not a vocabulary"):
        Vocabularies.load(tmp_path / "tokenizer.json")
    with pytest.raises(UserError, match="cannot be read"):
        Vocabularies.load(tmp_path / "missing.json")


def test_long_pairs_are_left_out_and_counted():
    tokenizer = TOKENIZERS["words"]
    report = Report(read=3)
    pairs = [("a man", "un homme"), ("a man in a blue shirt", "un homme"), ("a man", "un homme en chemise bleue")]
    kept = list(Vocabularies(tokenizer, tokenizer).encode_pairs(pairs, max_length=4, report=report))
    assert kept == [(tokenizer.encode("a man"), tokenizer.encode("un homme"))]
    assert report.sentence() == "kept 1 of 3 pairs; left out 2 longer than 4 tokens"
    with pytest.raises(UserError, match="at most 1 tokens"):
        list(Vocabularies(tokenizer, tokenizer).encode_pairs(pairs, max_length=1))


def test_wrong_arguments_are_refused():
    with pytest.raises(ConfigError, match="choose bpe, words or characters"):
        Tokenizer.train(TEXTS, "sentences", 400)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="260 or more"):
        Tokenizer.train(TEXTS, "bpe", 100)
    with pytest.raises(UserError, match="no text"):
        Tokenizer.train(["", " "], "bpe", 400)
    with pytest.raises(UserError, match="not UTF-8"):
        TOKENIZERS["bpe"].encode("caf\udce9")


def test_a_text_that_the_engine_could_not_hold_is_refused_before_it_is_tokenised():
    long = "a" * 100_001
    with pytest.raises(UserError, match="a text has 100,001 characters and may have at most 100,000"):
        TOKENIZERS["bpe"].encode(long)
    with pytest.raises(UserError, match="100,001 characters"):
        Tokenizer.train(["a", long], "bpe", 400)


def test_an_error_in_the_texts_ends_the_training():
    def texts():
        yield "a"
        raise UserError("line 2 is wrong")

    with pytest.raises(UserError, match="line 2 is wrong"):
        Tokenizer.train(texts(), "bpe", 400)


DATA = Path(os.environ.get("SACCADE_DATA", "/nowhere")) / "multi30k"


@pytest.mark.skipif(not DATA.is_dir(), reason="SACCADE_DATA/multi30k is not here")
def test_real_sentences_come_back():
    pairs = list(read_pairs(DATA / "val.en.gz", DATA / "val.de.gz"))
    texts = [" ".join(text.split()) for pair in pairs for text in pair]
    subwords, words = Tokenizer.train(texts, "bpe", 2000), Tokenizer.train(texts, "words", 20_000)
    assert [subwords.decode(ids) for ids in subwords.encode_batch(texts)] == texts
    same = [words.decode(ids) == text for ids, text in zip(words.encode_batch(texts), texts, strict=True)]
    assert sum(same) / len(same) > 0.98


@pytest.mark.parametrize("missing", ["version", "source"])
def test_the_message_names_what_a_vocabulary_lacks(missing, tmp_path):
    Vocabularies(TOKENIZERS["words"], TOKENIZERS["words"]).save(tmp_path / "tokenizer.json")
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    del content[missing]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(UserError, match=f"is not a vocabulary of Saccade \\(it lacks '{missing}'\\)"):
        Vocabularies.load(tmp_path / "tokenizer.json")
