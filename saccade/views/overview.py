"""A few maps in place of many: a Transformer has an attention in every layer and many heads in each, more than a picture can show."""

from collections.abc import Sequence

import numpy as np

from saccade.views.maps import AttentionMap

MOST_PANELS = 12


def overview(maps: Sequence[AttentionMap], source: str = "") -> list[AttentionMap]:
    """The same maps if they are few; else the attention over the source: the mean of everything, then of the heads of each layer. `source`
    is the title of the side that is read, where there is one."""
    if sum(panels(attention) for attention in maps) <= MOST_PANELS:
        return list(maps)
    mean = over_the_source(maps, source)
    layers = [attention.averaged() for attention in _over(maps, source) or maps]
    return layers if mean is None else [mean, *layers]


def over_the_source(maps: Sequence[AttentionMap], source: str) -> AttentionMap | None:
    """The mean of all layers that align what is written with what is read, or of all there are; None where they cannot be added."""
    aligning = _over(maps, source)
    layers = [attention.averaged() for attention in aligning or maps]
    alike = all((attention.queries, attention.keys) == (layers[0].queries, layers[0].keys) for attention in layers)
    if not alike or len(layers) == 1:
        return None
    mean = np.mean([attention.weights for attention in layers], axis=0)
    name = f"attention over the {source}" if aligning else "attention"
    return layers[0].changed(name=f"{name}, average of {len(layers)} layers", weights=mean)


def _over(maps: Sequence[AttentionMap], source: str) -> list[AttentionMap]:
    return [attention for attention in maps if attention.key_title == source]


def panels(attention: AttentionMap) -> int:
    """Its heads, and their mean beside them."""
    return attention.heads + (attention.heads > 1)
