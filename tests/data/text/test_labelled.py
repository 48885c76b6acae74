"""Labelled texts from what people have: tables, folders, lines; held-out parts; and one sentence for what cannot be read."""

import gzip
import json

import pytest

from saccade.config.recipe import load
from saccade.data.builtin.reviews import reviews
from saccade.data.splits import SPLITS
from saccade.data.text.labelled.columns import Wanted
from saccade.data.text.labelled.dataset import prepare, reopen
from saccade.data.text.labelled.files import Labelled, Listing, read_labelled
from saccade.data.text.labelled.splits import split_listings
from saccade.data.text.labelled.windows import Reading
from saccade.errors import ConfigError, UserError

ROWS = [
    ("what a fine film", "pos"),
    ("so dull, so long", "neg"),
    ("fine and funny", "pos"),
    ("nothing but noise", "neg"),
]


def written(tmp_path, name: str, content: str | bytes):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def csv_of(rows, header="review,sentiment") -> str:
    lines = [f'"{text}",{label}' for text, label in rows]
    return "\n".join([header, *lines] if header else lines) + "\n"


def read(path, said=None, **wanted) -> Listing:
    return read_labelled(path, Wanted(**wanted), (said if said is not None else []).append)


def pairs(listing: Listing) -> list[tuple[str, str]]:
    return [(example.text, example.label) for example in listing.examples]


def forms(tmp_path):
    """The same texts in every form there is."""
    tsv = "\n".join(f"{label}\t{number}\t{text}" for number, (text, label) in enumerate(ROWS))
    records = [{"label": label, "text": text, "id": number} for number, (text, label) in enumerate(ROWS)]
    yield written(tmp_path, "a.csv", csv_of(ROWS))
    yield written(tmp_path, "b.csv.gz", gzip.compress(csv_of(ROWS, "Sentiment;x").replace('",', '";').encode()))
    yield written(tmp_path, "c.tsv", tsv)
    yield written(tmp_path, "d.jsonl", "\n".join(map(json.dumps, records)))
    yield written(tmp_path, "e.json", json.dumps(records))
    yield written(tmp_path, "f.txt", "\n".join(f"__label__{label} {text}" for text, label in ROWS))
    yield written(tmp_path, "g", "\n".join(f"{label} {text}" for text, label in ROWS))
    for number, (text, label) in enumerate(ROWS):
        written(tmp_path, f"folders/{label}/{number}.txt", text)
    yield tmp_path / "folders"


def test_every_form_holds_the_same_texts(tmp_path):
    for path in forms(tmp_path):
        wanted = {"text": "Sentiment", "label": "x"} if path.name == "b.csv.gz" else {}
        assert sorted(pairs(read(path, **wanted))) == sorted(ROWS), path


