"""Damage is noticed: a flipped bit is refused by name, an edit is listed or refused, and what a state can repair is repaired."""

import json
import os
import random
import resource
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import saccade as library
from saccade import checksums
from saccade.errors import ConfigError, UserError
from saccade.runs.train import train
from saccade.training.trainer import other_bits
from saccade.training.weights import _checksum, read_tensors, write_tensors
from trust import runs


def flipped(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def predicted_or_told(run: Path) -> str:
    try:
        return library.load(run).predict(["1 2 3"])[0].text
    except UserError as error:
        return str(error)


def said(capsys) -> str:
    captured = capsys.readouterr()
    return " ".join((captured.out + captured.err).split())


def test_a_flipped_bit_of_any_file_is_refused_by_name_or_changes_nothing(copied, tmp_path):
    draw = random.Random(5)
    whole = predicted_or_told(copied)
    for path in runs.files(copied):
        if path.parent.name == "state" or path.name == "metrics.jsonl":
            continue  # a model that is whole needs neither
        for _ in range(3):
            content = path.read_bytes()
            flipped(path, draw.randrange(len(content)))
            told = predicted_or_told(copied)
            # Blanks fill up the header of the weights.
            assert path.name in told or path.parent.name in told or (told == whole and path.suffix == ".safetensors"), (
                path
            )
            path.write_bytes(content)


def test_every_bit_of_the_weights_and_what_is_said_of_them_has_a_checksum(tmp_path):
    path = tmp_path / "x.safetensors"
    tensors, about = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[3]])}, {"progress": {"step": 3}}
    write_tensors(path, tensors, about)
    content = path.read_bytes()
    draw = random.Random(1)
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << draw.randrange(8)]) + content[place + 1 :])
        try:
            read, said_of_them = read_tensors(path)
        except Exception:  # refused
            continue
        assert said_of_them == about
        assert read.keys() == tensors.keys()
        assert all(
            torch.equal(read[name], tensors[name]) and read[name].dtype == tensors[name].dtype for name in tensors
        )


def test_a_run_of_before_there_were_checksums_is_read(old):
    for path in (old / "model.safetensors", *(old / "state").iterdir()):
        tensors, about = read_tensors(path)
        about.get("progress", {}).pop("conditions", None)
        save_file(tensors, path, {"saccade": json.dumps({**about, "checksum": _checksum(tensors)})})
    assert library.load(old).predict(["1 2 3"])
    assert train(str(old), ["train.steps=7"], resume=True) == old


@pytest.mark.parametrize("change", [("\n  seed: 1\n", "\n  seed: 2\n"), ("hidden: 16", "hidden: 8")])
def test_a_config_that_was_edited_is_refused_with_what_was_changed(copied, change):
    config = copied / "config.yaml"
    assert change[0] in config.read_text()
    config.write_text(config.read_text().replace(*change))
    shown = change[1].split(": ")[1].strip()
    with pytest.raises(UserError, match=rf"was changed since the training wrote it \(.* → {shown}\): put it back"):
        library.load(copied)
    with pytest.raises(ConfigError, match=rf"was changed since the run began \(.* → {shown}\), and only train"):
        train(str(copied), resume=True)


def test_an_edit_that_a_training_may_take_over_is_listed_and_then_holds(copied, capsys):
    config = copied / "config.yaml"
    config.write_text(config.read_text().replace("steps: 6\n", "steps: 7  # more\n"))
    train(str(copied), resume=True)
    assert "config.yaml was changed since this run was last trained: train.steps 6 → 7" in said(capsys)
    assert library.load(copied).recipe.train.steps == 7
    train(str(copied), ["train.steps=8"], resume=True)
    assert "was changed" not in said(capsys)
    assert not checksums.edits(copied)


def test_a_comment_in_a_config_changes_nothing(copied):
    with (copied / "config.yaml").open("a") as file:
        file.write("# mine\n")
    assert library.load(copied).predict(["1 2"])


def test_a_tokenizer_that_was_edited_is_refused_by_all_commands(copied):
    path = copied / "tokenizer.json"
    text = path.read_text()
    content = json.loads(text)
    vocabulary = content["source"]["engine"]["model"]["vocab"]
    words = [word for word in vocabulary if len(word) == 1][:2]
    vocabulary[words[0]], vocabulary[words[1]] = vocabulary[words[1]], vocabulary[words[0]]
    path.write_text(json.dumps(content, ensure_ascii=False))
    for use in (lambda: library.load(copied), lambda: train(str(copied), ["train.steps=9"], resume=True)):
        with pytest.raises(UserError, match=r"tokenizer\.json is not as the training wrote it"):
            use()


