"""What a run directory keeps: states by the clock, files of a validation, a model that can be repaired, and a full disk."""

import pytest
import torch
from safetensors import SafetensorError
from small_tasks import Line, assert_same, killed_at, training, weights

from saccade.errors import UserError
from saccade.tasks.task import Validation
from saccade.training import loop
from saccade.training import weights as files
from saccade.training.checkpoint import RunDirectory, load_weights


def test_a_state_is_saved_by_the_clock_until_the_next_regular_one(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "_FIRST_STATE", 0.0)
    killed_at(tmp_path, Line(), 5)
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["000000001.between.safetensors"]
    again = training(tmp_path, steps=10, average=3)
    again.resume()
    assert again.progress.step == 1
    again.run()
    names = sorted(path.name for path in (tmp_path / "state").iterdir())
    assert names == ["000000007.safetensors", "000000010.safetensors"]


def test_the_first_loss_is_shown_before_the_first_report_and_not_counted_twice(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(loop, "_FIRST_REPORT", 0.0)
    run = training(tmp_path, steps=10)
    monkeypatch.setattr(run.reporter, "step", lambda step, *_: shown.append(step))
    run.run()
    assert shown == [1, 5, 10]
    plain = training(tmp_path / "plain", steps=10)
    monkeypatch.setattr(loop, "_FIRST_REPORT", 1e9)
    plain.run()
    losses = [
        [line.split('"loss"')[1].split(",")[0] for line in metrics_with_loss(path)]
        for path in (tmp_path, tmp_path / "plain")
    ]
    assert losses[0] == losses[1]


def metrics_with_loss(path):
    return [line for line in (path / "metrics.jsonl").read_text().splitlines() if '"loss"' in line]


def test_files_of_a_validation_are_written_whole(tmp_path):
    class Draws(Line):
        def validate(self):
            def draw(path):
                assert path.suffix == ".txt"
                path.write_text(f"{self.validations}")

            return Validation({}, 0.0, files={"grid.txt": draw, "raw.bin": b"\x00\x01"})

    training(tmp_path, Draws(), steps=20).run()
    names = sorted(path.name for path in (tmp_path / "samples").iterdir())
    assert names == [f"{step:09d}-{name}" for step in (10, 20) for name in ("grid.txt", "raw.bin")]
    assert (tmp_path / "samples" / "000000010-raw.bin").read_bytes() == b"\x00\x01"

    class Fails(Line):
        def validate(self):
            def draw(path):
                path.write_text("half")
                raise OSError("no space left")

            return Validation({}, 0.0, files={"grid.txt": draw})

    with pytest.raises(UserError, match=r"grid\.txt cannot be written \(no space left\)"):
        training(tmp_path / "fails", Fails()).run()
    assert not any((tmp_path / "fails" / "samples").iterdir())


def test_weights_come_from_the_newest_state_where_nothing_was_validated(tmp_path):
    run = training(tmp_path, steps=7, validate_every=500)
    for _ in range(7):
        run._update([(0, 7)])
    run._save_state()
    said: list[str] = []
    task = Line()
    load_weights(task.model, tmp_path, said.append)
    assert_same(dict(task.model.named_parameters()), weights(run))
    assert "has not been validated yet: these are the weights of step 7" in said[0]
    with pytest.raises(UserError, match=r"model\.safetensors is missing: .* resume it with `saccade train"):
        load_weights(task.model, tmp_path / "nothing", said.append)


@pytest.mark.parametrize("damage", ["gone", "truncated", "flipped"])
def test_a_model_that_is_lost_is_refused_and_repaired_from_a_state(tmp_path, damage):
    training(tmp_path).run()
    model = RunDirectory(tmp_path).model
    content = bytearray(model.read_bytes())
    whole = bytes(content)
    content[-3] ^= 1
    model.unlink() if damage == "gone" else model.write_bytes(whole[:-9] if damage == "truncated" else content)
    if damage != "gone":
        with pytest.raises(UserError, match=r"is damaged .* repair it with `saccade train"):
            load_weights(Line().model, tmp_path, print)
    again = training(tmp_path)
    assert again.resume()
    assert again.progress.finished
    assert model.read_bytes() == whole


def test_a_full_disk_is_a_sentence_and_leaves_what_was_saved(tmp_path, monkeypatch):
    def full(*_):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    run = training(tmp_path)
    run.run()
    before = RunDirectory(tmp_path).model.read_bytes()
    monkeypatch.setattr(files, "save_file", full)
    with pytest.raises(UserError, match=r"cannot be written \(.*No space left.*\): .* free some space"):
        RunDirectory(tmp_path).save_model({"x": torch.zeros(1)})
    assert RunDirectory(tmp_path).model.read_bytes() == before
