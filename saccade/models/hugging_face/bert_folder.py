"""Our `bert` as a folder that transformers reads without our code: BertForSequenceClassification or BertForMaskedLM by the head that
was built, with its tokenizer."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers

from saccade.data.text.spelling import SpecialTokens
from saccade.errors import UserError
from saccade.models.bert import Bert, Config
from saccade.models.hugging_face.folder import Names
from saccade.models.hugging_face.writing import write_model, write_tokenizer

_NAMES: Names = (
    (r"^embed\.words\.", "bert.embeddings.word_embeddings."),
    (r"^embed\.positions\.table$", "bert.embeddings.position_embeddings.weight"),
    (r"^embed\.segments\.", "bert.embeddings.token_type_embeddings."),
    (r"^embed\.norm\.", "bert.embeddings.LayerNorm."),
    (r"^layers\.(\d+)\.self_attention\.(query|key|value)\.", r"bert.encoder.layer.\1.attention.self.\2."),
    (r"^layers\.(\d+)\.self_attention\.output\.", r"bert.encoder.layer.\1.attention.output.dense."),
    (r"^layers\.(\d+)\.around_self_attention\.norm\.", r"bert.encoder.layer.\1.attention.output.LayerNorm."),
    (r"^layers\.(\d+)\.feed_forward\.expand\.", r"bert.encoder.layer.\1.intermediate.dense."),
    (r"^layers\.(\d+)\.feed_forward\.contract\.", r"bert.encoder.layer.\1.output.dense."),
    (r"^layers\.(\d+)\.around_feed_forward\.norm\.", r"bert.encoder.layer.\1.output.LayerNorm."),
    (r"^classes\.dense\.", "bert.pooler.dense."),
    (r"^classes\.output\.", "classifier."),
    (r"^words\.dense\.", "cls.predictions.transform.dense."),
    (r"^words\.norm\.", "cls.predictions.transform.LayerNorm."),
    (r"^words\.output\.bias$", "cls.predictions.bias"),
    (r"^words\.output\.weight$", "cls.predictions.decoder.weight"),
)


def write_bert(
    directory: Path,
    model: Bert,
    config: Config,
    engine: tokenizers.Tokenizer,
    special: SpecialTokens,
    labels: Sequence[str] = (),
) -> None:
    """Into a directory that exists. `engine` reads texts as the model was trained to, without special tokens around them."""
    _require_berts(model, config)
    head = "SequenceClassification" if model.classes else "MaskedLM"
    settings: dict[str, Any] = {
        "architectures": [f"BertFor{head}"],
        "model_type": "bert",
        "vocab_size": model.embed.words.num_embeddings,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.feed_forward,
        "max_position_embeddings": config.max_length,
        "type_vocab_size": config.segments,
        "hidden_act": "gelu",
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "layer_norm_eps": config.norm_epsilon,
        "pad_token_id": special.pad,
    }
    if labels:
        settings |= {
            "id2label": {str(number): name for number, name in enumerate(labels)},
            "label2id": {name: number for number, name in enumerate(labels)},
        }
    write_model(directory, settings, {_theirs(name): tensor for name, tensor in model.state_dict().items()})
    write_tokenizer(directory, engine, special, config.max_length)


def _require_berts(model: Bert, config: Config) -> None:
    """BERT is one of the models that ours can be."""
    wrong = [
        f"{name} {value}"
        for name, value, theirs in (
            ("norm", config.norm, "post"),
            ("activation", config.activation, "gelu"),
            *((("pooling", config.pooling, "class"), ("pooler", config.pooler, "tanh")) if model.classes else ()),
        )
        if value != theirs
    ]
    if wrong:
        raise UserError(
            f"transformers' BERT has norm post, activation gelu, pooling class and pooler tanh, and this model has {', '.join(wrong)}: "
            "train one with those, or export to onnx"
        )


def _theirs(name: str) -> str:
    for pattern, theirs in _NAMES:
        name = re.sub(pattern, theirs, name)
    return name
