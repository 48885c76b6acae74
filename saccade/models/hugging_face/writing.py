"""A causal model as a folder that transformers loads without our code: config.json, model.safetensors and the tokenizer."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from tokenizers import AddedToken
from torch import Tensor

from saccade.data.text.spelling import Spelled

_ROLES = {"pad": "pad_token", "first": "bos_token", "last": "eos_token", "unknown": "unk_token", "mask": "mask_token"}


def write_folder(
    directory: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], tokenizer: Spelled, longest: int
) -> None:
    special = tokenizer.special
    ids = {"pad_token_id": special.pad, "bos_token_id": special.first, "eos_token_id": special.last}
    _write_json(directory / "config.json", {**settings, **ids, "dtype": "float32"})
    save_file(
        {name: tensor.contiguous().clone() for name, tensor in tensors.items()},
        directory / "model.safetensors",
        {"format": "pt"},
    )
    engine = tokenizer.to_engine()
    known = {token for role, token in vars(special).items() if role in _ROLES and token is not None}
    names = {token: name for token in known if (name := engine.id_to_token(token)) is not None}
    engine.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names.values()])
    engine.encode_special_tokens = False
    engine.save(str(directory / "tokenizer.json"))
    roles = {_ROLES[role]: names[token] for role, token in vars(special).items() if role in _ROLES and token in names}
    if special.mask == special.unknown:
        roles.pop("mask_token", None)  # ours has no token of its own for it
    _write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": longest,
            "clean_up_tokenization_spaces": False,
            **roles,
        },
    )


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
