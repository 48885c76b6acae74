"""The caption task: its loss is torch's, REINFORCE is its definition, it learns, and it says what it sees in any picture."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from saccade.config import recipe as configs
from saccade.data.captions.dataset import Captions, CaptionsConfig, CaptionSet
from saccade.data.image_shape import ImageShape
from saccade.data.text.tokenizer import BOS, EOS, Tokenizer
from saccade.errors import UserError
from saccade.metrics.captions import score_captions
from saccade.models import caption_transformer, show_attend_tell, show_tell
from saccade.runs.train import train
from saccade.tasks.captions import evaluating
from saccade.tasks.captions.options import CaptionOptions
from saccade.tasks.captions.task import Caption, CaptionTask, ObjectiveConfig
from saccade.tasks.writing import DecodeConfig
from saccade.training.checkpoint import load_model

RECIPE = """
task: captions
data: {corpus: shapes, examples: 300}
model: {name: show_attend_tell, encoder: {name: cnn, width: 16}, embedding: 16, hidden: 32, attention: 16, dropout: 0.0}
decode: {valid_sentences: 8}
train: {threads: 1, precision: fp32, steps: 40, validate_every: 40, learning_rate: 1.0e-2}
"""
COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (40, 60, 230), "white": (250, 250, 250)}
SIDE = 16
CNN = {"name": "cnn", "cell": 4, "width": 16}
MODELS = {
    "none": (show_tell, {"embedding": 16, "hidden": 32}),
    "soft": (show_attend_tell, {"embedding": 16, "hidden": 32, "attention": 16}),
    "hard": (show_attend_tell, {"embedding": 16, "hidden": 32, "attention": 16, "selection": "hard"}),
    "transformer": (caption_transformer, {"layers": 1, "width": 16, "heads": 2, "feed_forward": 32}),
}


def drawn(count: int, seed: int) -> tuple[np.ndarray, list[tuple[str, ...]], list]:
    """A square on the left and one on the right of a black picture, and what there is to say."""
    generator = np.random.default_rng(seed)
    pixels, captions, regions = np.zeros((count, 3, SIDE, SIDE), np.uint8), [], []
    for picture in pixels:
        names, places = generator.choice(list(COLOURS), 2), []
        for side, name in enumerate(names):
            top, left = int(generator.integers(0, SIDE - 5)), int(generator.integers(0, 3)) + side * SIDE // 2
            picture[:, top : top + 5, left : left + 5] = np.array(COLOURS[name])[:, None, None]
            places.append((1 + 3 * side, top / SIDE, left / SIDE, (top + 5) / SIDE, (left + 5) / SIDE))
        captions.append((f"a {names[0]} and a {names[1]} square", f"{names[0]} beside {names[1]}"))
        regions.append(tuple(places))
    return pixels, captions, regions


@pytest.fixture(scope="module")
def captions(tmp_path_factory) -> Captions:
    sets = {
        split: drawn(count, seed) for seed, (split, count) in enumerate({"train": 40, "valid": 6, "test": 5}.items())
    }
    texts = [text for own in sets["train"][1] for text in own]
    vocabulary = Tokenizer.train(texts, "words", 100, lowercase=True)
    made = Captions(tmp_path_factory.mktemp("captions"), ImageShape(3, SIDE, SIDE), vocabulary)
    for split, (pixels, own, regions) in sets.items():
        names = [f"{split} {index}" for index in range(len(own))]
        made.__dict__[split] = CaptionSet(pixels, names, own, regions, vocabulary)  # as if they had been opened
    return made


def a_task(captions: Captions, name: str = "soft", dropout: float = 0.0, batch: int = 8, **objective) -> CaptionTask:
    module, settings = MODELS[name]
    recipe = SimpleNamespace(
        task="captions",
        data=CaptionsConfig(corpus="shapes", batch_size=batch),
        objective=ObjectiveConfig(**objective),
        decode=DecodeConfig(valid_sentences=4),
        train=SimpleNamespace(seed=1),
        model=module.Config(encoder=CNN, dropout=dropout, **settings),
        model_module=module,
    )
    return CaptionTask(recipe, captions)


def trained(task: CaptionTask, updates: int, rate: float = 1e-2) -> CaptionTask:
    """By torch's own optimiser, on the first batches of an epoch again and again."""
    torch.manual_seed(0)
    step = task.steps()[0]
    optimizer = torch.optim.Adam(step.parameters, rate)
    works = task.epoch(0, 0, 1)
    task.model.train()
    for update in range(updates):
        optimizer.zero_grad()
        loss = step.loss(task.batch(works[update % len(works)]))
        (loss.total / loss.count).backward()
        torch.nn.utils.clip_grad_norm_(step.parameters, 1.0)
        optimizer.step()
    return task


