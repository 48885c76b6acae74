"""Language models as a task: from files to a text that goes on, scores, exports, and one sentence for each mistake."""

import gzip
import json
import math
from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

import saccade as library
from saccade.data.text.documents import read_documents
from saccade.errors import ConfigError, UserError
from saccade.runs.train import train
from saccade.tasks.language_model.windows import WindowBatches, consecutive, windows

SMALL = ["model.layers=1", "model.width=32", "model.heads=2", "model.context=16", "train.threads=1"]
SMALL += ["train.learning_rate=0.01", "train.minutes=null", "data.batch_size=8"]
TEXT = "the cat sat on the mat. a dog ran to the park!\n" * 60


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "cats.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(text, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "cats"
    train("language", [*SMALL, f"data.text={text}", "data.tokenizer=characters", "train.steps=250"], out)
    return library.load(out)


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    """Many documents, byte pairs, a Llama."""
    out = tmp_path_factory.mktemp("runs") / "stories"
    changes = ["data.examples=200", "data.vocab_size=300", "train.steps=3", "model.norm=rms", "model.activation=gated"]
    train("language", [*SMALL, *changes, "model.query_key_norm=false", "model.key_heads=1"], out)
    return library.load(out)


# Files


def documents(path, field="text"):
    texts, gathered = [], ""
    for piece in read_documents(path, field):
        gathered += piece.text
        if piece.ends:
            texts.append(gathered)
            gathered = ""
    assert not gathered
    return texts


def test_documents_come_from_files_folders_gzip_and_json_lines(tmp_path):
    (tmp_path / "b.txt").write_bytes("\ufeffzwei\r\nZeilen é".encode())
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one", mtime=0))
    (tmp_path / "deep").mkdir()
    rows = [{"text": "first\nline"}, {"text": "second"}]
    (tmp_path / "deep" / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    assert documents(tmp_path) == ["one", "zwei\nZeilen é", "first\nline", "second"]


def test_a_line_longer_than_a_piece_and_a_character_across_its_edge_come_whole(tmp_path):
    written = "ab" + "é€😀" * 50_000 + "\r\nend"
    (tmp_path / "long.txt").write_text(written, encoding="utf-8", newline="")
    assert documents(tmp_path / "long.txt") == [written.replace("\r\n", "\n")]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("latin.txt", b"fine\ncaf\xe9\n", r"latin.txt, line 2: byte 0xe9 is not UTF-8; save the file as UTF-8"),
        ("empty.txt", b" \n", "empty.txt has no text in it"),
        (
            "rows.jsonl",
            b'{"body": "x"}\n',
            r'line 1 has no text under "text" \(it has body\): name its field with data.field',
        ),
        ("rows.jsonl", b"not json\n", "line 1 is not JSON"),
        ("cut.txt.gz", gzip.compress(b"some text" * 100, mtime=0)[:20], "damaged or cut-off gzip file"),
        ("tiny.txt", b"ab", "too few to hold out a share"),
        ("short.txt", b"fourteen words", "the model reads 16 at once: give more text, or set model.context to less"),
    ],
)
def test_a_text_that_cannot_be_used_is_told_and_nothing_is_written(name, content, told, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=told):
        train(
            "language",
            [*SMALL, f"data.text={tmp_path / name}", "data.tokenizer=characters", "train.steps=1"],
            tmp_path / "run",
        )
    assert not (tmp_path / "run").exists()


def test_a_folder_without_text_and_settings_that_do_nothing_are_refused(tmp_path, text):
    with pytest.raises(UserError, match=r"has no text in it: give a folder of .txt or .jsonl files"):
        train("language", [f"data.text={tmp_path}"], tmp_path / "run")
    with pytest.raises(ConfigError, match="examples = 500 is for the built-in text"):
        train("language", [f"data.text={text}", "data.examples=500"], tmp_path / "run")
    with pytest.raises(ConfigError, match=r"masked = 0\.2 is for a model that guesses masked words"):
        train("language", [f"data.text={text}", "objective.masked=0.2"], tmp_path / "run")


# Windows


