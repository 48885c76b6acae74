"""A trained Transformer as ONNX graphs, for onnxruntime and everything else that reads them.

    encoder.onnx    source (B, S), lengths (B,)                        → annotations (B, S, D)
    decoder.onnx    annotations (B, S, D), lengths (B,), target (B, T) → logits (B, T, V)

A source ends with <eos> and is padded with 0; its length counts <eos>. A target begins with <bos>; row t of the logits is about the word
after target[t], for all words at once. Batch and both lengths are free.

Attention is written out by its definition (the explicit route): the other routes are chosen by length, and a graph is for all lengths.
Nothing is kept that was not checked with onnxruntime, in other batches and lengths than those it was made from.

Axis legend: B batch, S source length, T target length, D model size, V vocabulary.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from saccade.attention import padding
from saccade.data.text.tokenizer import BOS, EOS
from saccade.errors import UserError
from saccade.files import new_directory
from saccade.layers.onnx_graph import OPSET, PACKAGES, check, open_graph, write_graph
from saccade.layers.operations import by_definition
from saccade.models.transformer import Encoded, Transformer
from saccade.packages import require
from saccade.tasks.translation.export.guide import write_guide

if TYPE_CHECKING:
    from saccade.tasks.translation.task import TranslationTask


@dataclass(frozen=True)
class ExportedGraphs:
    """What was written, and how it compares with torch."""

    path: Path
    difference: float  # largest of a log-probability

    def __str__(self) -> str:
        return f"{self.path}: log-probabilities differ from torch's by at most {self.difference:.0e}"


class Encoder(nn.Module):
    """The half of the model that reads the source."""

    inputs, outputs = ("source", "lengths"), ("annotations",)

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, lengths: Tensor) -> Tensor:
        return self.model.encode(source, lengths).annotations


class Decoder(nn.Module):
    """The half of the model that writes the target, all of whose words are given."""

    inputs, outputs = ("annotations", "lengths", "target"), ("logits",)

    def __init__(self, model: Transformer):
        super().__init__()
        self.model = model

    def forward(self, annotations: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        encoded = Encoded(annotations, padding(lengths, annotations.shape[1]))
        readouts, _ = self.model.read(encoded, target)
        logits: Tensor = self.model.output(readouts)
        return logits


AXES = {
    "source": {0: "batch", 1: "source_length"},
    "lengths": {0: "batch"},
    "annotations": {0: "batch", 1: "source_length"},
    "target": {0: "batch", 1: "target_length"},
}


def export_onnx(task: "TranslationTask", directory: str | Path) -> ExportedGraphs:
    """Writes the run's model into a new directory: encoder.onnx and decoder.onnx."""
    for package in PACKAGES:
        require(package)
    model = by_definition(_exportable(task))
    with new_directory(Path(directory)) as aside:
        source, lengths, target = _example(model, rows=3, source_length=7, target_length=6)
        encoder, decoder = Encoder(model).eval(), Decoder(model).eval()
        write_graph(encoder, (source, lengths), aside / "encoder.onnx", encoder.inputs, encoder.outputs, AXES)
        example = (encoder(source, lengths), lengths, target)
        write_graph(decoder, example, aside / "decoder.onnx", decoder.inputs, decoder.outputs, AXES)
        difference = _checked_difference(model, aside, _longest(task))
        write_guide(task, aside, _README, {"format": "onnx", "opset": OPSET, "difference": difference})
    return ExportedGraphs(Path(directory), difference)


def _exportable(task: "TranslationTask") -> Transformer:
    model = task.model
    if not isinstance(model, Transformer):
        name = task.recipe.to_dict()["model"]["name"]
        raise UserError(
            f"the model is {name}, and a graph can be made of a translation Transformer (a recurrent model takes its "
            "steps in a loop as long as the target, whose length torch.export cannot leave open): use it with torch"
        )
    return model


# The check


