"""What the families of text encoders share: from their tensors to our `bert`, with whichever head there is."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from saccade.models import bert
from saccade.models.hugging_face.folder import Names, Pretrained, class_names, renamed
from saccade.models.shapes import Shapes

_OLD_NAMES: Names = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))
_EMBEDDING: Names = (
    (r"^embeddings\.word_embeddings\.", "embed.words."),
    (r"^embeddings\.position_embeddings\.weight$", "embed.positions.table"),
    (r"^embeddings\.token_type_embeddings\.", "embed.segments."),
    (r"^embeddings\.LayerNorm\.", "embed.norm."),
    (r"^qa_outputs\.", "spans.output."),
)
LAYERS: Names = (
    (r"^encoder\.layer\.", "layers."),
    (r"\.attention\.self\.(query|key|value)\.", r".self_attention.\1."),
    (r"\.attention\.output\.dense\.", ".self_attention.output."),
    (r"\.attention\.output\.LayerNorm\.", ".around_self_attention.norm."),
    (r"\.intermediate\.dense\.", ".feed_forward.expand."),
    (r"^(layers\.\d+)\.output\.dense\.", r"\1.feed_forward.contract."),
    (r"^(layers\.\d+)\.output\.LayerNorm\.", r"\1.around_feed_forward.norm."),
)


def in_our_names(tensors: Mapping[str, Tensor], prefix: str, names: Names, unused: str) -> dict[str, Tensor]:
    """`prefix` stands before the encoder where a head does too; `unused` is a pattern of what ours has not."""
    ours = renamed(tensors, (*_OLD_NAMES, (rf"^{prefix}\.", ""), *_EMBEDDING, *names))
    return {name: tensor for name, tensor in ours.items() if not re.search(unused, name)}


def pretrained(
    directory: Path, settings: Mapping[str, Any], config: Mapping[str, Any], ours: dict[str, Tensor]
) -> Pretrained:
    """`config` holds the values of ours. Classes are taken where they are of whole texts, one of several."""
    architectures = settings.get("architectures") or [""]
    of_texts = str(architectures[0]).endswith("ForSequenceClassification")
    one_of_several = settings.get("problem_type") in (None, "single_label_classification")
    if not (of_texts and one_of_several):
        ours = {name: tensor for name, tensor in ours.items() if not name.startswith("classes.output.")}
    output = ours.get("classes.output.weight")
    classes = 0 if output is None or len(output) < 2 else len(output)
    words = len(ours["embed.words.weight"])
    shapes = Shapes(
        source_words=words,
        classes=classes,
        target_words=words if "words.dense.weight" in ours else 0,
        spans="spans.output.weight" in ours,
    )
    if not classes and output is not None:
        ours = {name: tensor for name, tensor in ours.items() if not name.startswith("classes.")}
    labels = class_names(settings, classes)
    return Pretrained(directory, "bert", bert.Config.model_validate(config), shapes, ours, labels)