@pytest.mark.parametrize("content", [b"\xff\n", b"[" * 100_000 + b"\n", b'{"step": 1e999}\n'])
def test_a_line_of_metrics_that_cannot_be_read_is_left_out(copied, content):
    metrics = copied / "metrics.jsonl"
    whole = metrics.read_bytes()
    metrics.write_bytes(content + whole)
    train(str(copied), resume=True)
    assert metrics.read_bytes() == whole


def test_metrics_that_are_no_file_are_named(copied):
    (copied / "metrics.jsonl").unlink()
    os.mkfifo(copied / "metrics.jsonl")
    with pytest.raises(UserError, match=r"metrics\.jsonl cannot be read \(it is a pipe, not a file\): delete it"):
        train(str(copied), resume=True)


@pytest.mark.parametrize("content", [b"", b"[", b'{"version": 1, "files": {}, "config": "", "digest": ""}'])
def test_checksums_that_are_damaged_are_said_to_be(copied, content):
    (copied / "checksums.json").write_bytes(content)
    with pytest.raises(UserError, match=r"checksums\.json is damaged"):
        library.load(copied)


def test_checksums_name_no_file_outside_of_the_run(copied):
    (copied / "checksums.json").unlink()
    checksums._save(copied, {"../secret": "0"}, (copied / "config.yaml").read_text())
    with pytest.raises(UserError, match="is outside of the run"):
        library.load(copied)


@pytest.mark.parametrize("damage", ["gone", "truncated", "flipped"])
def test_a_finished_run_that_lost_its_model_says_how_it_is_repaired_and_is(copied, damage, capsys):
    model = copied / "model.safetensors"
    whole = model.read_bytes()
    model.unlink() if damage == "gone" else model.write_bytes(whole[:-9]) if damage == "truncated" else flipped(
        model, -9
    )
    if damage != "gone":
        with pytest.raises(UserError, match=r"is damaged .* repair it with `saccade train .* --resume`"):
            library.load(copied)
    train(str(copied), resume=True)
    assert "was missing or damaged and is written again, with the weights of step" in said(capsys)
    assert library.load(copied).predict(["1 2"])


def test_other_conditions_than_a_run_began_with_are_said_to_change_its_bits(copied, capsys):
    train(str(copied), ["train.steps=7"], resume=True)
    assert "other conditions" not in said(capsys)
    for path in (copied / "state").iterdir():
        tensors, about = read_tensors(path)
        about["progress"]["conditions"]["threads"] = "4"
        write_tensors(path, tensors, about)
    train(str(copied), ["train.steps=8"], resume=True)
    assert "this run began under other conditions (threads 4 then and 1 now): its weights will differ" in said(capsys)


def test_each_condition_is_named():
    before = {"threads": "1", "compiled kernels": "yes", "precision": "float32"}
    (sentence,) = other_bits(before, {**before, "compiled kernels": "no", "precision": "bfloat16", "new": "x"})
    assert "(compiled kernels yes then and no now, precision float32 then and bfloat16 now)" in sentence
    assert other_bits(None, before) == other_bits(before, before) == []


def test_torchrun_may_give_the_same_command_again(tmp_path, tiny_settings, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    run = train("digits-rnn", tiny_settings, tmp_path / "run", resume=True)  # nothing to resume: begun
    assert train("digits-rnn", tiny_settings, run) == run  # something: resumed
    with pytest.raises(ConfigError, match="would change a run that has begun"):
        train("digits-rnn", [*tiny_settings, "model.hidden=8"], run)


def test_a_full_disk_is_a_sentence_wherever_it_fills(tmp_path, tiny_settings):
    """Files may grow to so many bytes and no further, which fails as a full disk does."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    told = set()
    for size in (100, 1500, 4000, 12_000, 40_000):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
            with pytest.raises(UserError, match=r"cannot be (written|created).*") as error:
                train("digits-rnn", tiny_settings, tmp_path / str(size))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        told.add(str(error.value).split(" cannot")[0].rsplit("/", 1)[-1])
        shutil.rmtree(tmp_path / str(size), ignore_errors=True)
    assert len(told) >= 2, told


@pytest.mark.parametrize("kind", ["pipe", "huge"])
def test_a_config_that_is_no_file_or_too_large_is_refused_at_once(copied, kind):
    config = copied / "config.yaml"
    config.unlink()
    if kind == "pipe":
        os.mkfifo(config)
    else:
        config.touch()
        os.truncate(config, 1 << 40)
    with pytest.raises(UserError, match=r"it is a pipe|may have at most"):
        library.load(copied)