def written(task: CaptionTask, images, **options) -> list[Caption]:
    examples = [task.input.from_python(image) for image in images]
    return list(task.answers(examples, CaptionOptions(**options)))


def pictures_of(images: CaptionSet) -> list[np.ndarray]:
    return [np.ascontiguousarray(pixels.transpose(1, 2, 0)) for pixels in images.pixels]


@pytest.fixture(scope="module")
def soft(captions) -> CaptionTask:
    return trained(a_task(captions, batch=20), 150)


def test_a_batch_holds_captions_of_one_length_each_beside_its_own_image(captions):
    task, seen = a_task(captions), []
    for work in task.epoch(3, 0, 1):
        batch = task.batch(work)
        assert len(work) <= 8
        assert (batch.target_in[:, 0] == BOS).all()
        assert (batch.target_out[:, -1] == EOS).all()
        assert torch.equal(batch.target_in[:, 1:], batch.target_out[:, :-1])
        for row, index in enumerate(work):
            image = captions.train.pairs.images[index]
            assert captions.vocabulary.decode(batch.target_out[row]) in captions.train.captions[image]
            assert np.array_equal(batch.visual[row].numpy(), captions.train.pixels[image])
        seen += work.tolist()
    assert sorted(seen) == list(range(80))


def test_images_are_mirrored_as_often_as_not_in_training_and_never_else(captions):
    task = a_task(captions, batch=80)
    task.recipe.data = task.recipe.data.model_copy(update={"mirrored": True})
    torch.manual_seed(0)
    turned = []
    for work in task.epoch(0, 0, 1):
        for row, index in zip(task.batch(work).visual.numpy(), work, strict=True):
            image = captions.train.pixels[captions.train.pairs.images[index]]
            turned.append(np.array_equal(row, image[..., ::-1]))
            assert turned[-1] or np.array_equal(row, image)
    assert 25 < sum(turned) < 55
    assert np.array_equal(task.visual("valid"), captions.valid.pixels)


def test_processes_share_every_batch(captions):
    task = a_task(captions)
    whole, parts = task.epoch(1, 0, 1), [task.epoch(1, rank, 3) for rank in range(3)]
    for place, work in enumerate(whole):
        assert sorted(work) == sorted(np.concatenate([part[place] for part in parts]))
    assert task.batch(np.array([], np.int64)) is None


@pytest.mark.parametrize(("name", "smoothing"), [("none", 0.0), ("soft", 0.1), ("transformer", 0.1)])
def test_the_loss_is_torchs_and_the_models_penalty(captions, name, smoothing):
    task = a_task(captions, name, label_smoothing=smoothing)
    task.model.eval()
    batch = task.batch(task.epoch(0, 0, 1)[0])
    loss = task.steps()[0].loss(batch)
    reading = task.model.read(task.model.encode(task.model.features(batch.visual)), batch.target_in)
    logits = task.model.output(reading.readouts).flatten(0, 1)
    words = batch.target_out.flatten()
    expected = F.cross_entropy(logits, words, reduction="sum", label_smoothing=smoothing) + reading.penalty
    torch.testing.assert_close(loss.total, expected)
    assert loss.count == batch.target_out.numel()
    assert loss.shown["cross-entropy"] == pytest.approx(
        float(F.cross_entropy(logits, words, reduction="sum").detach()), rel=1e-5
    )
    assert (reading.penalty > 0) == (name == "soft")


def test_hard_attention_is_rewarded_for_words_better_than_the_moving_mean(captions):
    task = a_task(captions, "hard", reinforce=0.5)
    task.model.eval()  # nothing is drawn, so that the same reading can be had twice
    task.model.baseline.fill_(2.0)
    batch = task.batch(task.epoch(0, 0, 1)[0])
    loss = task.steps()[0].loss(batch)
    reading = task.model.read(task.encoded(batch.visual), batch.target_in)
    nll = F.cross_entropy(task.model.output(reading.readouts).transpose(1, 2), batch.target_out, reduction="none")
    expected = nll.sum() + reading.penalty - 0.5 * ((2.0 - nll.detach()) * reading.log_prob).sum()
    torch.testing.assert_close(loss.total, expected)
    assert float(task.model.baseline) == pytest.approx(0.9 * 2.0 + 0.1 * float(nll.detach().mean()))


