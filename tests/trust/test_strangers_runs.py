"""A run directory may be a stranger's: what it asks for is checked before anything is built, mapped or expanded."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import saccade as library
from saccade import files
from saccade.config import recipe as configs
from saccade.data.image_shape import ImageShape, StoredShape
from saccade.errors import ConfigError, UserError
from saccade.files import NotAFile, open_regular, read_bytes
from saccade.layers import sketch
from saccade.layers.sketch import check_sketch, saved_shapes
from saccade.runs.train import train
from saccade.stored import map_array, parsed, read_json
from saccade.training.weights import read_tensors, write_tensors


def setting(run: Path, before: str, now: str) -> None:
    config = run / "config.yaml"
    assert before in config.read_text()
    config.write_text(config.read_text().replace(before, now))


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("hidden", [8192, 1_000_000_000])
def test_a_model_of_another_size_is_refused_before_it_takes_memory(old, hidden, resume):
    setting(old, "hidden: 16", f"hidden: {hidden}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(
        UserError, match=r"does not fit the model of its config\.yaml|too large for any machine"
    ) as told:
        train(str(old), resume=True) if resume else library.load(old)
    assert "\n" not in str(told.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KB


def test_a_model_of_endless_layers_is_refused():
    def build():
        return nn.ModuleList(nn.LayerNorm(1) for _ in range(10**9))

    with (
        pytest.raises(UserError, match=r"here does not fit .* it has 1 tensors and the model has more"),
        saved_shapes({"a": ()}, "here"),
    ):
        check_sketch(build)


def test_a_model_without_saved_weights_is_refused_where_it_is_large(old):
    for path in (old / "model.safetensors", *(old / "state").iterdir()):
        path.unlink()
    (old / ".fitted").write_text("")
    setting(old, "hidden: 16", "hidden: 8192")
    with pytest.raises(UserError, match="it holds no weights, and the model takes"):
        library.load(old)


def test_a_new_model_must_fit_into_this_machine(monkeypatch):
    monkeypatch.setattr(sketch, "_MOST_TENSORS", 100)
    monkeypatch.setattr(sketch, "_memory", lambda: 8 * 2.0**30)
    with pytest.raises(
        UserError, match=r"this model has 10,000,000,001 parameters, which take 37 GB, and this machine has 8 GB"
    ):
        check_sketch(lambda: nn.ModuleList([nn.Linear(10_000, 1_000_000, bias=False), nn.Linear(1, 1, bias=False)]))
    with pytest.raises(UserError, match="more than 100 tensors"):
        check_sketch(lambda: nn.ModuleList(nn.LayerNorm(1) for _ in range(60)))
    with pytest.raises(UserError, match="too large for any machine"):
        check_sketch(lambda: nn.Linear(2**40, 2**40))


def test_a_model_that_cannot_be_built_without_memory_is_left_to_its_own_words():
    check_sketch(lambda: nn.Linear(int(torch.ones(1).item()), 1))
    check_sketch(lambda: torch.ones(1).numpy())  # type: ignore[arg-type, return-value]


def test_a_sketch_draws_no_random_numbers_and_fits_its_own_shapes():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with saved_shapes({"weight": (3, 2), "bias": (3,)}, "here"):
        check_sketch(lambda: nn.Linear(2, 3))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("dtype", "|O", "dtype: Input should be"),
        ("pairs", -1, "pairs: Input should be greater"),
        ("pairs", 10**30, "pairs: Input should be"),
        ("source_tokens", 10**9, "source.tokens has"),
        ("version", 2, "version: Input should be 1"),
    ],
)
def test_a_header_of_tokens_chooses_nothing(old, name, value, named):
    header = old / "tokens" / "train" / "header.json"
    header.write_text(json.dumps({**json.loads(header.read_text()), name: value}))
    with pytest.raises(UserError, match=f"is not a complete tokenised corpus .*{named}"):
        train(str(old), ["train.steps=9"], resume=True)


@pytest.mark.parametrize(
    ("file", "named"),
    [("source.tokens", "a token is not one of the"), ("source.offsets", "its sequences do not follow each other")],
)
def test_tokens_outside_of_the_vocabulary_are_never_looked_up(old, file, named):
    path = old / "tokens" / "train" / file
    content = bytearray(path.read_bytes())
    content[8:16] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(UserError, match=named):
        train(str(old), ["train.steps=9"], resume=True)


def test_changed_tokens_are_noticed_without_checksums_too(old):
    path = old / "tokens" / "train" / "target.tokens"
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match="its tokens have changed since they were written"):
        train(str(old), ["train.steps=9"], resume=True)


def test_no_variable_of_the_environment_is_read_from_a_stored_config(old, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    setting(old, "description: ", "description: ${SECRET} ")
    setting(old, "corpus: digits", "corpus: files")
    setting(old, "  source: null", "  source: ${SECRET}/x")
    setting(old, "examples: 200", "examples: 30000")
    read = configs.load(old / "config.yaml", check_files=False)
    assert "${SECRET}" in read.description
    assert read.data.source.name == "x"
    assert "hunter2" not in str(read.to_dict())


@pytest.mark.parametrize("rows", [0, -1, 10**9, 2.5, "8", True])
def test_the_size_of_an_image_is_a_size(rows):
    with pytest.raises(ValueError, match="rows: Input should be"):
        parsed(json.dumps({"channels": 3, "rows": rows, "columns": 8}), StoredShape)
    assert parsed('{"channels": 3, "rows": 8, "columns": 8}', StoredShape).shape() == ImageShape(3, 8, 8)


def test_what_is_wrong_in_a_file_is_told_without_its_content(tmp_path):
    (tmp_path / "a").write_text('{"channels": "secret", "rows": 8, "columns": 8}')
    with pytest.raises(ValueError, match="channels: Input should be 1 or 3") as told:
        read_json(tmp_path / "a", StoredShape)
    assert "secret" not in str(told.value)
    for deep in ("[" * 100_000, '{"a":' * 100_000):
        (tmp_path / "a").write_text(deep)
        with pytest.raises(ValueError, match="Invalid JSON"):
            read_json(tmp_path / "a", StoredShape)


def test_pipes_devices_and_folders_are_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, kind in ((tmp_path / "pipe", "a pipe"), (tmp_path, "a folder"), (Path("/dev/zero"), "a device")):
        with pytest.raises(NotAFile, match=f"it is {kind}"):
            open_regular(path)


def test_a_file_may_not_be_larger_than_its_reader_takes(tmp_path):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ValueError, match="it has 1,099,511,627,776 bytes and may have at most 67,108,864"):
        read_bytes(tmp_path / "huge")
    assert files.MOST_BYTES == 1 << 26


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("{'descr': '|O', 'fortran_order': False, 'shape': (2, 3), }", "2 × 3 of |O, not"),
        ("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", "not 2 × 3 of |u1"),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (-2, -3), }", "-2 × -3 of |u1"),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 99999999999999999999), }", "not 2 × 3 of |u1"),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': ((((((", "its header cannot be read"),
        ("__import__('os').abort()", "its header cannot be read"),
    ],
)
def test_a_header_of_an_array_chooses_nothing(tmp_path, header, named):
    content = header.encode().ljust(118) + b"\n"
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(content).to_bytes(2, "little") + content + bytes(6))
    with pytest.raises(ValueError) as told:  # noqa: PT011 (the sentence is compared below)
        map_array(path, "|u1", (2, 3))
    assert named in str(told.value)


def test_an_array_has_the_size_that_it_says(tmp_path):
    import numpy as np

    np.save(tmp_path / "a.npy", np.arange(6, dtype=np.uint8).reshape(2, 3))
    assert map_array(tmp_path / "a.npy", "|u1", (None, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"a\.npy has 133 bytes, not 134"):
        map_array(tmp_path / "a.npy", "|u1", (None, 3))


def test_numbers_of_a_config_are_of_a_size_that_machines_have(old):
    setting(old, "hidden: 16", f"hidden: {10**30}")
    with pytest.raises(ConfigError, match="is not a value of the type"):
        library.load(old)


def test_a_config_is_never_parsed_for_minutes(old):
    with (old / "config.yaml").open("a") as file:
        file.write("#" * 300_000)
    with pytest.raises(ConfigError, match=r"may have at most 262,144"):
        library.load(old)


def test_the_state_of_an_optimiser_has_the_shapes_of_its_parameters(old):
    path = max((old / "state").iterdir())
    tensors, about = read_tensors(path)
    name = next(name for name in tensors if name.endswith("exp_avg"))
    write_tensors(path, {**tensors, name: torch.zeros(7)}, about)
    with pytest.raises(UserError, match="of another shape or kind than its parameter"):
        train(str(old), ["train.steps=9"], resume=True)
    write_tensors(path, {other: tensor for other, tensor in tensors.items() if other != name}, about)
    with pytest.raises(UserError, match="lacks a part of what the optimiser remembers"):
        train(str(old), ["train.steps=9"], resume=True)


@pytest.mark.parametrize("values", [{"step": -1}, {"step": "x"}, {"epoch": 2**70}, {"seconds": None}])
def test_where_a_training_stands_is_a_place(old, values, capsys):
    for path in (old / "state").iterdir():
        tensors, about = read_tensors(path)
        write_tensors(path, tensors, {"progress": {**about["progress"], **values}})
    with pytest.raises(UserError, match="holds no complete state to resume from"):
        train(str(old), ["train.steps=9"], resume=True)
    assert "is damaged (" + next(iter(values)) in " ".join(capsys.readouterr().err.split())


def test_a_pipe_called_a_picture_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    os.mkfifo(tmp_path / "a.csv")
    code = (
        "import sys; from pathlib import Path\n"
        "from saccade.data.images import files, store; from saccade.data.text import lines; from saccade.errors import UserError\n"
        "for read, name in ((lambda p: store.open_file(p, 'a'), 'a.png'), (files.list_images, 'a.csv'), (store.open_store, 'a.csv'),\n"
        "                   (lambda p: list(lines.read_lines(p)), 'a.csv'), (lines.check_readable, 'a.csv')):\n"
        "    try: read(Path(sys.argv[1], name)); print('read')\n"
        "    except UserError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.count("a pipe") + done.stdout.count("neither a folder nor a zip") == 5