def test_an_epoch_has_every_window_once_and_processes_share_its_batches():
    batches = WindowBatches(103, 10, 4, seed=1)
    starts = sorted(int(start) for batch in batches.epoch(0) for start in batch)
    assert all(after - before == 10 for before, after in pairwise(starts))
    assert starts[0] < 10
    assert 103 - 1 - starts[-1] < 20
    assert [list(b) for b in batches.epoch(0)] != [list(b) for b in batches.epoch(1)]
    shares = [WindowBatches(103, 10, 4, seed=1, shard=(rank, 2)).epoch(0) for rank in (0, 1)]
    for whole, *parts in zip(batches.epoch(0), *shares, strict=True):
        assert sorted(whole) == sorted([*parts[0], *parts[1]])


def test_all_of_the_text_is_scored_once():
    stream = torch.arange(50).numpy() % 7
    following = torch.cat([part.following.flatten() for part in consecutive(stream, 8, begin=99)])
    assert following.tolist() == stream[1:].tolist()


def test_windows_with_several_documents_say_where_they_begin():
    stream = torch.tensor([9, 1, 2, 3, 9, 4, 5, 6, 7]).numpy()
    cut = windows(stream, torch.tensor([0, 4]).numpy(), 4, begin=9)
    assert cut.documents is None
    cut = windows(stream, torch.tensor([1, 4]).numpy(), 4, begin=9)
    assert cut.documents.lengths.tolist() == [3, 1, 4]


# A trained run


@torch.no_grad()
def test_it_learns_and_its_scores_are_those_of_all_held_out_tokens(run):
    scores = run.evaluate("valid")
    tokens = torch.tensor(run.task.corpus.valid.tokens.astype("int64"))
    held_out = TEXT[int(len(TEXT) * 0.9) :]
    assert run.task.tokenizer.decode(tokens[1:-1].tolist()) == held_out
    assert (scores.tokens, scores.bytes) == (len(held_out) + 1, len(held_out.encode()))
    whole = sum(
        float(F.cross_entropy(run.task.model(part[None, :-1])[0], part[1:], reduction="sum"))
        for start in range(0, len(tokens) - 1, 16)
        if len(part := tokens[start : start + 17]) > 1
    )
    assert scores.total == pytest.approx(whole, rel=1e-4)
    assert scores.bits_per_byte == pytest.approx(scores.total / math.log(2) / scores.bytes)
    assert scores.perplexity < 3


def test_it_writes_on_and_the_same_again(run):
    (written,) = run.predict(["the cat sat"], tokens=20, temperature=0)
    assert written.texts[0].text.startswith(" on the")
    bold = [run.predict(["the "], tokens=30, temperature=3, seed=seed)[0].texts[0].text for seed in (1, 1, 2)]
    assert bold[0] == bold[1] != bold[2]
    assert len(run.predict(["the"], tokens=5, samples=3)[0].lines()) == 3
    assert run.predict(["mat."], tokens=40, temperature=0)[0].lines()[0].count("\\n") >= 1  # a line in, a line out


def test_it_stops_where_it_is_told(run):
    def text(stop):
        return run.predict(["the cat"], tokens=40, temperature=0, stop=stop)[0].texts[0]

    assert text("on the|zzz").text == " sat "
    assert (text("on the").ended_by, text("zzz").ended_by) == ("stop", "tokens")
    assert text("\\n").text.endswith("!")


def test_what_is_streamed_is_what_is_answered(run):
    options = run.options("predict", {"tokens": 40, "stop": "park", "temperature": 0.0})
    example = run.example("the cat")
    parts = list(run.task.parts(example, options))
    assert (
        "".join(parts) == "the cat" + run.predict(["the cat"], tokens=40, stop="park", temperature=0)[0].texts[0].text
    )
    told = []
    fields = run.task.stream().takes(tokens=12, temperature=0, stop=[])
    run.task.stream().answer(example, fields, told.append)
    assert told[-1]["done"]
    assert "".join(message["text"] for message in told[:-1]) == told[-1]["text"]


def test_beyond_its_context_it_goes_on_and_says_so(run):
    options = run.options("predict", {"tokens": 40})
    assert "goes on from the last 8 to 16" in run.task.notes([run.example("the")], options)[0]
    assert "only the last of them count" in run.task.notes([run.example(TEXT[:100])], options)[0]
    assert len(run.predict([TEXT[:200]], tokens=40)[0].texts[0].ids) == 40


def test_letters_it_does_not_know_are_named(run):
    assert run.task.unknown_characters(["cat ß cat ñß"]) == ["ß", "ñ"]