def test_the_baseline_moves_only_when_attention_sampled(captions):
    task = a_task(captions, "hard")
    task.model.train()
    batch, loss = task.batch(task.epoch(0, 0, 1)[0]), task.steps()[0].loss
    torch.manual_seed(0)
    moved = []
    for _ in range(20):
        before = float(task.model.baseline)
        loss(batch)
        moved.append(float(task.model.baseline) != before)
    assert 3 < sum(moved) < 17


def test_it_learns_to_say_what_it_sees(soft):
    validation = soft.validate()
    assert validation.metrics["perplexity"] < 1.8  # which of two ways to say it is a coin's choice, once a caption
    valid = soft.captions.valid
    texts = [caption.text for caption in written(soft, pictures_of(valid)[:4], search="greedy")]
    assert [f"{name} → {text}" for name, text in zip(valid.names, texts, strict=False)][:3] == validation.samples
    scores = score_captions(texts, valid.captions[:4])
    assert validation.score == validation.metrics["bleu-4"] == pytest.approx(scores.bleu[3])
    assert scores.exact >= 75


@pytest.mark.parametrize("name", ["none", "hard", "transformer"])
def test_every_model_overfits_eight_captions(captions, name):
    task = a_task(captions, name)
    works = task.epoch(0, 0, 1)[:1]
    task.epoch = lambda number, rank, world: works
    trained(task, 400, rate=3e-3)
    task.model.eval()
    batch = task.batch(works[0])
    reading = task.model.read(task.encoded(batch.visual), batch.target_in)
    right = task.model.output(reading.readouts).argmax(-1) == batch.target_out
    assert right.float().mean() > 0.9


def test_perplexity_is_that_of_a_loop_over_captions(captions):
    task, total, words = a_task(captions, "transformer"), 0.0, 0
    task.model.eval()
    for row, own in enumerate(captions.valid.captions[:3]):
        image = task.encoded(torch.tensor(captions.valid.pixels[row : row + 1]))
        for text in own:
            ids = captions.vocabulary.encode(text)
            readouts = task.model.read(image, torch.tensor([[BOS, *ids]])).readouts
            total += float(
                F.cross_entropy(task.model.output(readouts)[0], torch.tensor([*ids, EOS]), reduction="sum").detach()
            )
            words += len(ids) + 1
    assert evaluating.perplexity(task, "valid", 3) == pytest.approx(np.exp(total / words), rel=1e-4)


def test_an_evaluation_says_where_named_objects_were_looked_for(soft):
    scores = soft.evaluate("test", CaptionOptions(search="greedy"))
    assert scores.images == 5
    assert 0 <= scores.pointing <= 100
    assert 0 < scores.mass < 100
    squares = [(round(r[3] * SIDE) - 5, round(r[4] * SIDE) - 5) for own in soft.captions.test.regions for r in own]
    touched = [sum(1 for row in range(4) for column in range(4) if _touches(row, column, *at)) for at in squares]
    assert scores.chance == pytest.approx(100 * np.mean(touched) / 16)


def _touches(row: int, column: int, top: int, left: int) -> bool:
    return 4 * row < top + 5 and 4 * row + 4 > top and 4 * column < left + 5 and 4 * column + 4 > left


def test_a_model_without_attention_points_at_nothing(captions):
    assert evaluating.pointing(a_task(captions, "none"), "test") is None


def test_files_images_and_arrays_get_the_same_caption(soft, tmp_path):
    picture = np.ascontiguousarray(soft.captions.test.pixels[0].transpose(1, 2, 0))
    Image.fromarray(picture).save(tmp_path / "photo.png")
    answers = written(soft, [tmp_path / "photo.png", Image.fromarray(picture), picture], best=2)
    assert len({each.text for each in answers}) == 1
    assert answers[0].source == str(tmp_path / "photo.png")
    assert len(answers[0].lines()) == 2
    assert answers[0].hypotheses[0].score >= answers[0].hypotheses[1].score
    assert json.loads(json.dumps(answers[0].to_dict()))["captions"][0]["text"] == answers[0].text


def test_the_batch_changes_no_caption(soft, monkeypatch):
    pictures = pictures_of(soft.captions.test)
    together = [caption.text for caption in written(soft, pictures)]
    monkeypatch.setattr(soft.recipe, "decode", soft.recipe.decode.model_copy(update={"batch_size": 2}))
    assert [caption.text for caption in written(soft, pictures)] == together


