"""A trained Transformer as a CTranslate2 model: the same numbers in an engine written for CPUs, int8 if wanted.

A source ends with <eos>, a target begins with <bos>. The model directory holds the vocabularies, the tokenizer and a README.txt with a
program that translates with nothing but the packages ctranslate2 and tokenizers.

Nothing is kept that was not checked: in single precision, log-probabilities must be torch's to 1e-4; of a quantised model the
translations are compared with torch's, and how many are the same is reported.
"""

import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch

from saccade.data.text.batching import collate
from saccade.data.text.shards import TokenPairs
from saccade.data.text.tokenizer import BOS, EOS, SPECIAL, UNK
from saccade.errors import ConfigError, UserError
from saccade.files import new_directory
from saccade.models.transformer import Transformer
from saccade.tasks.translation.export.guide import write_guide
from saccade.tasks.translation.export.search import CTranslate2Search
from saccade.tasks.translation.export.specification import specification
from saccade.tasks.translation.options import TranslationOptions

if TYPE_CHECKING:
    from saccade.tasks.translation.task import TranslationTask

Quantization = Literal[
    "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32"
]
TOLERANCE = 1e-4  # of a token's log-probability in single precision
COMPARED = 20  # held-out sentences that are translated by both


@dataclass(frozen=True)
class Exported:
    """What was written, and how it compares with torch."""

    path: Path
    quantization: str
    difference: float  # largest of a token's log-probability, in single precision
    sentences: int  # translated by both
    same: int  # translated alike

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.quantization}, {self.same} of {self.sentences} held-out sentences translated as by torch; "
            f"in single precision log-probabilities differ by at most {self.difference:.0e}"
        )


def export_ctranslate2(task: "TranslationTask", directory: str | Path, quantization: str | None = None) -> Exported:
    """Writes the run's model into a new directory; `quantization` None keeps single precision."""
    if quantization is not None and quantization not in get_args(Quantization):
        allowed = ", ".join(get_args(Quantization))
        raise ConfigError(f"there is no quantization {quantization!r}; choose one of {allowed}, or none")
    require_exportable(task)
    with new_directory(Path(directory)) as aside:
        _write_model(task, aside / "float32", None)
        difference = _checked_difference(task, aside / "float32")
        shutil.rmtree(aside / "float32")
        _write_model(task, aside, quantization)
        same, sentences = _agreement(task, aside, is_quantised(quantization))
        exported = Exported(Path(directory), quantization or "float32", difference, sentences, same)
        facts = {name: value for name, value in asdict(exported).items() if name != "path"}
        write_guide(task, aside, _README, {"format": "ctranslate2", **facts})
    return exported


def is_quantised(quantization: str | None) -> bool:
    return quantization not in (None, "float32")


def require_exportable(task: "TranslationTask") -> Transformer:
    model = task.model
    can = "CTranslate2 can run translation Transformers with scaled-dot attention"
    if not isinstance(model, Transformer):
        name = task.recipe.to_dict()["model"]["name"]
        raise UserError(f"the model is {name}, and {can}: use it with torch")
    if task.recipe.model.score != "scaled-dot":
        raise UserError(f"the attention score is {task.recipe.model.score}, and {can}: use torch, or export to ONNX")
    return model


# The model


def _write_model(task: "TranslationTask", directory: Path, quantization: str | None) -> None:
    directory.mkdir(exist_ok=True)
    spec = specification(require_exportable(task), task.recipe.model, _positions_needed(task))
    vocabularies = task.vocabularies
    spec.register_source_vocabulary(vocabularies.source.vocabulary)
    spec.register_target_vocabulary(vocabularies.target.vocabulary)
    spec.config.unk_token = SPECIAL[UNK]
    spec.config.bos_token = SPECIAL[BOS]
    spec.config.eos_token = SPECIAL[EOS]
    spec.config.decoder_start_token = SPECIAL[BOS]
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(directory))


def _positions_needed(task: "TranslationTask") -> int:
    return int(max(task.recipe.data.max_length, task.recipe.decode.max_length)) + 1  # the end or begin token


# The check


