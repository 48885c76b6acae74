"""A few maps in place of many: a Transformer has an attention in every layer and many heads in each, more than a picture can show."""

from collections.abc import Sequence

import numpy as np

from saccade.views.maps import AttentionMap

MOST_PANELS = 12


def overview(maps: Sequence[AttentionMap]) -> list[AttentionMap]:
    """The same maps if they are few; else the attention over the source: the mean of everything, then of the heads of each layer."""
    if sum(panels(attention) for attention in maps) <= MOST_PANELS:
        return list(maps)
    mean = over_the_source(maps)
    layers = [attention.averaged() for attention in _crosses(maps) or maps]
    return layers if mean is None else [mean, *layers]


def over_the_source(maps: Sequence[AttentionMap]) -> AttentionMap | None:
    """The mean of all layers that align what is written with what is read, or of all there are; None where they cannot be added."""
    crosses = _crosses(maps)
    layers = [attention.averaged() for attention in crosses or maps]
    alike = all((attention.queries, attention.keys) == (layers[0].queries, layers[0].keys) for attention in layers)
    if not alike or len(layers) == 1:
        return None
    mean = np.mean([attention.weights for attention in layers], axis=0)
    name = "attention over the source" if crosses else "attention"
    return layers[0].changed(name=f"{name}, average of {len(layers)} layers", weights=mean)


def _crosses(maps: Sequence[AttentionMap]) -> list[AttentionMap]:
    return [attention for attention in maps if attention.name.endswith("cross_attention")]


def panels(attention: AttentionMap) -> int:
    """Its heads, and their mean beside them."""
    return attention.heads + (attention.heads > 1)
