"""Which captioned images there are, and which of them are for what: from files, or from the built-in shapes.

Images, not captions, are split: what is trained on never comes again with another of its captions. Without lists, a tenth of the images
is drawn by the seed to validate, and a tenth to test.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from PIL import Image

from saccade.data.builtin.shapes import Region, Scene, draw, scenes
from saccade.data.captions.files import CaptionTable, read_captions, read_names
from saccade.data.images.files import Listing
from saccade.data.images.store import ImageStore, open_store
from saccade.data.splits import SPLITS, SplitName
from saccade.errors import Say, UserError

_HELD_OUT_SHAPES: dict[SplitName, int] = {"valid": 500, "test": 1000}


@dataclass(frozen=True)
class Source:
    listings: Mapping[SplitName, Listing]
    captions: Mapping[str, tuple[str, ...]]  # of an image, by its name in the listings
    regions: Mapping[str, tuple[Region, ...]] | None


def shapes_source(examples: int) -> Source:
    drawn = {split: scenes(split, _HELD_OUT_SHAPES.get(split, examples)) for split in SPLITS}
    named = {f"{split} shapes {number}": scene for split in SPLITS for number, scene in enumerate(drawn[split])}
    listings = {split: _drawings(split, drawn[split]) for split in SPLITS}
    captions = {name: (scene.caption,) for name, scene in named.items()}
    return Source(listings, captions, {name: scene.regions for name, scene in named.items()})


def files_source(
    images: Path, captions: Path, lists: Mapping[SplitName, Path], skip_bad: bool, seed: int, say: Say
) -> Source:
    store, table = open_store(images), read_captions(captions)
    found: dict[str, tuple[str, ...]] = {}
    missing = []
    for name, texts in table.captions.items():
        path = store.find(name)
        if path is None:
            missing.append(name)
        else:
            found[path] = found.get(path, ()) + texts
    _tell_what_is_missing(store, table, missing, len(found), say)
    given = {split: _listed(path, store, found, skip_bad, say) for split, path in lists.items()}
    splits = _split(given, sorted(found), seed)
    return Source({split: _stored(store, splits[split]) for split in SPLITS}, found, None)


def _drawings(split: SplitName, drawn: list[Scene]) -> Listing:
    names = [f"{split} shapes {number}" for number in range(len(drawn))]
    return _listing("shapes", names, lambda index: draw(drawn[index]))


def _stored(store: ImageStore, names: list[str]) -> Listing:
    return _listing(store.origin, names, lambda index: store.open(names[index]))


def _listing(origin: str, names: list[str], opened: Callable[[int], Image.Image]) -> Listing:
    return Listing(origin, names, [""] * len(names), opened)  # captions are no classes: all images are of one


def _tell_what_is_missing(store: ImageStore, table: CaptionTable, missing: list[str], found: int, say: Say) -> None:
    if not found:
        raise UserError(
            f"{store.origin} has none of the {len(missing):,} images that {table.origin} describes, the first {missing[0]}: "
            "check that both belong together"
        )
    if missing:
        say(f"{_images(len(missing))} with captions not found in {store.origin}, the first: {missing[0]}")
    if found < len(store.names):
        say(f"{_images(len(store.names) - found)} without captions left out")
    if table.empty:
        say(f"{table.empty:,} captions without a word left out")


def _images(count: int) -> str:
    return f"{count:,} image{'s' * (count != 1)}"


def _listed(path: Path, store: ImageStore, captions: Mapping[str, object], skip_bad: bool, say: Say) -> list[str]:
    names, absent = [], []
    for name in dict.fromkeys(read_names(path)):
        found = store.find(name)
        if found is not None and found in captions:
            names.append(found)
        else:
            absent.append(name)
    if absent and not (skip_bad and names):
        raise UserError(
            f"{path} names {_images(len(absent))} without a file or a caption, the first {absent[0]}: take them out of it, "
            "or leave them out with --skip-bad"
        )
    if absent:
        say(f"{_images(len(absent))} of {path.name} without a file or a caption left out, the first: {absent[0]}")
    return names


def _split(given: Mapping[SplitName, list[str]], names: list[str], seed: int) -> dict[SplitName, list[str]]:
    for first, second in combinations(given, 2):
        both = set(given[first]) & set(given[second])
        if both:
            raise UserError(
                f"data.{first}_list and data.{second}_list both name {min(both)} ({_images(len(both))} in all): take it out of one"
            )
    taken = {name for listed in given.values() for name in listed}
    rest = given.get("train") or [name for name in names if name not in taken]
    splits = dict(given)
    share = max(1, len(rest) // 10)
    for number, split in enumerate(SPLITS):
        if split not in given and split != "train":
            drawn = set(np.random.default_rng([seed, number]).permutation(len(rest))[:share].tolist())
            splits[split] = [name for index, name in enumerate(rest) if index in drawn]
            rest = [name for index, name in enumerate(rest) if index not in drawn]
    return {**splits, "train": rest}