def test_given_texts_are_scored(run, tmp_path):
    scorer = run.task.scorer()
    (tmp_path / "lines.txt").write_text("the cat sat on the mat. a dog ran to the park!\nzqx jjj\n")
    with pytest.raises(UserError, match="there is no file"):
        scorer.read([tmp_path / "none.txt"])
    texts = [*scorer.read([tmp_path / "lines.txt"])[:1], "the dog sat", "ttt ttt ttt"]
    likely, some, unlikely = scorer.score(texts)
    assert likely.tokens == len(texts[0]) - 1
    assert likely.log_prob / likely.tokens > unlikely.log_prob / unlikely.tokens
    tokens = torch.tensor([run.task.prompt("the dog sat")])
    with torch.no_grad():
        log_probs = run.task.model(tokens[:, :-1])[0].log_softmax(-1)
    assert some.log_prob == pytest.approx(float(log_probs.gather(1, tokens[0, 1:, None]).sum()), rel=1e-4)


def test_another_text_is_evaluated(run, tmp_path):
    (tmp_path / "other.txt").write_text("a mat sat on a dog\n" * 5)
    scores = run.evaluate("test", data=str(tmp_path / "other.txt"))
    assert scores.tokens == 19 * 5 + 1
    assert scores.loss > run.evaluate("valid").loss


def test_a_look_shows_maps_expectations_and_layers(run, tmp_path):
    view = run.look("the cat sat")
    assert view.maps[0].queries.labels[:3] == ("t", "h", "e")
    assert view.maps[0].weights.shape == (2, 11, 11)
    beliefs = view.beliefs
    assert [len(row) for row in beliefs.table] == [11, 11]
    assert beliefs.final[1].truth == "e"
    assert beliefs.final[1].choices[0][0] == "e"
    assert sum(share for _, share in beliefs.final[0].choices) <= 1.0001
    for ending in ("png", "html", "json"):
        view.save(tmp_path / f"view.{ending}")
    assert len(run.look("the", tokens=4, temperature=0).maps[0].queries) == 7
    with pytest.raises(UserError, match="no attention of this model matches 'decoder'"):
        run.look("the", only="decoder")


def test_the_next_token_follows_temperature_and_a_cut_head(run):
    (question,) = run.task.questions()
    example = run.example("the cat")

    def asked(**fields):
        return question.answer(example, question.takes.model_validate(fields))

    assert asked(temperature=0.5)["bits"] < asked(temperature=1.0)["bits"]
    cut = [{"map": "layers.0.self_attention", "head": head} for head in (0, 1)]
    assert asked(cut=cut)["choices"] != asked()["choices"]
    with pytest.raises(UserError, match="no attention module is called"):
        asked(cut=[{"map": "nowhere", "head": 0}])


def test_the_command_line_writes_token_by_token_and_scores(run, saccade, tmp_path):
    done = saccade("predict", run.path, "the cat sat", "--tokens", "12", "--temperature", "0")
    assert done.stdout.startswith("the cat sat on the")
    assert saccade("predict", run.path, "the cat", "a dog", "--tokens", "3").stdout.count("\n") == 2
    assert "trained on 16 tokens at once" in saccade("predict", run.path, "the", "--tokens", "30").stderr
    assert "bits per byte" in saccade("evaluate", run.path).stdout


# Many documents


def test_documents_begin_with_a_token_that_ends_a_text(stories):
    task = stories.task
    assert task.corpus.documents == 40
    assert (task.corpus.train.tokens == task.begin).sum() == 41
    assert task.prompt("Pierre")[0] == task.begin
    assert stories.predict([""], tokens=3)[0].texts[0].ids


def test_it_is_exported_for_transformers_with_its_tokenizer(stories, tmp_path):
    transformers = pytest.importorskip("transformers")
    from saccade.export import export

    assert "LlamaForCausalLM" in export(stories, tmp_path / "llama", "huggingface")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "llama").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "llama")
    text = "The old  friend of Pierre\nwill, é."
    tokens = tokenizer(text, return_tensors="pt").input_ids
    assert tokens[0].tolist() == stories.task.tokenizer.encode(text)
    assert tokenizer.decode(tokens[0]) == text
    with torch.no_grad():
        torch.testing.assert_close(stories.task.model(tokens), theirs(tokens).logits, rtol=0, atol=1e-4)
    again = library.load(tmp_path / "llama")
    assert again.predict(["Pierre"], tokens=5, temperature=0)[0].texts[0].ids


