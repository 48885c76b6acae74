"""The loop on a task small enough to know the answer: resuming, accumulating, stopping, diverging."""

import json
import os
import signal

import pytest
import torch
from small_tasks import Line, assert_same, killed_at, training, weights
from torch import nn

from saccade.attention.positions import position_table
from saccade.config import recipe as configs
from saccade.errors import Diverged, UserError
from saccade.layers.dropout import Dropout, set_share
from saccade.models.shapes import Shapes
from saccade.tasks.task import Loss, Validation
from saccade.training.checkpoint import RunDirectory
from saccade.training.interrupts import Interrupted
from saccade.training.loop import NotFinite


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_it_learns(tmp_path, optimizer):
    task = Line()
    before = task.validate().score
    training(tmp_path, task, steps=200, optimizer=optimizer).run()
    assert task.validate().score > before / 20


@pytest.mark.parametrize(("stop_at", "optimizer"), [(1, "adamw"), (9, "adamw"), (14, "muon"), (29, "adamw")])
def test_a_killed_run_ends_with_the_same_bits(tmp_path, stop_at, optimizer):
    whole = training(tmp_path / "whole", optimizer=optimizer)
    whole.run()

    killed_at(tmp_path / "broken", Line(), stop_at + 1, optimizer=optimizer)
    again = training(tmp_path / "broken", optimizer=optimizer)
    assert again.resume() == (stop_at >= 7)
    again.run()
    assert_same(weights(again), weights(whole))
    lines = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("whole", "broken")]
    steps = [[json.loads(line)["step"] for line in of_run] for of_run in lines]
    assert steps[0] == steps[1]
    assert (tmp_path / "broken" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model.safetensors"
    ).read_bytes()


class Interrupts(Line):
    """Ctrl-C is pressed in the middle of a step."""

    def __init__(self, at: int):
        super().__init__()
        self.at, self.losses = at, 0

    def loss(self, work):
        self.losses += 1
        if self.losses == self.at:
            os.kill(os.getpid(), signal.SIGINT)
        return super().loss(work)


@pytest.mark.parametrize(("step", "average"), [(12, 3), (14, 0), (29, 3)])
def test_a_stop_signal_saves_and_the_run_resumes_exactly(tmp_path, step, average):
    whole = training(tmp_path / "whole", average=average)
    whole.run()
    with pytest.raises(Interrupted):
        training(tmp_path / "stopped", Interrupts(at=step), average=average).run()
    again = training(tmp_path / "stopped", average=average)
    assert again.resume()
    assert again.progress.step == step
    again.run()
    assert_same(weights(again), weights(whole))
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "stopped")]
    assert models[0] == models[1]


def test_a_stop_is_saved_beside_states_that_cannot_be_read(tmp_path):
    training(tmp_path).run()
    for path in (tmp_path / "state").iterdir():
        path.write_bytes(b"junk")
    (tmp_path / "model.safetensors").unlink()
    again = training(tmp_path, Interrupts(at=3))
    assert not again.resume()
    with pytest.raises(Interrupted):
        again.run()
    state = RunDirectory(tmp_path).latest_state(print)
    assert state is not None
    assert state[1].step == 3


def test_a_damaged_state_is_left_out_of_the_average(tmp_path):
    training(tmp_path, steps=28, average=3).run()
    states = sorted((tmp_path / "state").iterdir())
    damaged = bytearray(states[-2].read_bytes())
    damaged[-3] ^= 1  # of a weight or its optimiser
    states[-2].write_bytes(damaged)
    said: list[str] = []
    assert len(RunDirectory(tmp_path).last_weights(3, said.append)) == 2
    assert "left out of the average" in said[0]
    longer = training(tmp_path, steps=35, average=3)
    longer.resume()
    assert longer.run().step == 35


@pytest.mark.parametrize("first", ["validate_every", "checkpoint_every"])
def test_weights_that_became_nan_are_not_saved(tmp_path, first):
    with pytest.raises(
        NotFinite, match=r"became NaN or infinite at step 1 \(0\.weight\), .* no checkpoint was saved yet"
    ):
        training(tmp_path, learning_rate=1e39, **{first: 1}).run()
    assert not (tmp_path / "model.safetensors").exists()
    assert not (tmp_path / "state").exists()