def test_parquet_is_read(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="the extra tables is not installed")
    from pyarrow import parquet

    table = pyarrow.table({"text": [text for text, _ in ROWS], "label": [1, 0, 1, 0]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert pairs(read(tmp_path / "a.parquet")) == [(text, str(int(label == "pos"))) for text, label in ROWS]
    with pytest.raises(UserError, match="cannot be read as parquet"):
        read(written(tmp_path, "bad.parquet", b"no"))


def test_columns_are_found_by_content_and_said(tmp_path):
    said = []
    path = written(tmp_path, "a.csv", csv_of([*ROWS] * 2, "x,y1"))
    assert pairs(read(path, said))[0] == ROWS[0]
    assert said == ["a.csv: the texts are column x, the labels column y1 (data.text and data.label name others)"]


def test_a_table_without_names_has_numbers(tmp_path):
    path = written(tmp_path, "a.csv", csv_of([*ROWS] * 2, header=""))
    assert len(read(path).examples) == 8
    assert pairs(read(path, text="1", label="2"))[0] == ROWS[0]


def test_texts_over_several_lines_and_with_quotation_marks(tmp_path):
    path = written(tmp_path, "a.csv", 'text,label\n"one\ntwo, ""three""",a\nfour,b\n')
    assert pairs(read(path)) == [('one two, "three"', "a"), ("four", "b")]
    tsv = written(tmp_path, "a.tsv", 'text\tlabel\n"well" said\ta\nfour\tb\n')
    assert pairs(read(tsv))[0] == ('"well" said', "a")


def test_empty_texts_and_labels_are_counted(tmp_path):
    path = written(tmp_path, "a.csv", "text,label\n,a\nfine,a\ndull,\ngood,b\n")
    listing = read(path)
    assert (len(listing.examples), listing.sentence()) == (
        2,
        f"{path}: left out 1 empty texts and 1 texts without a label",
    )


def test_what_people_marked_is_found_in_the_text(tmp_path):
    records = [
        {"doc": "not a  good\nfilm", "classification": "NEG", "evidences": [[0, 1], [2, 4]]},
        {"doc": "fine", "classification": "POS", "evidences": []},
    ]
    first, second = read(written(tmp_path, "a.jsonl", "\n".join(map(json.dumps, records)))).examples
    assert [first.text[start:end] for start, end in first.rationale] == ["not", "good film"]
    assert second.rationale == ()
    path = written(tmp_path, "t.csv", "text,selected_text,sentiment\nI like it,like,good\nI do,you,bad\n")
    marked = [example.rationale for example in read(path).examples]
    assert marked == [((2, 6),), None]


@pytest.mark.parametrize(
    ("name", "content", "wanted", "said"),
    [
        ("a.csv", csv_of(ROWS), {"label": "sentimant"}, "has no column sentimant .*did you mean sentiment"),
        ("a.csv", csv_of(ROWS), {"text": "words"}, "has no column words .*It has review, sentiment"),
        ("a.csv", "text,n\n" + "\n".join(f"a b {n},{n}" for n in range(20)), {}, "no column holds labels"),
        ("a.csv", "text,label\na,b,c\n", {}, "line 2: 3 columns instead of 2"),
        ("a.csv", "text,label\n", {}, "has a line of names and nothing below it"),
        ("a.csv", "text,label\n,a\n,b\n", {}, "left out 2 empty texts: none with a label is left"),
        ("a.csv", b"text,label\nfine,a\ncaf\xe9,b\n", {}, r"a\.csv, line 3: byte 0xe9 is not UTF-8"),
        ("a.jsonl", '{"text": "a"\n', {}, "line 1: not valid JSON"),
        ("a.jsonl", "[1]\n", {}, "record 1: not a record"),
        ("a.jsonl", '{"text": "a b", "label": "x", "rationale": [[0, 9]]}', {}, r"are no parts of its 2 words"),
        ("a.txt", "", {}, "is empty"),
        ("a.txt", "x " + "y" * 120_000, {}, "longer than 100,000 characters"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said_in_a_sentence(tmp_path, name, content, wanted, said):
    with pytest.raises(UserError, match=said):
        read(written(tmp_path, name, content), **wanted)


def test_a_folder_without_texts_is_refused(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(UserError, match=r"has no \.txt file in a folder for each class"):
        read(tmp_path)


# Splits


def listing(examples, origin="all.csv") -> Listing:
    return Listing(origin, [Labelled(*example) for example in examples])


def many(count=60):
    return [(f"Text {number}", "ab"[number % 2]) for number in range(count)]


def test_every_class_is_held_out_and_no_text_is_in_two_parts():
    copies = [(text.upper() + " ", label) for text, label in many()]
    parts = split_listings({"train": listing([*many(), *copies])}, 1, print)
    assert {split: len(part) for split, part in parts.items()} == {"train": 96, "valid": 6, "test": 6}
    texts = [{example.text.casefold().strip() for example in parts[split]} for split in SPLITS]
    assert sum(map(len, texts)) == len(set.union(*texts))
    assert {example.label for example in parts["test"]} == {"a", "b"}
    shuffled = split_listings({"train": listing([*many()][::-1])}, 1, print)
    assert {example.text for example in shuffled["test"]} == {example.text for example in parts["test"]}


def test_training_texts_that_are_tested_are_left_out():
    said = []
    parts = split_listings({"train": listing(many()), "test": listing([("text 3", "b")])}, 1, said.append)
    assert "Text 3" not in {example.text for example in parts["train"]}
    assert said == ["1 training texts also occur in the validation or test files; they were left out of training"]


@pytest.mark.parametrize(
    ("train", "test", "said"),
    [
        ([("a", "x"), ("b", "x")], None, "all 2 texts have the label x: give a second class"),
        ([(str(n), str(n)) for n in range(20)], None, "nearly every label occurs once .* these are no classes"),
        ([("a", "x"), ("b", "y")], None, "2 texts cannot be split into train, valid and test"),
        (many(), [("new", "z")], "has texts of the class z, which has no training texts: the classes are a, b"),
        (
            [*many(), ("l", "c"), ("m", "c")],
            [("L", "c"), ("m", "c")],
            "all texts of the class c are also .* test texts",
        ),
        (many(), [(text, "a") for text, label in many() if label == "b"], "all texts of the class b are also .* test"),
    ],
    ids=["one class", "no classes", "few", "new class", "class in the test", "one class left"],
)
def test_what_cannot_be_split_is_said(train, test, said):
    listings = {"train": listing(train)} | ({} if test is None else {"test": listing(test, "test.csv")})
    with pytest.raises(UserError, match=said):
        split_listings(listings, 1, print)


def test_labels_that_occur_once_are_named():
    said = []
    split_listings({"train": listing([*many(), ("lonely", "c")])}, 1, said.append)
    assert said == ["labels that occur once can be trained on and not tested: c"]


# Long texts


def test_windows_go_over_the_whole_text_and_nothing_is_cut_unless_asked():
    assert Reading(None).parts(7) == [list(range(7))]
    assert Reading(4).parts(7) == [[0, 1, 2, 3]]
    assert Reading(6, "both-ends").parts(20) == [[0, 1, 16, 17, 18, 19]]
    windows = Reading(8, "windows").parts(21)
    assert set().union(*windows) == set(range(21))
    assert {len(part) for part in windows} == {8}
    assert windows[1][0] == 6


def prepared(tmp_path, *changes):
    said = []
    recipe = load("reviews-lstm", ["data.examples=40", *changes])
    texts = prepare(recipe.data, tmp_path, said.append, recipe.start, None)
    return recipe, texts, said


def test_long_texts_are_counted(tmp_path):
    _, texts, said = prepared(tmp_path, "data.longest=12")
    (line,) = [line for line in said if "longer than" in line]
    assert (
        "of 40 texts are longer than 12 tokens: their beginning is read (data.long_texts=windows reads all of them)"
        in line
    )
    assert max(texts.train.lengths[0]) == 12
    (tmp_path / "windows").mkdir()
    assert len(prepared(tmp_path / "windows", "data.longest=12", "data.long_texts=windows")[1].train) > 40


def test_a_run_is_reopened_as_it_was_prepared(tmp_path):
    recipe, texts, said = prepared(tmp_path)
    again = reopen(recipe.data, tmp_path, None)
    assert (again.classes, again.valid, again.test) == (texts.classes, texts.valid, texts.test)
    assert again.tokenizer.encode("we sat upstairs") == texts.tokenizer.encode("we sat upstairs")
    assert any(line.startswith("2 classes: bad ") for line in said)
    (tmp_path / "classes.json").write_text("[]")
    with pytest.raises(UserError, match=r"classes\.json cannot be read .* is incomplete; copy it again"):
        reopen(recipe.data, tmp_path, None)


def test_settings_that_fit_nothing_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"name your texts: --set data\.train=FILE"):
        load("text")
    with pytest.raises(ConfigError, match=r"text = .* is for your own files"):
        load("reviews-lstm", ["data.text=a"])


def test_built_in_reviews_say_what_decides():
    found = {split: reviews(split, 60) for split in SPLITS}
    assert not {text for text, _, _ in found["train"]} & {text for text, _, _ in found["test"]}
    for text, label, ((start, end),) in found["test"]:
        assert 0 <= start < end <= len(text)
        opinion = text[start:end]
        good = any(word in opinion for word in ("lovely", "great", "friendly", "superb", "clean"))
        bad = any(word in opinion for word in ("awful", "rude", "dirty", "bland", "noisy"))
        if good or bad:
            assert (label == "good") == (good != opinion.startswith("not "))
    assert found["valid"][:20] == reviews("valid", 20)