def _checked_difference(task: "TranslationTask", directory: Path) -> float:
    """The largest difference to torch of a token's log-probability in single precision; too large a one is an error."""
    pairs = _pairs(task)
    theirs = CTranslate2Search(directory, task.vocabularies, compute_type="float32").log_probs(pairs)
    ours = [_log_probs(task.model, pair) for pair in pairs]
    difference = max(float(np.abs(np.subtract(own, their)).max()) for own, their in zip(ours, theirs, strict=True))
    if not difference <= TOLERANCE:
        raise UserError(
            f"CTranslate2 does not compute what torch computes (log-probabilities differ by {difference:.1e}, allowed are "
            f"{TOLERANCE:.0e}), so nothing was written: export to ONNX, or try another version of ctranslate2"
        )
    return difference


def _pairs(task: "TranslationTask") -> list[tuple[list[int], list[int]]]:
    """A few held-out pairs, the shortest that can be, and one that is as long as the model allows."""
    vocabularies, longest = task.vocabularies, task.recipe.data.max_length
    phrases = task.corpus.valid[:8]
    pairs = [
        (vocabularies.source.encode(phrase.source), vocabularies.target.encode(phrase.target)) for phrase in phrases
    ]
    draw = np.random.default_rng(1)
    for source_length, target_length in ((1, 0), (longest, min(longest, task.recipe.decode.max_length - 1))):
        source = draw.integers(UNK, len(vocabularies.source), source_length).tolist()
        pairs.append((source, draw.integers(UNK, len(vocabularies.target), target_length).tolist()))
    return pairs


@torch.no_grad()
def _log_probs(model: Any, pair: tuple[list[int], list[int]]) -> list[float]:
    """Torch's log-probability of every target token and of eos."""
    batch = collate(TokenPairs.from_lists([pair]), [0]).to(model.output.weight.device)
    readouts, _ = model.read(model.encode(batch.source, batch.source_lengths), batch.target_in)
    log_probs = model.output(readouts).float().log_softmax(-1)  # (1, T, V)
    chosen: list[float] = log_probs.gather(-1, batch.target_out.unsqueeze(-1)).flatten().tolist()
    return chosen


def _agreement(task: "TranslationTask", directory: Path, quantised: bool) -> tuple[int, int]:
    """Of how many held-out sentences both give the same translation, with the recipe's beam."""
    config = task.recipe.decode.with_changes({"search": "beam", "best": 1, "coverage_penalty": 0.0})
    sources = [phrase.source for phrase in task.corpus.valid[:COMPARED]]
    beam = {"beam": config.beam, "length_penalty": config.length_penalty}
    ours = task.translate(sources, TranslationOptions(search="beam", coverage_penalty=0.0, **beam))
    engine = CTranslate2Search(directory, task.vocabularies, hasty=quantised)
    theirs = engine.translate(task, sources, config)
    same = sum(own.hypotheses[0].tokens == their.hypotheses[0].tokens for own, their in zip(ours, theirs, strict=True))
    return same, len(sources)


# For those who use it

_README = """\
A translation model for CTranslate2 (https://github.com/OpenNMT/CTranslate2), exported by Saccade.

This program translates lines of text with it. It needs the packages ctranslate2 and tokenizers, and is run in this directory.

    import json, sys, unicodedata
    import ctranslate2, tokenizers

    with open("tokenizer.json", encoding="utf-8") as file:
        source = json.load(file)["source"]
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(source["engine"]))
    translator = ctranslate2.Translator(".", device="cpu")
    for line in sys.stdin:
        text = unicodedata.normalize("NFC", line).strip()
        text = text.lower() if source["lowercase"] else text
        tokens = tokenizer.encode(text, add_special_tokens=False).tokens
        assert len(tokens) <= {longest_source}, "longer than the model was trained for: split the sentence"
        result = translator.translate_batch(
            [tokens], beam_size={beam}, max_input_length=0, max_decoding_length={longest_target}, suppress_sequences=[["{pad}"]]
        )
        pieces = result[0].hypotheses[0]
        print({joined})

Give max_input_length and max_decoding_length as above: CTranslate2 cuts at 1024 and 256 tokens without a word otherwise.
saccade.json says what was exported and how it compared with the model it was made from.
"""
