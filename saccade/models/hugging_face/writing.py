"""A model of text as a folder that transformers loads without our code: config.json, model.safetensors and the tokenizer."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from safetensors.torch import save_file
from tokenizers import AddedToken, processors
from torch import Tensor

from saccade.data.text.spelling import SpecialTokens, Spelled

_CAUSAL = {"pad": "pad_token", "first": "bos_token", "last": "eos_token", "unknown": "unk_token"}
_ENCODER = {"pad": "pad_token", "first": "cls_token", "last": "sep_token", "unknown": "unk_token", "mask": "mask_token"}


def write_causal(
    directory: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], tokenizer: Spelled, longest: int
) -> None:
    special = tokenizer.special
    ids = {"pad_token_id": special.pad, "bos_token_id": special.first, "eos_token_id": special.last}
    write_model(directory, {**settings, **ids}, tensors)
    engine = tokenizer.to_engine()
    _write_tokenizer(directory, engine, longest, _add_special(engine, special, _CAUSAL), _CAUSAL)


def write_model(directory: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    _write_json(directory / "config.json", {**settings, "dtype": "float32"})
    own = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    save_file(own, directory / "model.safetensors", {"format": "pt"})


def write_tokenizer(directory: Path, engine: tokenizers.Tokenizer, special: SpecialTokens, longest: int) -> None:
    """That of an encoder: it puts special tokens around a text, or around two."""
    names = _add_special(engine, special, _ENCODER)
    first, last = names.get("first"), names.get("last")
    if first and last:
        between = " ".join([last] * special.between)
        engine.post_processor = processors.TemplateProcessing(
            single=f"{first} $A {last}",
            pair=f"{first} $A {between} $B:1 {last}:1",
            special_tokens=[(first, special.first), (last, special.last)],
        )
    _write_tokenizer(directory, engine, longest, names, _ENCODER)


def _add_special(engine: tokenizers.Tokenizer, special: SpecialTokens, roles: Mapping[str, str]) -> dict[str, str]:
    """What the token of each role is called."""
    known = {role: token for role in roles if (token := getattr(special, role)) is not None}
    names = {role: name for role, token in known.items() if (name := engine.id_to_token(token)) is not None}
    added = [AddedToken(name, special=True, normalized=False) for name in dict.fromkeys(names.values())]
    engine.add_special_tokens(added)
    return names


def _write_tokenizer(
    directory: Path, engine: tokenizers.Tokenizer, longest: int, names: Mapping[str, str], roles: Mapping[str, str]
) -> None:
    engine.encode_special_tokens = False
    engine.save(str(directory / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
    }
    _write_json(directory / "tokenizer_config.json", {**about, **{roles[role]: name for role, name in names.items()}})


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