def test_a_given_caption_has_the_probability_that_torch_says(soft):
    picture = np.ascontiguousarray(soft.captions.test.pixels[0].transpose(1, 2, 0))
    given = soft.score_caption(picture, "A red, and a BLUE square!")
    ids = soft.vocabulary.encode("a red and a blue square")
    assert given.text == "a red and a blue square"
    assert given.hypotheses[0].tokens == ids
    reading = soft.model.read(soft.encoded(torch.tensor(soft.captions.test.pixels[:1])), torch.tensor([[BOS, *ids]]))
    scores = soft.model.word_logits(reading.readouts)[0].log_softmax(-1)
    expected = sum(float(scores[at, word].detach()) for at, word in enumerate([*ids, EOS]))
    assert given.hypotheses[0].log_prob == pytest.approx(expected, rel=1e-4)


def test_a_caption_begins_as_it_is_told_to(soft):
    pictures = pictures_of(soft.captions.test)[:3]
    word = soft.captions.test.captions[1][0].split()[0]
    assert all(
        caption.text.startswith(f"{word} {word}") for caption in written(soft, pictures, prefix=f"{word} {word}")
    )
    with pytest.raises(UserError, match="has the word 'giraffe', which is not in this model's vocabulary"):
        written(soft, pictures[:1], prefix="a giraffe")


def test_a_file_that_is_no_picture_is_named(soft, tmp_path):
    (tmp_path / "notes.png").write_text("no picture")
    with pytest.raises(UserError, match=r"notes\.png is not a picture"):
        written(soft, [tmp_path / "notes.png"])


def test_a_frozen_encoder_looks_once_and_its_features_are_what_the_model_gets(captions, tmp_path, monkeypatch):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path))
    learning = a_task(captions)
    learning.model.encoder.freeze()
    frozen = SimpleNamespace(**vars(learning.recipe))
    frozen.model = SimpleNamespace(encoder=SimpleNamespace(is_frozen=True))
    frozen.model_module = SimpleNamespace(build=lambda config, shapes: learning.model)
    task = CaptionTask(frozen, captions)
    work = task.epoch(0, 0, 1)[0]
    batch = task.batch(work)
    assert batch.visual.shape == (len(work), 16, 16)
    expected = learning.model.features(learning.batch(work).visual)
    torch.testing.assert_close(batch.visual.float(), expected, atol=2e-3, rtol=2e-3)
    assert len(list((tmp_path / "features").glob("*.npy"))) == 1
    loss = task.steps()[0].loss(batch)
    loss.total.backward()
    assert all(parameter.grad is None for parameter in learning.model.encoder.parameters())
    parameters = {id(each) for each in task.steps()[0].parameters}
    assert not parameters & {id(each) for each in learning.model.encoder.parameters()}
    samples = task.validate().samples
    assert samples == learning.validate().samples  # of features as of pixels


@pytest.mark.slow
def test_a_run_on_the_built_in_shapes_can_be_resumed_and_used(tmp_path):
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    run = train(tmp_path / "recipe.yaml", (), tmp_path / "run")
    train(tmp_path / "recipe.yaml", ("train.steps=60",), tmp_path / "run", resume=True)
    task = CaptionTask.reopen(configs.load(run / "config.yaml", check_files=False), run)
    load_model(task.model, run / "model.safetensors")
    assert evaluating.perplexity(task, "valid", 100) < 0.5 * len(task.vocabulary)
    (answer,) = task.answers(task.held_out("test")[:1], CaptionOptions())
    assert set(answer.text.split()) <= set(task.vocabulary.vocabulary)


def test_a_batch_in_words(captions):
    task = a_task(captions)
    work = task.epoch(0, 0, 1)[0]
    first = captions.vocabulary.decode(captions.train.pairs.tokens[work[0]])
    assert task.describe(work) == f"{len(work)} captions, the first: {first!r}"


def test_other_images_are_evaluated_by_the_captions_of_a_file(soft, tmp_path):
    (tmp_path / "photos").mkdir()
    lines = ["image,caption"]
    for number, (picture, texts) in enumerate(
        zip(pictures_of(soft.captions.test), soft.captions.test.captions, strict=True)
    ):
        Image.fromarray(picture).save(tmp_path / "photos" / f"{number}.png")
        lines += [f"{number}.png,{text}" for text in texts]
    (tmp_path / "captions.csv").write_text("\n".join(lines) + "\n")
    own = soft.evaluate("test", CaptionOptions(search="greedy"))
    options = CaptionOptions(search="greedy", data=tmp_path / "photos", reference=tmp_path / "captions.csv")
    others = soft.evaluate("test", options)
    assert (others.images, others.bleu, others.cider, others.exact) == (5, own.bleu, own.cider, own.exact)
    (tmp_path / "captions.csv").write_text("image,caption\nelsewhere.png,a dog\n")
    with pytest.raises(UserError, match=r"does not contain elsewhere\.png, which .*captions\.csv names"):
        soft.evaluate("test", options)
