"""A few maps in place of many: a Transformer has an attention in every layer and many heads in each, more than a picture can show."""

from collections.abc import Sequence

import numpy as np

from saccade.explain.maps import AttentionMap

MOST_PANELS = 12


def overview(maps: Sequence[AttentionMap]) -> list[AttentionMap]:
    """The same maps if they are few; else the attention over the source: the mean of everything, then of the heads of each layer."""
    if sum(panels(each) for each in maps) <= MOST_PANELS:
        return list(maps)
    crosses = [each for each in maps if each.name.endswith("cross_attention")]
    layers = [each.averaged() for each in crosses or maps]
    alike = all((each.queries, each.keys) == (layers[0].queries, layers[0].keys) for each in layers)
    if not alike or len(layers) == 1:
        return layers
    mean = np.mean([each.weights for each in layers], axis=0)
    what = "attention over the source" if crosses else "attention"
    name = f"{what}, average of {len(layers)} layers"
    return [AttentionMap(name, mean, layers[0].queries, layers[0].keys), *layers]


def panels(attention: AttentionMap) -> int:
    """Its heads, and their mean beside them."""
    return attention.heads + (attention.heads > 1)
