"""The classification task: its loss is torch's, it learns, and a run can be used on any picture."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from sklearn import metrics
from torch import nn
from torch.nn import functional as F

import saccade
from saccade.config import recipe as configs
from saccade.data.images.augment import AugmentConfig
from saccade.data.images.dataset import ImagesConfig, prepare
from saccade.data.images.scatter import ScatterConfig
from saccade.errors import ConfigError, UserError
from saccade.metrics.classes import ClassScores
from saccade.models.glimpse import Config as GlimpseConfig
from saccade.models.glimpse import build as build_glimpses
from saccade.models.shapes import Shapes
from saccade.runs.train import train
from saccade.tasks.image_classes.options import ImageOptions
from saccade.tasks.image_classes.task import Classified, ImageClassTask, ObjectiveConfig
from saccade.training.checkpoint import load_model

RECIPE = """
task: image_classes
data: {corpus: digits, batch_size: 64}
model: {name: cnn, widths: [8, 16, 32], heads: 2, hidden: 64}
train: {threads: 1, precision: fp32, steps: 60, validate_every: 60, learning_rate: 1.0e-2, warmup_steps: 5}
"""


class Tiny(nn.Module):
    """One layer: as good a model as any for what the task does around it."""

    def __init__(self, image, classes):
        super().__init__()
        self.output = nn.Linear(image.channels * image.rows * image.columns, classes)

    def forward(self, images):
        return self.output(images.flatten(1))


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return prepare(ImagesConfig(corpus="digits"), tmp_path_factory.mktemp("digits"), lambda text: None)


def a_task(digits, model=Tiny, augment=None, scatter=None, **objective) -> ImageClassTask:
    recipe = SimpleNamespace(
        task="image_classes",
        data=ImagesConfig(corpus="digits", scatter=ScatterConfig(**(scatter or {}))),
        augment=AugmentConfig(**(augment or {})),
        objective=ObjectiveConfig(**objective),
        train=SimpleNamespace(seed=1),
        model=None,
        model_module=SimpleNamespace(build=lambda config, shapes: model(shapes.image, shapes.classes)),
    )
    return ImageClassTask(recipe, digits)


def predicted(task: ImageClassTask, images, best: int | None = None) -> list[Classified]:
    examples = [task.input.from_python(image) for image in images]
    return list(task.answers(examples, ImageOptions(best=best)))


def evaluated(task: ImageClassTask, split: str) -> ClassScores:
    return task.evaluate(split, ImageOptions())


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """Knows its digits after some seconds of training."""
    root = tmp_path_factory.mktemp("runs")
    (root / "recipe.yaml").write_text(RECIPE)
    return train(root / "recipe.yaml", (), root / "run")


@pytest.fixture(scope="module")
def trained(run) -> ImageClassTask:
    task = ImageClassTask.reopen(configs.load(run / "config.yaml", check_files=False), run)
    load_model(task.model, run / "model.safetensors")
    return task


def test_it_learns_digits_and_its_scores_are_those_of_a_plain_loop(trained):
    scores = evaluated(trained, "test")
    assert scores.accuracy > 90
    split, classes = trained.images.test, []
    with torch.no_grad():
        for pixels in split.pixels:
            image = (torch.tensor(pixels)[None] / 255 - trained.images.mean[0]) / trained.images.deviation[0]
            classes.append(int(trained.model(image).argmax()))
    assert scores.accuracy == pytest.approx(100 * metrics.accuracy_score(split.labels, classes))
    assert scores.images == len(split) == 179


def test_validation_says_what_it_saw(trained):
    validation = trained.validate()
    scores = evaluated(trained, "valid")
    assert validation.score == pytest.approx(scores.accuracy, abs=1e-6)
    assert validation.metrics["accuracy"] == scores.accuracy
    assert validation.metrics["cross-entropy"] == scores.cross_entropy
    assert len(validation.samples) == 3
    first = trained.images.valid
    assert validation.samples[0].startswith(f"{first.names[0]} → ")
    assert validation.samples[0].endswith(f", truth {first.labels[0]}")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_torchs(digits, smoothing):
    task = a_task(digits, label_smoothing=smoothing)
    work = task.epoch(0, 0, 1)[0]
    loss = task.steps()[0].loss(task.batch(work))
    images = (torch.tensor(digits.train.pixels[work]) / 255 - digits.mean[0]) / digits.deviation[0]
    labels = torch.tensor(digits.train.labels[work])
    logits = task.model(images)
    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(loss.total, expected)
    assert loss.count == len(work)
    assert loss.shown["accuracy"] == pytest.approx(100 * int((logits.argmax(1) == labels).sum()))


def test_mixed_images_are_scored_against_mixed_targets(digits):
    task = a_task(digits, augment={"mixup": 0.5}, label_smoothing=0.1)
    torch.manual_seed(4)
    batch = task.batch(task.epoch(0, 0, 1)[0])
    torch.testing.assert_close(batch.targets.sum(1), torch.ones(len(batch.targets)))
    assert (batch.targets > 0.1).sum(1).max() == 2
    expected = -(batch.targets * task.model(batch.inputs).log_softmax(1)).sum()
    torch.testing.assert_close(task.steps()[0].loss(batch).total, expected)


def test_a_model_with_terms_of_its_own_has_each_of_them_reported(digits):
    task = a_task(
        digits, lambda image, classes: build_glimpses(GlimpseConfig(patch=4, hidden=16), Shapes(image, classes))
    )
    (step,) = task.steps()
    assert len(step.shown) > 1
    loss = step.loss(task.batch(task.epoch(0, 0, 1)[0]))
    assert tuple(loss.shown) == tuple(step.shown)
    assert float(loss.total.detach()) == pytest.approx(sum(loss.shown.values()), rel=1e-5)
    loss.total.backward()
    assert all(parameter.grad is not None for parameter in step.parameters)


def test_processes_share_every_batch_and_a_process_without_a_share_has_none(digits):
    task = a_task(digits)
    whole = task.epoch(2, 0, 1)
    shares = [task.epoch(2, rank, 3) for rank in range(3)]
    for number, work in enumerate(whole):
        assert sorted(work) == sorted(index for share in shares for index in share[number])
    assert task.batch(work[:0]) is None
    assert task.describe(work) == f"{len(work)} images, the first: {digits.train.names[int(work[0])]}"
    assert task.describe(work[:0]).startswith("0 images")


def test_gradients_of_two_processes_add_up_to_those_of_one(digits):
    task = a_task(digits, label_smoothing=0.1)
    loss = task.steps()[0].loss

    def gradient(rank: int, world: int):
        task.model.zero_grad()
        loss(task.batch(task.epoch(0, rank, world)[0])).total.backward()
        return task.model.output.weight.grad.clone()

    torch.testing.assert_close(gradient(0, 2) + gradient(1, 2), gradient(0, 1), atol=1e-4, rtol=1e-4)


def test_only_training_images_are_augmented(digits):
    plain = a_task(digits)
    wild = a_task(digits, augment={"flip": 1.0, "crop": 3, "random": 3, "cutout": 4, "mixup": 1.0})
    wild.model.load_state_dict(plain.model.state_dict())
    assert wild.validate() == plain.validate()
    assert evaluated(wild, "test") == evaluated(plain, "test")
    work = plain.epoch(0, 0, 1)[0]
    assert not torch.equal(plain.batch(work).inputs, wild.batch(work).inputs)


def test_scattered_images_are_elsewhere_each_time_in_training_and_always_the_same_when_held_out(digits):
    task = a_task(digits, scatter={"kind": "translated", "rows": 20, "columns": 30})
    assert task.model.output.in_features == 20 * 30
    assert task.shape.sizes == (1, 20, 30)
    work = task.epoch(0, 0, 1)[0]
    first, second = task.batch(work).inputs, task.batch(work).inputs
    assert first.shape == (len(work), 1, 20, 30)
    assert not torch.equal(first, second)
    torch.testing.assert_close(first.sum((1, 2, 3)), second.sum((1, 2, 3)), atol=1e-3, rtol=1e-4)  # the same digits
    assert evaluated(task, "test") == evaluated(task, "test")
    held_out = list(task.held_out("test"))
    assert len({tuple(np.argwhere(example.content[..., 0])[0]) for example in held_out}) > 20
    answers = task.answers(held_out, ImageOptions())
    right = sum(answer.text == example.truth for answer, example in zip(answers, held_out, strict=True))
    assert right == round(
        evaluated(task, "test").accuracy * len(held_out) / 100
    )  # they are those that are evaluated on
    frame = np.zeros((20, 30), np.uint8)
    frame[5:13, 7:15] = digits.test.pixels[0, 0]
    np.testing.assert_array_equal(task.picture(frame)[0], frame)  # a picture to predict is a frame already
    with pytest.raises(UserError, match="do not fit into a frame of 7 × 30"):
        a_task(digits, scatter={"kind": "translated", "rows": 7, "columns": 30})


def test_augmentation_that_does_not_fit_the_images_stops_before_training(digits):
    with pytest.raises(ConfigError, match=r"augment\.crop = 8 is too large for images of 8 × 8"):
        a_task(digits, augment={"crop": 8})


def test_a_path_a_picture_and_an_array_are_predicted_alike(trained, tmp_path):
    pixels = trained.images.test.pixels[0, 0]
    Image.fromarray(pixels).save(tmp_path / "digit.png")
    inputs = [tmp_path / "digit.png", str(tmp_path / "digit.png"), Image.fromarray(pixels), pixels, pixels[:, :, None]]
    answers = predicted(trained, inputs)
    assert len({(answer.classes, answer.probabilities) for answer in answers}) == 1
    assert [answer.source for answer in answers] == [str(tmp_path / "digit.png")] * 2 + ["an image of 8 × 8"] * 3
    first = answers[0]
    assert sorted(first.classes) == sorted(trained.classes)
    assert list(first.probabilities) == sorted(first.probabilities, reverse=True)
    assert sum(first.probabilities) == pytest.approx(1, abs=1e-5)
    assert (first.text, first.probability) == (first.classes[0], first.probabilities[0])


def test_other_sizes_and_colours_are_brought_to_what_the_model_knows(trained, tmp_path):
    small, large = list(trained.images.test.pixels[:20, 0]), []
    for number, pixels in enumerate(small):
        colour = np.repeat(np.kron(pixels, np.ones((5, 5), np.uint8))[:, :, None], 3, 2)
        large.append(tmp_path / f"{number}.png")
        Image.fromarray(colour).save(large[-1])
    answers = zip(predicted(trained, small), predicted(trained, large), strict=True)
    assert sum(one.text == other.text for one, other in answers) >= 18  # scaling blurs


def test_prediction_does_not_depend_on_the_batch(trained, monkeypatch):
    arrays = list(trained.images.test.pixels[:25, 0])
    together = predicted(trained, arrays)
    monkeypatch.setattr("saccade.tasks.image_classes.task.AT_A_TIME", 4)
    apart = predicted(trained, arrays)
    for one, other in zip(together, apart, strict=True):
        assert one.classes[0] == other.classes[0]
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-5)
    assert predicted(trained, []) == []


def test_the_best_few_are_asked_for_by_number(trained):
    (answer,) = predicted(trained, [trained.images.test.pixels[0, 0]], best=3)
    assert len(answer.classes) == len(answer.probabilities) == 3
    assert answer.lines() == [
        f"{name}\t{share:.4f}" for name, share in zip(answer.classes, answer.probabilities, strict=True)
    ]
    values = json.loads(json.dumps(answer.to_dict()))
    assert values["classes"][0] == {"class": answer.text, "probability": answer.probability}


def test_no_class_at_all_is_not_an_answer(run):
    with pytest.raises(UserError, match=r"^best = 0 \(an option of predict\) must be a whole number, at least 1"):
        saccade.load(run).predict([], best=0)


def test_what_is_no_picture_is_named(trained, tmp_path):
    (tmp_path / "a.png").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"a\.png is not a picture"):
        predicted(trained, [tmp_path / "a.png"])
    with pytest.raises(UserError, match=r"b\.png cannot be opened \(No such file"):
        predicted(trained, [tmp_path / "b.png"])
    with pytest.raises(UserError, match="give 8-bit pixels"):
        predicted(trained, [np.zeros((8, 8))])


def test_a_run_without_its_images_still_predicts(run, trained, tmp_path):
    for name in ("classes.json", "config.yaml", "model.safetensors"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    task = ImageClassTask.reopen(configs.load(tmp_path / "config.yaml", check_files=False), tmp_path)
    load_model(task.model, tmp_path / "model.safetensors")
    pixels = trained.images.test.pixels[5, 0]
    assert predicted(task, [pixels])[0].classes == predicted(trained, [pixels])[0].classes
    with pytest.raises(UserError, match="holds no test images, only a model: name others"):
        evaluated(task, "test")


def test_a_run_that_goes_on_ends_with_the_same_weights(tmp_path):
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    changes = [
        "augment.flip=0.5",
        "augment.mixup=0.2",
        "augment.random=1",
        "train.validate_every=4",
        "train.log_every=2",
    ]
    changes += ["train.checkpoint_every=2", "train.schedule=constant"]
    whole = train(tmp_path / "recipe.yaml", [*changes, "train.steps=4"], tmp_path / "whole")
    parts = train(tmp_path / "recipe.yaml", [*changes, "train.steps=2"], tmp_path / "parts")
    train(tmp_path / "recipe.yaml", ["train.steps=4"], parts, resume=True)
    states = [load_file(path / "state" / "000000004.safetensors") for path in (whole, parts)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert all(line["images/s"] > 0 and 0 <= line["accuracy"] <= 100 for line in lines if "loss" in line)


def test_a_batch_of_one_that_becomes_one_cell_is_a_sentence(digits):
    task = a_task(
        digits, model=lambda image, classes: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, classes))
    )
    task.model.train()
    with pytest.raises(UserError, match=r"a batch of one image .* raise data\.batch_size"):
        task._loss(task.batch(np.array([0])))


def test_other_images_are_judged_as_held_out_ones_are(tmp_path):
    (tmp_path / "recipe.yaml").write_text(RECIPE, "utf-8")
    run = saccade.load(train(tmp_path / "recipe.yaml", ["train.steps=5"], tmp_path / "run"))
    held_out = run.task.images.test
    for number, (pixels, label) in enumerate(zip(held_out.pixels, held_out.labels, strict=True)):
        folder = tmp_path / "others" / run.task.classes[label]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[0]).save(folder / f"{number}.png")
    others, own = run.evaluate(data=tmp_path / "others"), run.evaluate()
    assert others.confusion == own.confusion
    assert own.mistakes
    surest = own.mistakes[0]
    assert held_out.labels[surest.number] == run.task.classes.index(surest.truth)
    assert surest.name == held_out.names[surest.number]
    assert others.mistakes[0].name.startswith(f"{surest.truth}/")
    (tmp_path / "others" / "3" / "torn.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"torn\.png is not a picture .*--skip-bad leaves such images out"):
        run.evaluate(data=tmp_path / "others")
    without = run.evaluate(data=tmp_path / "others", skip_bad=True)
    assert (without.confusion, without.left_out) == (run.evaluate().confusion, 1)
    assert ("left out, as they cannot be read", "1") in without.rows()
    (tmp_path / "others" / "9").rename(tmp_path / "others" / "eleven")
    with pytest.raises(UserError, match="images of the class eleven, which has no training images"):
        run.evaluate(data=tmp_path / "others")


def test_glimpses_are_judged_by_one_path_or_by_several(tmp_path):
    """The figure of several drawn paths is asked for, differs from that of one, and leaves the run as it was."""
    (tmp_path / "recipe.yaml").write_text(
        RECIPE.replace(
            "{name: cnn, widths: [8, 16, 32], heads: 2, hidden: 64}", "{name: glimpse, patch: 4, hidden: 32}"
        ),
        "utf-8",
    )
    run = saccade.load(train(tmp_path / "recipe.yaml", ["train.steps=5"], tmp_path / "run"))
    once = run.evaluate()
    several = run.evaluate(samples=5)
    assert several.cross_entropy != once.cross_entropy
    assert (once.paths, several.paths) == (1, 5)
    assert ("drawn paths an image", "5") in several.rows()
    assert run.evaluate().cross_entropy == once.cross_entropy
    with pytest.raises(UserError, match=r"^samples = 1 \(an option of evaluate\) must be a whole number, at least 2"):
        run.evaluate(samples=1)