def test_a_model_without_counterpart_is_not_exported(run, tmp_path):
    from saccade.export import export

    with pytest.raises(
        UserError, match=r"no counterpart in transformers: it is no GPT-2 because model\.positions is rotary"
    ):
        export(run, tmp_path / "none", "huggingface")
    assert not (tmp_path / "none").exists()


def test_training_starts_from_a_folder_of_transformers_and_its_vocabulary(stories, text, tmp_path):
    from saccade.export import export

    export(stories, tmp_path / "llama", "huggingface")
    changes = [f"data.text={text}", f"start.from={tmp_path / 'llama'}", "train.steps=1", "train.threads=1"]
    tuned = library.load(train("language", changes, tmp_path / "tuned"))
    assert tuned.recipe.model.norm == "rms"
    assert len(tuned.task.tokenizer) == len(stories.task.tokenizer)
    with pytest.raises(ConfigError, match="so leave data"):
        train("language", [*changes, f"data.vocabulary={tmp_path / 'llama'}"], tmp_path / "both")
    settings = json.loads((tmp_path / "llama" / "config.json").read_text())
    (tmp_path / "llama" / "config.json").write_text(json.dumps({**settings, "vocab_size": 200}))
    with pytest.raises(UserError, match=r"do not belong together|does not fit"):
        train("language", changes, tmp_path / "wrong")


def test_an_existing_vocabulary_is_used(stories, text, tmp_path):
    changes = [*SMALL, f"data.text={text}", f"data.vocabulary={stories.path}", "train.steps=1"]
    run = library.load(train("language", changes, tmp_path / "run"))
    assert run.task.tokenizer.to_json() == stories.task.tokenizer.to_json()


# Masked words


