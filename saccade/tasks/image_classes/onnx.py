"""A trained image model as one ONNX graph: bytes in, log-probabilities of the classes out.

    model.onnx    images (B, C, H, W) uint8 → log_probabilities (B, classes)

The images are those the model was trained for: upright, of its size, channels first. The batch is free. Nothing is kept that was not
checked with onnxruntime, in other batches than the one it was made from.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from saccade.errors import UserError
from saccade.files import new_directory
from saccade.layers.onnx_graph import OPSET, PACKAGES, check, open_graph, write_graph
from saccade.layers.operations import by_definition
from saccade.packages import require

if TYPE_CHECKING:
    from saccade.tasks.image_classes.task import ImageClassTask


class FromBytes(nn.Module):
    """The model with everything between a decoded image and the probability of its classes."""

    def __init__(self, task: "ImageClassTask"):
        super().__init__()
        self.model = by_definition(task.model)
        self.standardise = task.standardise

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(self.standardise(images.float()))
        return logits.log_softmax(-1)


def export_onnx(task: "ImageClassTask", directory: Path) -> str:
    """Writes into a new directory; says how far log-probabilities are from torch's at most."""
    for package in PACKAGES:
        require(package)
    if task.glimpses is not None:
        raise UserError("the model is a glimpse network, which chooses where to look step by step: use it with torch")
    model = FromBytes(task).eval()
    with new_directory(directory) as aside:
        axes = {"images": {0: "batch"}}
        write_graph(model, (_pictures(task, 3),), aside / "model.onnx", ["images"], ["log_probabilities"], axes)
        difference = check(_difference(model, task, aside / "model.onnx"))
        shape, mode = task.shape, _MODES[task.shape.channels]
        facts = {
            "format": "onnx",
            "opset": OPSET,
            "difference": difference,
            "image": [shape.channels, shape.rows, shape.columns],
            "classes": list(task.classes),
        }
        (aside / "saccade.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        text = _README.format(
            channels=shape.channels,
            rows=shape.rows,
            columns=shape.columns,
            most=2 * max(shape.rows, shape.columns),
            fitted=(
                f'picture.convert("{mode}").resize(({shape.columns}, {shape.rows})'
                if shape.stretched
                else f'ImageOps.fit(picture.convert("{mode}"), ({shape.columns}, {shape.rows})'
            ),
            resampling=shape.resampling.upper(),
        )
        (aside / "README.txt").write_text(text, encoding="utf-8")
    return f"{directory}: log-probabilities differ from torch's by at most {difference:.0e}"


@torch.no_grad()
def _difference(model: FromBytes, task: "ImageClassTask", path: Path) -> float:
    session = open_graph(path)
    apart = []
    for count in (1, 5):
        images = _pictures(task, count)
        (theirs,) = session.run(None, {"images": images.numpy()})
        apart.append(float((torch.from_numpy(theirs) - model(images)).abs().max()))
    return max(apart)


def _pictures(task: "ImageClassTask", count: int) -> Tensor:
    draw = torch.Generator().manual_seed(count)
    return torch.randint(256, (count, *task.shape.sizes), generator=draw, dtype=torch.uint8)


_MODES = {1: "L", 3: "RGB"}
_README = """\
An image classifier as an ONNX graph, exported by Saccade.

    model.onnx    images (B, {channels}, {rows}, {columns}) uint8 -> log_probabilities (B, classes)

This program names what is in the pictures it is given. It needs the packages onnxruntime, numpy and Pillow, and is run in this directory.

    import json, sys
    import numpy, onnxruntime
    from PIL import Image, ImageOps

    with open("saccade.json", encoding="utf-8") as file:
        classes = json.load(file)["classes"]
    model = onnxruntime.InferenceSession("model.onnx")
    for path in sys.argv[1:]:
        picture = Image.open(path)
        picture.draft(None, ({most}, {most}))  # a large JPEG is decoded small
        picture = ImageOps.exif_transpose(picture)
        if picture.mode.startswith("I"):  # 16 bits to 8
            picture = Image.fromarray((numpy.asarray(picture).astype("uint32") >> 8).astype("uint8"))
        if picture.has_transparency_data:
            paper = Image.new("RGBA", picture.size, "white")
            picture = Image.alpha_composite(paper, picture.convert("RGBA"))
        picture = {fitted}, Image.Resampling.{resampling})
        images = numpy.asarray(picture).reshape(1, {rows}, {columns}, {channels}).transpose(0, 3, 1, 2)
        (log_probabilities,) = model.run(None, {{"images": images}})
        best = int(log_probabilities[0].argmax())
        print(path, classes[best], f"{{numpy.exp(log_probabilities[0, best]):.4f}}")
"""
