"""A run as a folder in Hugging Face's format: GPT2LMHeadModel, LlamaForCausalLM or BertForMaskedLM, with the tokenizer. It is read again
and compared before it is kept."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from saccade.config.recipe import Config
from saccade.errors import UserError
from saccade.files import new_directory
from saccade.models import hugging_face
from saccade.models.hugging_face.bert_folder import write_bert
from saccade.models.hugging_face.families import gpt2, llama
from saccade.models.hugging_face.writing import write_causal
from saccade.tasks.task import Export

if TYPE_CHECKING:
    from saccade.tasks.language_model.masked import MaskedModelTask
    from saccade.tasks.language_model.task import LanguageModelTask

_TOLERANCE = 1e-4


class HuggingFaceFields(Config):
    pass


def exports(task: "LanguageModelTask") -> Mapping[str, Export]:
    def to_hugging_face(directory: Path, fields: HuggingFaceFields) -> str:
        return export(task, directory)

    return {"huggingface": Export("a folder that transformers loads", HuggingFaceFields, to_hugging_face)}


def masked_exports(task: "MaskedModelTask") -> Mapping[str, Export]:
    def to_hugging_face(directory: Path, fields: HuggingFaceFields) -> str:
        return export_masked(task, directory)

    return {"huggingface": Export("a folder that transformers loads", HuggingFaceFields, to_hugging_face)}


@torch.no_grad()
def export_masked(task: "MaskedModelTask", directory: Path) -> str:
    """BertForMaskedLM"""
    model = task.bert.eval().cpu()
    with new_directory(directory) as aside:
        write_bert(aside, model, task.recipe.model, task.tokenizer.to_engine(), task.tokenizer.special)
        read_again, _ = hugging_face.from_hugging_face(aside)
        tokens = torch.randint(len(task.tokenizer), (2, model.max_length), generator=torch.Generator().manual_seed(1))
        lengths = torch.tensor([model.max_length, model.max_length // 2])
        difference = _require_equal(read_again(tokens, lengths), model(tokens, lengths))
    task.model.to(task.device)
    return f"{directory}: BertForMaskedLM, with its tokenizer; logits differ by {difference:.1g} when read again"


def _require_equal(again: Tensor, ours: Tensor) -> float:
    difference = float((again - ours).abs().max())
    if not difference < _TOLERANCE:
        raise UserError(f"what was written differs from the run by {difference:.2g} in its logits, so it was not kept")
    return difference


@torch.no_grad()
def export(task: "LanguageModelTask", directory: Path) -> str:
    config = task.gpt.config
    reasons = {"GPT-2": gpt2.why_not(config), "Llama": llama.why_not(config)}
    if all(reasons.values()):
        told = "; ".join(f"no {family} because {reason}" for family, reason in reasons.items())
        raise UserError(
            f"this model has no counterpart in transformers: it is {told}. Train one with model.positions=learned model.norm=layer "
            "model.activation=gelu-tanh model.query_key_norm=false, which is a GPT-2"
        )
    family = llama if reasons["GPT-2"] else gpt2
    task.model.eval()
    with new_directory(directory) as aside:
        settings, tensors = family.written(task.gpt)
        write_causal(aside, settings, tensors, task.tokenizer, config.context)
        read_again, _ = hugging_face.from_hugging_face(aside)
        words = task.gpt.embedding.num_embeddings
        tokens = torch.randint(words, (2, config.context), generator=torch.Generator().manual_seed(1))
        difference = _require_equal(read_again(tokens), task.gpt.cpu()(tokens))
        task.model.to(task.device)
    return f"{directory}: {settings['architectures'][0]}, with its tokenizer; logits differ by {difference:.1g} when read again"
