import gzip

import pytest

import saccade as library
from saccade.data.text.pairs import read_pairs
from saccade.errors import ConfigError, UserError
from saccade.runs.train import train
from saccade.tasks.translation.evaluating import first_sentence

ROWS = [f"p{n}\tTool {n} draws maps. It was made in {n}.\tdraws maps, number {n}" for n in range(60)]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "all.tsv.gz"
    path.write_bytes(gzip.compress("\n".join(ROWS).encode()))
    return path


def test_columns_of_a_table_are_chosen(table):
    assert next(read_pairs(table, columns=(2, 3))) == ("Tool 0 draws maps. It was made in 0.", "draws maps, number 0")
    with pytest.raises(UserError, match=r"3 columns, and data\.columns asks for number 4"):
        list(read_pairs(table, columns=(2, 4)))
    with pytest.raises(UserError, match=r"say which ones with data\.columns"):
        list(read_pairs(table))


def test_a_summariser_is_scored_by_rouge_beside_the_first_sentence(table, tmp_path):
    sizes = ["model.hidden=16", "model.embedding=8", "data.vocab_size=300", "decode.max_length=12", "train.steps=3"]
    run = library.load(
        train(
            "summarise", [f"data.source={table}", "data.columns=[2,3]", "train.warmup_steps=1", *sizes], tmp_path / "r"
        )
    )
    scores = run.evaluate("test")
    names = [name for name, _ in scores.rows()]
    assert names[1:7] == [f"ROUGE-{kind}{of}" for of in ("", " of the first sentence") for kind in "12L"]
    assert scores.rouge_of_first_sentences.rouge1 > 30
    assert next(iter(scores.compared())) == "ROUGE-L"
    assert scores.to_dict()["rouge"]["rouge_l"] == scores.rouge.rouge_l
    view = run.look(ROWS[3].split("\t")[1])
    assert view.maps[0].key_title == "source"


def test_the_first_sentence_ends_at_its_mark():
    assert first_sentence("Uses v1.2 files. And more.") == "Uses v1.2 files."
    assert first_sentence("no mark") == "no mark"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("data.joint=false", "one vocabulary of subwords"),
        ("data.tokenizer=words", "one vocabulary of subwords"),
        ("objective.consistency=5.0", "for models that do not copy"),
    ],
)
def test_what_does_not_go_with_copying_is_refused(table, tmp_path, change, said):
    with pytest.raises(ConfigError, match=said):
        train("summarise", [f"data.source={table}", "data.columns=[2,3]", change], tmp_path / "r")
