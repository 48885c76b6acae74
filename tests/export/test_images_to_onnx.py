"""onnxruntime names the classes of pictures as torch does, for every image model that can be a graph."""

import json
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

from saccade import load
from saccade.errors import UserError
from saccade.runs.train import train
from saccade.tasks.image_classes.onnx import export_onnx

from .readme import program_of

FEW = ["train.steps=2", "train.validate_every=2", "train.threads=1", "train.warmup_steps=0", "train.precision=fp32"]
MODELS = {
    "vit": ["model.layers=1", "model.width=16", "model.heads=2"],
    "cnn": ["model.widths=[4,4,8]", "model.hidden=8", "model.heads=2", "model.spread=true", "model.regions=2"],
    "resnet": [
        "model.blocks=1",
        "model.widths=[16,16,16]",
        "model.bottleneck=true",
        "model.heads=2",
        "model.attention=after-stem",
    ],
    "swin": ["model.width=8", "model.layers=[1,2]", "model.heads=[1,2]", "model.window=2"],
}


def trained(folder, name, settings=()):
    return load(train("digits-vit", [*FEW, f"model.name={name}", *settings], folder / name))


@pytest.mark.parametrize("name", ["vit", "cnn", *(pytest.param(n, marks=pytest.mark.slow) for n in ("resnet", "swin"))])
def test_a_graph_gives_the_probabilities_of_predict(tmp_path, name):
    run = trained(tmp_path, name, MODELS[name])
    assert "differ from torch's by at most" in export_onnx(run.task, tmp_path / "graph")
    assert json.loads((tmp_path / "graph" / "saccade.json").read_text())["difference"] < 1e-4
    pictures = np.random.default_rng(0).integers(0, 256, (4, 8, 8), dtype=np.uint8)
    session = onnxruntime.InferenceSession(tmp_path / "graph" / "model.onnx")
    (found,) = session.run(None, {"images": pictures[:, None]})
    for row, answer in zip(found, run.predict(list(pictures), best=10), strict=True):
        shares = dict(zip(answer.classes, answer.probabilities, strict=True))
        expected = [shares[name] for name in run.task.classes]
        torch.testing.assert_close(torch.tensor(np.exp(row)), torch.tensor(expected), atol=1e-5, rtol=1e-4)


def test_the_readmes_program_sees_what_predict_sees_and_needs_nothing_of_ours(tmp_path):
    run = trained(tmp_path, "vit", [*MODELS["vit"], "train.steps=30", "train.learning_rate=0.01"])
    export_onnx(run.task, tmp_path / "graph")
    numbers = np.random.default_rng(1)
    pictures = {
        "small.png": Image.fromarray(numbers.integers(0, 256, (8, 8), dtype=np.uint8)),
        "transparent.png": Image.fromarray(numbers.integers(0, 256, (40, 31, 4), dtype=np.uint8)),
        "deep.png": Image.fromarray(numbers.integers(0, 65536, (20, 20), dtype=np.uint16)),
        "turned.jpg": Image.fromarray(numbers.integers(0, 256, (90, 300, 3), dtype=np.uint8)),
    }
    exif = Image.Exif()
    exif[0x0112] = 6
    for name, picture in pictures.items():
        picture.save(tmp_path / name, exif=exif)
    program = program_of((tmp_path / "graph" / "README.txt").read_text(encoding="utf-8"))
    paths = [str(tmp_path / name) for name in pictures]
    done = subprocess.run(
        [sys.executable, "-c", program, *paths], cwd=tmp_path / "graph", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for line, path, answer in zip(done.stdout.splitlines(), paths, run.predict(paths), strict=True):
        named, best, probability = line.split()
        assert (named, best) == (path, answer.text)
        assert float(probability) == pytest.approx(answer.probability, abs=1e-4)
    assert len({answer.probability for answer in run.predict(paths)}) == len(paths)
    assert "saccade" not in program.replace("saccade.json", "")


def test_the_program_beside_a_graph_of_hugging_face_fits_pictures_as_they_do(tmp_path):
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    torch.manual_seed(0)
    model = ViTForImageClassification(ViTConfig(**sizes, image_size=16, patch_size=4, num_labels=3))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(tmp_path / "theirs")
    run = load(tmp_path / "theirs")
    export_onnx(run.task, tmp_path / "graph")
    draw = np.random.default_rng(0)
    Image.fromarray(draw.integers(0, 256, (20, 60, 3), np.uint8)).save(tmp_path / "wide.png")
    program = program_of((tmp_path / "graph" / "README.txt").read_text(encoding="utf-8"))
    command = [sys.executable, "-c", program, str(tmp_path / "wide.png")]
    done = subprocess.run(command, cwd=tmp_path / "graph", capture_output=True, text=True)
    (answer,) = run.predict([tmp_path / "wide.png"])
    assert float(done.stdout.split()[-1]) == pytest.approx(answer.probability, abs=1e-4), done.stderr


def test_a_model_of_scattered_images_takes_the_whole_frame(tmp_path):
    frame = ["data.scatter.kind=translated", "data.scatter.rows=16", "data.scatter.columns=12"]
    run = trained(tmp_path, "cnn", ["model.attention=none", "model.widths=[4,4,8]", "model.hidden=8", *frame])
    export_onnx(run.task, tmp_path / "graph")
    assert json.loads((tmp_path / "graph" / "saccade.json").read_text())["image"] == [1, 16, 12]


def test_a_glimpse_network_is_refused_in_a_sentence(tmp_path):
    run = trained(tmp_path, "glimpse", ["model.patch=4", "model.hidden=8"])
    with pytest.raises(UserError, match="glimpse network"):
        export_onnx(run.task, tmp_path / "graph")
    assert not (tmp_path / "graph").exists()
