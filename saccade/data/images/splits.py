"""Which images are trained on and which are held out, and the order of an epoch."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from saccade.data.images.files import Listing
from saccade.data.splits import SPLITS, SplitName
from saccade.errors import UserError

Choice = tuple[Listing, list[int]]  # a listing and which of its images


def split_listings(
    listings: dict[SplitName, Listing], classes: Sequence[str], seed: int, held_out: float = 0.1
) -> dict[SplitName, Choice]:
    """Which images to train on, to validate and to test; a split without a listing is cut from train, `held_out` of every class."""
    for split in set(listings) - {"train"}:
        check_classes(listings[split], classes)
    splits: dict[SplitName, Choice] = {
        split: (listing, list(range(len(listing)))) for split, listing in listings.items()
    }
    listing, rest = splits["train"]
    left = 1.0
    for number, split in enumerate(SPLITS):
        if split not in splits:
            part, rest = cut(rest, listing.labels, held_out / left, np.random.default_rng([seed, number]))
            splits[split] = (listing, part)
            left -= held_out
    return {**splits, "train": (listing, rest)}


def check_classes(listing: Listing, classes: Sequence[str]) -> None:
    """Held-out images must be of classes that were trained on."""
    unknown = sorted(set(listing.labels) - set(classes))
    if unknown:
        raise UserError(
            f"{listing.origin} has images of the class {unknown[0]}, which has no training images: "
            f"the classes are {', '.join(classes[:20])}{', …' if len(classes) > 20 else ''}"
        )


def cut(
    indices: Sequence[int], labels: Sequence[str], share: float, generator: np.random.Generator
) -> tuple[list[int], list[int]]:
    """A share of every class (one image at least, if one remains), and the rest; both in the original order."""
    by_class: dict[str, list[int]] = {}
    for index in indices:
        by_class.setdefault(labels[index], []).append(index)
    part: set[int] = set()
    for label in sorted(by_class):
        own = by_class[label]
        count = max(round(share * len(own)), 1 if len(own) >= 2 else 0)
        part.update(own[place] for place in generator.permutation(len(own))[:count])
    return [index for index in indices if index in part], [index for index in indices if index not in part]


def batches(
    count: int, batch: int, seed: int, number: int, shard: tuple[int, int] = (0, 1)
) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """The batches of an epoch as indices, the same for the same (seed, number): every image once, in batches of nearly equal size (so that
    from 3 images a batch on, no last batch has a single one). Each of `world` processes gets every `world`-th image of every batch."""
    rank, world = shard
    order = np.random.default_rng([seed, number]).permutation(count)
    parts = np.array_split(order, math.ceil(count / batch)) if count else []
    return [part[rank::world] for part in parts]