@pytest.fixture(scope="module")
def guesser(text, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "guesser"
    sizes = ["model.layers=1", "model.width=32", "model.heads=2", "model.feed_forward=64", "model.max_length=18"]
    changes = [*sizes, "objective.whole_words=false", f"data.text={text}", "data.vocab_size=300", "train.threads=1"]
    train(
        "language-masked",
        [*changes, "train.steps=300", "train.minutes=null", "train.warmup_steps=20", "train.learning_rate=0.01"],
        out,
    )
    return library.load(out)


def test_masked_words_are_guessed(guesser, text):
    (filled,) = guesser.predict(["the cat [MASK] on the mat."], best=3)
    assert len(filled.lines()) == 3
    assert filled.to_dict()["masks"][0][0]["probability"] > 0
    assert guesser.predict(["the <mask> sat"])[0].lines()[0].startswith("the ")
    assert guesser.evaluate("test", data=str(text)).accuracy > 0.4  # "the" alone would be 4 of 15
    with pytest.raises(UserError, match=r"text 1 of 1 has nothing to fill in .*write \[MASK\] or <mask>"):
        guesser.predict(["no hole"])
    with pytest.raises(UserError, match="this model reads 16: shorten it around its masks"):
        guesser.predict(["[MASK] " + TEXT[:300]])
    assert guesser.look("the cat [MASK] on").beliefs.at_position


def test_an_unknown_letter_is_not_taken_for_the_mask(text, tmp_path):
    sizes = ["model.layers=1", "model.width=32", "model.heads=2", "model.feed_forward=64", "model.max_length=18"]
    changes = [*sizes, "objective.whole_words=false", f"data.text={text}", "data.tokenizer=characters"]
    run = library.load(train("language-masked", [*changes, "train.steps=1", "train.threads=1"], tmp_path / "run"))
    tokens, (place,) = run.task.tokens_of("ß the [MASK] sat")
    assert tokens[place] == run.task.mask == run.task.tokenizer.special.unknown
    assert tokens.index(run.task.mask) < place
    labels = run.look("ß the [MASK] sat").maps[0].queries.labels
    assert [number for number, label in enumerate(labels) if label == "[mask]"] == [place]
    (filled,) = run.predict(["ß the [MASK] sat"])
    assert filled.guesses[0][0][1] == pytest.approx(float(run.task.shares(tokens)[place].max()), rel=1e-5)


def test_blanks_before_a_mask_are_its_own_and_those_at_the_end_stay(guesser):
    task = guesser.task
    tokens, (place,) = task.tokens_of("the [MASK] sat ")
    last = len(tokens) - (task.tokenizer.special.last is not None)
    assert tokens[place + 1 : last] == task.tokenizer.encode(" sat ") != task.tokenizer.encode(" sat")
    assert tokens[:place] == task.tokens_of("the[MASK]")[0][:place]


def test_80_10_10_of_the_chosen_tokens_and_never_special_ones(guesser):
    task = guesser.task
    tokens = torch.randint(4, len(task.tokenizer), (400, 100), generator=torch.Generator().manual_seed(3))
    tokens[:, ::10] = task.begin
    read, chosen = task.hide(tokens, torch.Generator().manual_seed(1))
    assert not chosen[:, ::10].any()
    assert torch.equal(read[~chosen], tokens[~chosen])
    assert float(chosen[:, 1:10].float().mean()) == pytest.approx(0.15, abs=0.01)
    masked, same = (read == task.mask)[chosen].float().mean(), (read == tokens)[chosen].float().mean()
    assert (float(masked), float(same)) == (pytest.approx(0.8, abs=0.02), pytest.approx(0.1, abs=0.02))
    assert not torch.isin(read[chosen & (read != tokens) & (read != task.mask)], torch.tensor(task.special)).any()
    again, other = (task.hide(tokens, torch.Generator().manual_seed(seed))[1] for seed in (1, 2))
    assert torch.equal(chosen, again)
    assert not torch.equal(chosen, other)


def test_pieces_of_a_word_can_be_masked_together(guesser):
    task = guesser.task
    whole = task.recipe.model_copy(update={"objective": task.recipe.objective.model_copy(update={"whole_words": True})})
    other = type(task)(whole, task.corpus)
    continues = torch.tensor(task.tokenizer.continues())
    tokens = torch.randint(4, len(task.tokenizer), (50, 100), generator=torch.Generator().manual_seed(3))
    _, chosen = other.hide(tokens, torch.Generator().manual_seed(1))
    goes_on = continues[tokens[:, 1:]]
    assert goes_on.any()
    assert torch.equal(chosen[:, 1:][goes_on], chosen[:, :-1][goes_on])


def test_a_masked_model_is_exported_for_transformers(guesser, text, tmp_path):
    transformers = pytest.importorskip("transformers")
    from saccade.export import export

    with pytest.raises(UserError, match="BERT has norm post"):
        export(guesser, tmp_path / "pre", "huggingface")
    sizes = ["model.layers=1", "model.width=32", "model.heads=2", "model.feed_forward=64", "model.max_length=18"]
    changes = [*sizes, "model.norm=post", f"data.text={text}", "data.vocab_size=300", "train.threads=1"]
    changes += ["objective.whole_words=false"]
    run = library.load(train("language-masked", [*changes, "train.steps=1"], tmp_path / "run"))
    assert "BertForMaskedLM" in export(run, tmp_path / "bert", "huggingface")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "bert").eval()
    tokens = torch.tensor([run.task.tokens_of("the cat [MASK] on the mat.")[0]])
    with torch.no_grad():
        ours = run.task.model(tokens, torch.tensor([tokens.shape[1]]))
        torch.testing.assert_close(ours, theirs(tokens).logits, rtol=0, atol=1e-4)
    again = library.load(tmp_path / "bert")
    assert again.predict(["the [MASK] sat"])[0].lines()
    ours, read_again = (each.evaluate("test", data=str(text)) for each in (run, again))
    assert (read_again.tokens, read_again.text) == (ours.tokens, str(text))
    assert read_again.loss == pytest.approx(ours.loss, rel=0.01)  # its texts begin with another token


def test_a_classifier_starts_from_a_masked_model(guesser, tmp_path):
    rows = [f"{label},{text}" for text, label in [("the cat sat", "cats"), ("a dog ran", "dogs")] * 20]
    unique = [f"{row} {number}" for number, row in enumerate(rows)]
    (tmp_path / "labelled.csv").write_text("label,text\n" + "\n".join(unique) + "\n")
    changes = [
        f"data.train={tmp_path / 'labelled.csv'}",
        f"start.from={guesser.path}",
        "train.steps=1",
        "train.threads=1",
    ]
    tuned = library.load(train("text", changes, tmp_path / "tuned"))
    assert tuned.recipe.model_name == "bert"
    assert tuned.task.tokenizer.to_json() == guesser.task.tokenizer.to_json()
