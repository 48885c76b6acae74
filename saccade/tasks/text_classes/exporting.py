"""A text classifier for other engines, checked before it is kept.

onnx           model.onnx: tokens (B, N), lengths (B,) → log_probabilities (B, classes); tokenizer.json beside it
huggingface    a folder that transformers loads without our code: BertForSequenceClassification and its tokenizer
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from saccade.config.recipe import Config
from saccade.data.text.existing import ExistingTokenizer
from saccade.errors import UserError
from saccade.files import new_directory
from saccade.layers.onnx_graph import OPSET, PACKAGES, TOLERANCE, check, open_graph, write_graph
from saccade.layers.operations import by_definition
from saccade.models.bert import Bert
from saccade.models.hugging_face import from_hugging_face
from saccade.models.hugging_face.bert_folder import write_bert
from saccade.models.hugging_face.writing import write_tokenizer
from saccade.packages import require
from saccade.tasks.task import Export

if TYPE_CHECKING:
    from saccade.tasks.text_classes.task import TextClassTask


def exports(task: "TextClassTask") -> Mapping[str, Export]:
    def to_onnx(directory: Path, fields: Config) -> str:
        return export_onnx(task, directory)

    def to_hugging_face(directory: Path, fields: Config) -> str:
        return export_hugging_face(task, directory)

    return {
        "onnx": Export("a graph for onnxruntime and others", Config, to_onnx),
        "huggingface": Export("a folder that transformers loads", Config, to_hugging_face),
    }


class LogProbabilities(nn.Module):
    def __init__(self, model: Bert):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens, lengths)
        return logits.log_softmax(-1)


def export_onnx(task: "TextClassTask", directory: Path) -> str:
    """Writes into a new directory; says how far log-probabilities are from torch's at most."""
    for package in PACKAGES:
        require(package)
    model = LogProbabilities(by_definition(_encoder(task))).eval()
    with new_directory(directory) as aside:
        axes = {"tokens": {0: "batch", 1: "length"}, "lengths": {0: "batch"}}
        write_graph(model, _texts(task, 3, 9), aside / "model.onnx", ["tokens", "lengths"], ["log_probabilities"], axes)
        difference = check(_difference(task, model, aside / "model.onnx"))
        write_tokenizer(aside, task.tokenizer.to_engine(), task.tokenizer.special, task.recipe.model.max_length)
        facts = {
            "format": "onnx",
            "opset": OPSET,
            "difference": difference,
            "longest": task.recipe.model.max_length,
            "classes": list(task.classes),
        }
        (aside / "saccade.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (aside / "README.txt").write_text(_README, encoding="utf-8")
    return f"{directory}: log-probabilities differ from torch's by at most {difference:.0e}"


def export_hugging_face(task: "TextClassTask", directory: Path) -> str:
    """Writes into a new directory what is read back to the same tokens and the same logits."""
    model = _encoder(task)
    with new_directory(directory) as aside:
        tokenizer = task.tokenizer
        write_bert(aside, model, task.recipe.model, tokenizer.to_engine(), tokenizer.special, task.classes)
        again, labels = from_hugging_face(aside)
        tokens, lengths = _texts(task, 4, min(12, task.recipe.model.max_length))
        with torch.no_grad():
            difference = float((again(tokens, lengths) - model.eval().cpu()(tokens, lengths)).abs().max())
        read = ExistingTokenizer.from_folder(aside)
        texts = [example.text for example in task.texts.test[:50]]
        if (
            not difference <= TOLERANCE
            or read.encode_batch(texts) != tokenizer.encode_batch(texts)
            or labels != task.classes
        ):
            raise UserError(f"what was written reads differently (logits by {difference:.1e}), so nothing was kept")
    return f"{directory}: a BertForSequenceClassification with its tokenizer; logits differ by at most {difference:.0e}"


def _encoder(task: "TextClassTask") -> Bert:
    if not isinstance(task.model, Bert):
        raise UserError(
            f"the model is {task.recipe.model_name}, whose LSTM takes its steps in a loop as long as the text, and a graph is made of "
            "a bert: use it with torch"
        )
    return task.model


@torch.no_grad()
def _difference(task: "TextClassTask", model: LogProbabilities, path: Path) -> float:
    session, apart = open_graph(path), []
    for rows, longest in ((1, 4), (5, min(20, task.recipe.model.max_length))):
        tokens, lengths = _texts(task, rows, longest)
        (theirs,) = session.run(None, {"tokens": tokens.numpy(), "lengths": lengths.numpy()})
        apart.append(float((torch.from_numpy(theirs) - model(tokens, lengths)).abs().max()))
    return max(apart)


def _texts(task: "TextClassTask", rows: int, longest: int) -> tuple[Tensor, Tensor]:
    """Tokens drawn at random, of several lengths."""
    draw = torch.Generator().manual_seed(rows)
    tokens = torch.randint(len(task.tokenizer), (rows, longest), generator=draw)
    lengths = torch.linspace(longest, 1, rows).long() if rows > 1 else torch.tensor([longest])
    return tokens, lengths


_README = """\
A classifier of texts as an ONNX graph, exported by Saccade.

    model.onnx        tokens (B, N) int64, lengths (B,) int64 -> log_probabilities (B, classes)
    tokenizer.json    from a text to tokens, with the special ones around it

This program names the class of every line that it is given. It needs the packages onnxruntime, numpy and tokenizers, and is run in this
directory. Longer texts than the model reads are cut off here.

    import json, sys
    import numpy, onnxruntime, tokenizers

    with open("saccade.json", encoding="utf-8") as file:
        facts = json.load(file)
    tokenizer = tokenizers.Tokenizer.from_file("tokenizer.json")
    tokenizer.enable_truncation(facts["longest"])
    model = onnxruntime.InferenceSession("model.onnx")
    for line in sys.stdin:
        tokens = numpy.array([tokenizer.encode(line.strip()).ids])
        lengths = numpy.array([tokens.shape[1]])
        (log_probabilities,) = model.run(None, {"tokens": tokens, "lengths": lengths})
        best = int(log_probabilities[0].argmax())
        print(facts["classes"][best], f"{numpy.exp(log_probabilities[0, best]):.4f}", sep="\\t")
"""