def test_a_validation_that_diverges_names_the_step_and_the_remedy(tmp_path):
    class Diverges(Line):
        def validate(self):
            raise Diverged("The model's scores are not numbers.")

    with pytest.raises(
        NotFinite,
        match=r"NaN or infinite at step 10, .* checkpoint of step 7 stays .* resume from it with a lower rate",
    ):
        training(tmp_path, Diverges()).run()
    with pytest.raises(NotFinite, match="no checkpoint was saved yet, so start again with a lower rate"):
        training(tmp_path / "early", Diverges(), checkpoint_every=10).run()
    assert not training(tmp_path / "early", learning_rate=0.01).resume()  # as it was told to


@pytest.mark.parametrize("loss", ["removed", "damaged"])
def test_a_trained_model_whose_states_are_lost_is_not_overwritten(tmp_path, loss):
    training(tmp_path).run()
    model = (tmp_path / "model.safetensors").read_bytes()
    for path in (tmp_path / "state").iterdir():
        path.unlink() if loss == "removed" else path.write_bytes(b"junk")
    with pytest.raises(UserError, match=r"no complete state to resume from, .* put the states back"):
        training(tmp_path, steps=40).resume()
    assert (tmp_path / "model.safetensors").read_bytes() == model


def test_a_run_killed_between_its_first_validation_and_its_first_checkpoint_starts_again(tmp_path):
    whole = training(tmp_path / "whole", checkpoint_every=20)
    whole.run()

    killed_at(tmp_path / "broken", Line(), 13, checkpoint_every=20)
    assert (tmp_path / "broken" / "model.safetensors").exists()
    again = training(tmp_path / "broken", checkpoint_every=20)
    assert not again.resume()
    again.run()
    assert_same(weights(again), weights(whole))


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty"])
def test_a_damaged_state_is_recognised_and_the_one_before_is_used(tmp_path, damage):
    run = training(tmp_path)
    run.run()
    newest = sorted((tmp_path / "state").glob("*"))[-1]
    content = bytearray(newest.read_bytes())
    if damage == "flip":
        content[-3] ^= 1
    newest.write_bytes(content[: len(content) // 2] if damage == "truncate" else b"" if damage == "empty" else content)
    said = []
    state = RunDirectory(tmp_path).latest_state(said.append)
    assert state is not None
    assert state[1].step == 28
    assert "damaged" in said[0]


def test_weight_decay_pulls_matrices_and_leaves_biases_and_positions_alone(tmp_path):
    task = Line()
    task.model.register_parameter("positions", position_table(torch.ones(3, 2)))
    before = {name: tensor.clone() for name, tensor in task.model.named_parameters()}
    task.loss = lambda work: Loss(0 * sum(parameter.sum() for parameter in task.model.parameters()), 1)
    training(tmp_path, task, steps=1, learning_rate=0.1, schedule="constant", weight_decay=0.5).run()
    for name, tensor in task.model.named_parameters():
        torch.testing.assert_close(tensor, before[name] * (0.95 if name.endswith("weight") else 1))


def test_accumulated_batches_equal_the_big_batch(tmp_path):
    """Four unequal batches in one update give the gradient of all 32 points at once."""
    parts, whole = Line(), Line(cut=((0, 32),))
    for task in (parts, whole):
        task.model[2].p = 0.0
    ends = []
    for name, task, accumulate in (("parts", parts, 4), ("whole", whole, 1)):
        run = training(tmp_path / name, task, steps=10, gradient_accumulation=accumulate, max_grad_norm=0.3)
        run.run()
        ends.append(weights(run))
    for name in ends[0]:
        torch.testing.assert_close(ends[0][name], ends[1][name], atol=1e-5, rtol=0)


def test_a_loss_that_is_not_finite_stops_with_the_step_and_the_batch(tmp_path):
    task = Line()
    run = training(tmp_path, task, checkpoint_every=2)

    class Poisoned(Line):
        def loss(self, work):
            self.poison = work if run.progress.step == 9 else None
            return super().loss(work)

    run = training(tmp_path, Poisoned(), checkpoint_every=2)
    with pytest.raises(NotFinite, match=r"loss became nan at step 9 .*points \d+ to \d+.*train\.learning_rate="):
        run.run()
    state = RunDirectory(tmp_path).latest_state(print)
    assert state is not None
    assert state[1].step == 8
    assert all(tensor.isfinite().all() for tensor in state[0].values())


def test_tensorboard_shows_the_numbers_of_the_metrics(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    training(tmp_path, steps=20).run()
    again = training(tmp_path, steps=30)
    again.resume()
    again.run()
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    expected = {line["step"]: line["loss"] for line in lines if "loss" in line}
    shown = {event.step: event.value for event in events.Scalars("train/loss")}
    assert shown == pytest.approx(expected)
    assert {event.step for event in events.Scalars("valid/error")} == {
        line["step"] for line in lines if "valid" in line
    }


def test_patience_stops_early(tmp_path):
    class NeverBetter(Line):
        def validate(self):
            self.validations += 1
            return Validation({}, -self.validations)

    run = training(tmp_path, NeverBetter(), steps=1000, patience=3)
    assert run.run().step == 40


def test_minutes_stop_a_run(tmp_path):
    progress = training(tmp_path, steps=10**6, minutes=0.01, validate_every=10**6, checkpoint_every=10**6).run()
    assert progress.finished
    assert 0.6 <= progress.seconds < 30


def test_the_average_of_checkpoints_is_their_mean(tmp_path):
    class JudgesLate(Line):
        def validate(self):
            self.validations += 1
            return Validation({}, float(self.validations))  # whatever comes later is better, the average last

    run = training(tmp_path, JudgesLate(), average=3)
    run.run()
    saved = RunDirectory(tmp_path).last_weights(3, print)
    assert len(saved) == 3
    from safetensors.torch import load_file

    model = load_file(tmp_path / "model.safetensors")
    for name, tensor in model.items():
        torch.testing.assert_close(tensor, torch.stack([state[name] for state in saved]).mean(0), atol=1e-6, rtol=0)


def test_a_finished_run_trains_further_when_asked(tmp_path):
    training(tmp_path).run()
    again = training(tmp_path)
    again.resume()
    assert again.progress.finished
    longer = training(tmp_path, steps=40)
    longer.resume()
    assert longer.run().step == 40


class NotesDropout(Line):
    """Writes down at which rate each batch of which epoch is dropped."""

    def __init__(self):
        super().__init__()
        self.dropout = Dropout(0.4)
        self.model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), self.dropout, nn.Linear(8, 1))
        self.rates = []

    def loss(self, work):
        self.rates.append(round(self.dropout.rate, 6))
        return super().loss(work)


def test_dropout_rises_over_the_first_epochs_also_of_a_resumed_run(tmp_path):
    task = NotesDropout()
    training(tmp_path, task, steps=16, dropout_epochs=2).run()
    assert task.rates == [0.0] * 4 + [0.2] * 4 + [0.4] * 8
    task = NotesDropout()
    training(tmp_path / "again", task, steps=7, dropout_epochs=2).run()
    again = NotesDropout()
    longer = training(tmp_path / "again", again, steps=16, dropout_epochs=2)
    longer.resume()
    longer.run()
    assert task.rates + again.rates == [0.0] * 4 + [0.2] * 4 + [0.4] * 8
    task = NotesDropout()
    training(tmp_path / "plain", task, steps=4).run()
    assert task.rates == [0.4] * 4


def test_every_dropout_of_a_model_rises():
    recurrent = configs.load("digits-rnn", ["model.layers=2", "model.dropout=0.5"])
    transformer = configs.load("phrasebook-transformer", ["model.dropout=0.5", "model.attention_dropout=0.5"])
    for recipe in (recurrent, transformer):
        model = recipe.model_module.build(recipe.model, Shapes(source_words=9, target_words=9)).train()
        source, lengths = torch.ones(2, 5, dtype=torch.long), torch.tensor([5, 4])

        def read(model=model, source=source, lengths=lengths):
            return model.read(model.encode(source, lengths), source)[0]

        assert not torch.equal(read(), read())
        set_share(model, 0.0)
        assert torch.equal(read(), read())


def test_the_state_of_another_optimiser_is_refused(tmp_path):
    training(tmp_path, optimizer="muon").run()
    with pytest.raises(UserError, match=r"trained with train\.optimizer muon .* says adamw now: put muon back"):
        training(tmp_path, steps=40, optimizer="adamw").resume()


def test_no_data_is_an_error(tmp_path):
    with pytest.raises(UserError, match="nothing to train on"):
        training(tmp_path, Line(cut=())).run()
