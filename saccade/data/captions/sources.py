"""Captioned images and their splits, from files or from the built-in shapes.

Images, not captions, are split: an image that is trained on is never held out with another of its captions. Without lists, a tenth of the
images is drawn by the seed to validate, and a tenth to test.
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
    texts_of: dict[str, tuple[str, ...]] = {}
    missing = []
    for name, texts in table.captions.items():
        path = store.find(name)
        if path is None:
            missing.append(name)
        else:
            texts_of[path] = texts_of.get(path, ()) + texts
    _report_missing(store, table, missing, len(texts_of), say)
    listed = {split: _listed(path, store, texts_of, skip_bad, say) for split, path in lists.items()}
    splits = _split(listed, sorted(texts_of), seed)
    return Source({split: _stored(store, splits[split]) for split in SPLITS}, texts_of, None)


def _drawings(split: SplitName, drawn: list[Scene]) -> Listing:
    names = [f"{split} shapes {number}" for number in range(len(drawn))]
    return _listing("shapes", names, lambda index: draw(drawn[index]))


def _stored(store: ImageStore, names: list[str]) -> Listing:
    return _listing(store.origin, names, lambda index: store.open(names[index]))


def _listing(origin: str, names: list[str], opened: Callable[[int], Image.Image]) -> Listing:
    return Listing(origin, names, [""] * len(names), opened)  # captions are not classes: all images have the same label


def _report_missing(store: ImageStore, table: CaptionTable, missing: list[str], described: int, say: Say) -> None:
    if not described:
        raise UserError(
            f"{store.origin} has none of the {len(missing):,} images that {table.origin} describes, the first {missing[0]}: "
            "check that they belong together"
        )
    if missing:
        say(f"{_images(len(missing))} with captions are missing in {store.origin}, the first: {missing[0]}")
    if described < len(store.names):
        say(f"{_images(len(store.names) - described)} without captions were left out")
    if table.empty:
        say(f"{table.empty:,} captions without a word were left out")


def _images(count: int) -> str:
    return f"{count:,} image{'s' * (count != 1)}"


def _listed(path: Path, store: ImageStore, captions: Mapping[str, object], skip_bad: bool, say: Say) -> list[str]:
    names, absent = [], []
    for name in dict.fromkeys(read_names(path)):
        image = store.find(name)
        if image is not None and image in captions:
            names.append(image)
        else:
            absent.append(name)
    if absent and not (skip_bad and names):
        raise UserError(
            f"{path} names {_images(len(absent))} without a file or a caption, the first {absent[0]}: remove them from the list, "
            "or leave them out with --skip-bad"
        )
    if absent:
        say(f"{_images(len(absent))} of {path.name} without a file or a caption were left out, the first: {absent[0]}")
    return names


def _split(listed: Mapping[SplitName, list[str]], names: list[str], seed: int) -> dict[SplitName, list[str]]:
    for first, second in combinations(listed, 2):
        both = set(listed[first]) & set(listed[second])
        if both:
            raise UserError(
                f"data.{first}_list and data.{second}_list both name {min(both)} ({_images(len(both))} in all): remove it from one"
            )
    taken = {name for names_of_split in listed.values() for name in names_of_split}
    rest = listed.get("train") or [name for name in names if name not in taken]
    splits = dict(listed)
    share = max(1, len(rest) // 10)
    for number, split in enumerate(SPLITS):
        if split not in listed and split != "train":
            drawn = set(np.random.default_rng([seed, number]).permutation(len(rest))[:share].tolist())
            splits[split] = [name for index, name in enumerate(rest) if index in drawn]
            rest = [name for index, name in enumerate(rest) if index not in drawn]
    return {**splits, "train": rest}
