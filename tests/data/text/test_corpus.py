"""A corpus, prepared into a run directory."""

import json

import pytest
from pydantic import ValidationError

from saccade.data.text.corpus import CorpusConfig, prepare
from saccade.data.text.pairs import as_line


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


def test_training_pairs_that_are_also_tested_are_counted_out_loud(tmp_path):
    files, said = own_files(tmp_path), []
    named = {f"{split}_{side}": files[side] for split in ("valid", "test") for side in files}
    prepare(CorpusConfig(**files, **named), tmp_path / "run", said.append)
    assert "60 of the training pairs stand in the files to validate or test by, too: those are no test" in said


def test_a_built_in_corpus_in_lower_case_is_judged_in_lower_case(tmp_path):
    config = CorpusConfig(corpus="phrasebook", examples=50, lowercase=True)
    corpus = prepare(config, tmp_path, lambda sentence: None)
    for phrase in (*corpus.valid, *corpus.test):
        assert (phrase.source, phrase.target) == (phrase.source.lower(), phrase.target.lower())
        assert phrase.alignment


def test_what_is_printed_is_one_line():
    assert as_line("two\nlines\r\x1b[31m and\u2028a bell\x07") == "two lines  [31m and a bell"
    assert as_line("l'été, ça") == "l'été, ça"