def _longest(task: "TranslationTask") -> tuple[int, int]:
    """The most tokens that a source and a target can have here, their end or begin token included."""
    return task.recipe.data.max_length + 1, task.recipe.decode.max_length


def _checked_difference(model: Transformer, directory: Path, longest: tuple[int, int]) -> float:
    """The largest difference to torch of a log-probability, in batches and lengths of all kinds; too large a one is an error."""
    read, write = open_graph(directory / "encoder.onnx"), open_graph(directory / "decoder.onnx")
    apart = []
    for rows, source_length, target_length in ((1, 1, 1), (5, 4, 9), (2, *longest)):
        source, lengths, target = _example(model, rows, min(source_length, longest[0]), min(target_length, longest[1]))
        inputs = {"source": source.numpy(), "lengths": lengths.numpy()}
        (annotations,) = read.run(None, inputs)
        (theirs,) = write.run(None, {"annotations": annotations, "lengths": lengths.numpy(), "target": target.numpy()})
        ours = Decoder(model)(Encoder(model)(source, lengths), lengths, target)
        apart.append((torch.from_numpy(theirs).log_softmax(-1) - ours.log_softmax(-1)).abs().max())
    return check(float(torch.stack(apart).max()))


def _example(model: Transformer, rows: int, source_length: int, target_length: int) -> tuple[Tensor, Tensor, Tensor]:
    """A made-up batch: the first source is as long as it says, the others shorter and padded."""
    draw = torch.Generator().manual_seed(rows)
    lengths = 1 + torch.randint(source_length, (rows,), generator=draw)
    lengths[0] = source_length
    source = torch.randint(EOS, model.source_embedding.num_embeddings, (rows, source_length), generator=draw)
    source = source.masked_fill(torch.arange(source_length) >= lengths[:, None], 0)
    target = torch.randint(EOS, model.target_embedding.num_embeddings, (rows, target_length), generator=draw)
    target[:, 0] = BOS
    return source, lengths, target


# For those who use it

_README = """\
A translation model as ONNX graphs, exported by Saccade.

    encoder.onnx    source (B, S), lengths (B,)                        -> annotations (B, S, D)
    decoder.onnx    annotations (B, S, D), lengths (B,), target (B, T) -> logits (B, T, V)

Tokens and lengths are int64. A source ends with token {eos} and is padded with 0; its length counts that token.
A target begins with token {bos}.
A source may have {longest_source} tokens, a target {longest_target}, without these two.

This program translates lines of text, greedily. It needs the packages onnxruntime and tokenizers, and is run in this directory.

    import json, sys, unicodedata
    import numpy, onnxruntime, tokenizers

    with open("tokenizer.json", encoding="utf-8") as file:
        sides = json.load(file)
    source, target = sides["source"], sides.get("target", sides["source"])
    reader = tokenizers.Tokenizer.from_str(json.dumps(source["engine"]))
    writer = tokenizers.Tokenizer.from_str(json.dumps(target["engine"]))
    encoder, decoder = (onnxruntime.InferenceSession(name) for name in ("encoder.onnx", "decoder.onnx"))
    for line in sys.stdin:
        text = unicodedata.normalize("NFC", line).strip()
        text = text.lower() if source["lowercase"] else text
        tokens = numpy.array([reader.encode(text, add_special_tokens=False).ids + [{eos}]])
        lengths = numpy.array([tokens.shape[1]])
        (annotations,) = encoder.run(None, {{"source": tokens, "lengths": lengths}})
        words = [{bos}]
        while words[-1] != {eos} and len(words) <= {longest_target}:
            inputs = {{"annotations": annotations, "lengths": lengths, "target": numpy.array([words])}}
            (logits,) = decoder.run(None, inputs)
            words.append(int(logits[0, -1, 1:].argmax()) + 1)
        pieces = [writer.id_to_token(word) for word in words if word not in ({bos}, {eos})]
        print({joined})
"""
