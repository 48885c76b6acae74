"""A corpus, prepared into a run directory."""

import json

import pytest
from pydantic import ValidationError

from saccade.data.text.corpus import CorpusConfig, prepare
from saccade.data.text.pairs import as_line
from saccade.errors import UserError


def own_files(folder, count=60):
    source, target = folder / "a.en", folder / "a.fr"
    source.write_text("".join(f"sentence {number} of a corpus\n" for number in range(count)), encoding="utf-8")
    target.write_text("".join(f"phrase {number} d'un corpus\n" for number in range(count)), encoding="utf-8")
    return {"source": source, "target": target}


def held_out(folder, **settings):
    corpus = prepare(CorpusConfig(**settings), folder, lambda sentence: None)
    return [phrase.source for phrase in (*corpus.valid, *corpus.test)]


def test_what_is_held_out_follows_a_seed_of_its_own(tmp_path):
    files = own_files(tmp_path)
    first, again, other = (
        held_out(tmp_path / name, split_seed=seed, **files) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("useless", [{"corpus": "phrasebook"}, {"valid": True}])
def test_a_split_seed_where_nothing_is_split_is_refused(tmp_path, useless):
    files = own_files(tmp_path)
    named = {f"{split}_{side}": files[side] for split in ("valid", "test") for side in files}
    with pytest.raises(ValidationError, match="split_seed = 2"):
        CorpusConfig(split_seed=2, **({**files, **named} if useless.get("valid") else useless))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json.gz", "a.tsv"])
def test_a_file_of_both_sides_takes_no_target(tmp_path, name):
    files = own_files(tmp_path) | {"source": tmp_path / name}
    files["source"].write_text(json.dumps({"source": "a", "target": "b"}), encoding="utf-8")
    with pytest.raises(ValidationError, match="holds both sides by its ending: leave target out"):
        CorpusConfig(**files)


def some_lines(files, first, last, folder):
    """Lines of the corpus as files of their own."""
    parts = {}
    for side, path in files.items():
        parts[side] = folder / f"{first}-{last}.{side}"
        parts[side].write_text("".join(path.read_text().splitlines(keepends=True)[first:last]))
    return parts


@pytest.mark.parametrize("last", [1, 7])
def test_training_pairs_that_occur_in_held_out_files_are_left_out(tmp_path, last):
    files, notices = own_files(tmp_path), []
    valid = {f"valid_{side}": path for side, path in some_lines(files, 0, last, tmp_path).items()}
    test = {f"test_{side}": path for side, path in some_lines(files, 0, 1, tmp_path).items()}
    corpus = prepare(CorpusConfig(**files, **valid, **test), tmp_path / "run", notices.append)
    assert len(corpus.train) == 60 - last
    expected = {
        1: "1 training pair also occurs in the validation or test files; it was left out of training",
        7: "7 training pairs also occur in the validation or test files; they were left out of training",
    }
    assert expected[last] in notices


def test_where_every_training_pair_is_held_out_the_message_says_so(tmp_path):
    files = own_files(tmp_path)
    held_out = {f"{split}_{side}": files[side] for split in ("valid", "test") for side in files}
    with pytest.raises(UserError, match="every pair also occurs in the validation or test files"):
        prepare(CorpusConfig(**files, **held_out), tmp_path / "run", lambda notice: None)


@pytest.mark.parametrize(("named", "cut"), [("valid", "test"), ("test", "valid")])
def test_of_validation_and_test_the_one_without_a_file_is_cut_from_the_corpus(tmp_path, named, cut):
    files = own_files(tmp_path)
    held_out = {f"{named}_{side}": path for side, path in some_lines(files, 0, 5, tmp_path).items()}
    corpus = prepare(CorpusConfig(**files, **held_out), tmp_path / "run", lambda notice: None)
    assert [phrase.source for phrase in corpus.held_out(named)] == [f"sentence {n} of a corpus" for n in range(5)]
    assert len(corpus.held_out(cut)) == 2  # a twentieth
    assert len(corpus.train) == 60 - 5 - 2
    assert not {phrase.source for phrase in corpus.held_out(named)} & {phrase.source for phrase in corpus.held_out(cut)}


def test_few_training_pairs_are_warned_about(tmp_path):
    files, notices = own_files(tmp_path, count=2), []
    valid = {
        f"{split}_{side}": path
        for split in ("valid", "test")
        for side, path in some_lines(files, 0, 1, tmp_path).items()
    }
    prepare(CorpusConfig(**files, **valid), tmp_path / "run", notices.append)
    assert any(notice.startswith("Only 1 training pair: the model will memorise it") for notice in notices)


def test_a_built_in_corpus_in_lower_case_is_judged_in_lower_case(tmp_path):
    config = CorpusConfig(corpus="phrasebook", examples=10, lowercase=True)
    corpus = prepare(config, tmp_path, lambda sentence: None)
    for phrase in (*corpus.valid, *corpus.test):
        assert (phrase.source, phrase.target) == (phrase.source.lower(), phrase.target.lower())
        assert phrase.alignment


def test_what_is_printed_is_one_line():
    assert as_line("two\nlines\r\x1b[31m and\u2028a bell\x07") == "two lines  [31m and a bell"
    assert as_line("l'été, ça") == "l'été, ça"
