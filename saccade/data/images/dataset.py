"""Labelled images as training needs them: all of one size, decoded once, mapped into memory.

Images are prepared once, into the run directory:

    classes.json              the classes in order, the size of an image, mean and deviation of each channel
    images/SPLIT.npy          pixels, 8 bits each
    images/SPLIT.labels.npy   the number of each image's class
    images/SPLIT.names.json   where each image came from

so that a run can be resumed and moved without its files, and several processes read the same pixels. To predict, classes.json is enough.
Where data.valid or data.test is not set, it is cut from train: a share of every class (`held_out`), drawn by `split_seed`.

Axis legend: N images, C channels, H rows, W columns.
"""

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import AfterValidator, Field, PositiveFloat, ValidationInfo, model_validator

from saccade.config.files import nearest_file
from saccade.config.kinds import Means
from saccade.config.recipe import Config, files_may_be_missing
from saccade.data.image_shape import ImageShape, StoredShape
from saccade.data.images.cache import ImageSet, write_sets
from saccade.data.images.decoding import BadImage, from_array, is_grey, size_upright
from saccade.data.images.files import Listing, in_order, list_images
from saccade.data.images.scatter import ScatterConfig
from saccade.data.images.splits import split_listings
from saccade.data.splits import PURPOSES, SPLITS, SplitName
from saccade.errors import Say, UserError
from saccade.files import expanded, make_directory, write_text
from saccade.stored import Stored, read_json

_SMALLEST = 4  # pixels a side, of the image that gives all others their size
_SAMPLED = 64  # images whose header is read to learn whether there is colour


def _existing(path: Path, info: ValidationInfo) -> Path:
    path = expanded(path).absolute()
    if (not info.context or info.context["check_files"]) and not path.exists():
        near = nearest_file(path)
        raise ValueError(f"there is no file or folder {path}{near and f': did you mean {near}?'}")
    return path


ImagesPath = Annotated[
    Path, Field(strict=False), Means("the path of a folder, zip, CSV or idx file"), AfterValidator(_existing)
]


class _ClassesFile(Stored):
    """classes.json"""

    classes: tuple[str, ...] = Field(min_length=1, max_length=1_000_000)
    image: StoredShape
    mean: tuple[float, ...]
    deviation: tuple[PositiveFloat, ...]


class ImagesConfig(Config):
    corpus: Literal["files", "digits"] = Field("files", description="your own files, or 1,797 built-in digits of 8 × 8")
    train: ImagesPath | None = Field(
        None, description="a folder with a folder for each class, a zip of one, a CSV of path and label, or idx images"
    )
    valid: ImagesPath | None = Field(None, description="cut from train unless given")
    test: ImagesPath | None = Field(None, description="cut from train unless given")
    held_out: float = Field(
        0.1, gt=0, le=0.4, description="the share of train that is held out for each of valid and test"
    )
    split_seed: int = Field(1, ge=0, lt=2**63, description="which images are held out: independent of train.seed")
    rows: int | None = Field(None, ge=_SMALLEST, le=4096, description="of every image; those of the first unless given")
    columns: int | None = Field(None, ge=_SMALLEST, le=4096)
    max_size: int = Field(
        4096, ge=_SMALLEST, le=4096, description="most rows and columns where the first image decides"
    )
    channels: Literal[1, 3] | None = Field(None, description="1 for grey, 3 for colour; as the images are unless given")
    skip_bad: bool = Field(False, description="leave out images that cannot be decoded, and say how many")
    batch_size: int = Field(64, ge=1, description="images a batch")
    scatter: ScatterConfig = Field(ScatterConfig.model_validate({}), description="harder images made of easy ones")

    @model_validator(mode="after")
    def _files_are_named(self, info: ValidationInfo) -> "ImagesConfig":
        if not files_may_be_missing(info) and self.corpus == "files" and self.train is None:
            raise ValueError("name your images: --set data.train=FOLDER, or take data.corpus=digits")
        if self.corpus == "digits" and (self.train or self.valid or self.test):
            raise ValueError("the built-in digits take no files: leave train, valid and test out, or set corpus: files")
        paths = [path for path in (self.train, self.valid, self.test) if path is not None]
        for path, other in permutations(map(Path.resolve, paths), 2):
            if path == other:
                raise ValueError(
                    "train, valid and test must be different images: leave valid or test out to have it cut from train"
                )
            if path in other.parents and other.is_dir() and not files_may_be_missing(info):
                raise ValueError(
                    f"train, valid and test must be different images, but {other} is part of {path}: move it out"
                )
        if self.valid is not None and self.test is not None:
            self._refuse_unused("images that validation or test is cut from, and both have files", "split_seed")
        if (self.rows is None) != (self.columns is None):
            raise ValueError("give both rows and columns, or neither: then the first image decides")
        if self.rows is not None:
            self._refuse_unused("a size that the first image decides, and rows and columns are set", "max_size")
        return self


@dataclass(frozen=True)
class Images:
    directory: Path
    classes: tuple[str, ...]
    shape: ImageShape
    mean: tuple[float, ...]  # of each channel over the training images, pixels counted from 0 to 1
    deviation: tuple[float, ...]

    @cached_property
    def train(self) -> ImageSet:
        """Opened on first use: a run that only predicts does not need its images."""
        return self._open("train")

    @cached_property
    def valid(self) -> ImageSet:
        return self._open("valid")

    @cached_property
    def test(self) -> ImageSet:
        return self._open("test")

    def _open(self, split: SplitName) -> ImageSet:
        return ImageSet.open(self.directory / "images", split, self.shape, len(self.classes))

    @property
    def are_there(self) -> bool:
        """Whether the run has its images: a model may have been copied without them."""
        return (self.directory / "images" / "test.npy").exists()

    def split(self, name: SplitName) -> ImageSet:
        if not self.are_there:
            raise UserError(
                f"{self.directory} holds no {name} images, only a model: name others (evaluate --data), or copy the whole run"
            )
        images: ImageSet = getattr(self, name)
        return images


def prepare(config: ImagesConfig, directory: Path, say: Say) -> Images:
    """Lists, splits, decodes; everything is in `directory` afterwards."""
    started = time.monotonic()
    listings = _listings(config)
    classes = _classes(listings["train"])
    splits = split_listings(listings, classes, config.split_seed, config.held_out)
    shape = _shape(config, *splits["train"])
    make_directory(directory)
    counts = write_sets(directory / "images", splits, classes, shape, config.skip_bad, say)
    sets = {split: ImageSet.open(directory / "images", split, shape, len(classes)) for split in SPLITS}
    for split in SPLITS:
        if not len(sets[split]):
            raise UserError(
                f"no image is left to {PURPOSES[split]}{counts.why_none}: add images to the classes, or set data.{split}"
            )
    missing = set(range(len(classes))) - set(sets["train"].labels.tolist())
    if missing:
        raise UserError(
            f"no image of the class {classes[min(missing)]} is left to train on, after those that are held out or cannot be decoded"
            f"{counts.why_none}: add images, or remove the class"
        )
    images = Images(directory, classes, shape, *_moments(sets["train"]))
    _save(images)
    _report(images, sets, listings, say)
    if config.corpus == "files" and config.rows is None:
        say(
            f"the model is built for {shape.rows} × {shape.columns} pixels, as the images are; data.rows and data.columns set another size"
        )
    for sentence in counts.sentences(shape, time.monotonic() - started):
        say(sentence)
    return images


def reopen(directory: Path) -> Images:
    """The images that `prepare` left there."""
    path = directory / "classes.json"
    try:
        values = read_json(path, _ClassesFile)
        if len(values.mean) != values.image.channels or len(values.deviation) != values.image.channels:
            raise ValueError("its lists have different lengths")
        return Images(directory, values.classes, values.image.shape(), values.mean, values.deviation)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read ({error}): this run is incomplete; copy it again or train it again"
        ) from None


# What there is


def _listings(config: ImagesConfig) -> dict[SplitName, Listing]:
    if config.corpus == "digits":
        return {"train": _digits()}
    assert config.train is not None
    train = list_images(config.train)
    paths: dict[SplitName, Path | None] = {"valid": config.valid, "test": config.test}
    held_out = {split: list_images(path, in_order(train.labels)) for split, path in paths.items() if path is not None}
    return {"train": train, **held_out}


def _digits() -> Listing:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels = np.rint(images.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    names = [f"digit {index}" for index in range(len(pixels))]
    return Listing("digits", names, [str(label) for label in labels], lambda i: from_array(pixels[i], names[i]))


def _classes(train: Listing) -> tuple[str, ...]:
    classes = in_order(train.labels)
    if len(classes) < 2:
        empty = f", and no images in {_some(train.empty)}" if train.empty else ""
        raise UserError(f"{train.origin} has one class only ({classes[0]}){empty}: a classifier needs at least two")
    if {name.lower() for name in classes} <= {"train", "training", "valid", "val", "validation", "test", "testing"}:
        raise UserError(
            f"{train.origin} has the folders {', '.join(classes)}, which are not classes: set data.train, data.valid and data.test "
            "to one of them each"
        )
    return classes


# What an image is


def _shape(config: ImagesConfig, listing: Listing, indices: Sequence[int]) -> ImageShape:
    rows, columns, channels = config.rows, config.columns, config.channels
    if rows is None or columns is None:
        first_rows, first_columns, name = _first_size(listing, indices, config.skip_bad)
        rows, columns = min(first_rows, config.max_size), min(first_columns, config.max_size)
        if min(rows, columns) < _SMALLEST:
            raise UserError(
                f"the first image, {name}, has {rows} × {columns} pixels, too few for the size of all images: "
                "set data.rows and data.columns"
            )
    return ImageShape(channels or _channels(listing, indices), rows, columns)


def _first_size(listing: Listing, indices: Sequence[int], skip_bad: bool) -> tuple[int, int, str]:
    first_bad = ""
    for index in indices:
        try:
            return *size_upright(listing.open(index)), listing.names[index]
        except BadImage as error:
            if not skip_bad:
                raise UserError(f"{error}; --skip-bad leaves such images out") from None
            first_bad = first_bad or str(error)
    raise UserError(
        f"{listing.origin} has no image that can be read: check that its files are images; the first of {len(indices):,}: {first_bad}"
    )


def _channels(listing: Listing, indices: Sequence[int]) -> int:
    """3 if any of some images, evenly spread, has colour."""
    for place in np.linspace(0, len(indices) - 1, min(_SAMPLED, len(indices))).astype(int):
        try:
            if not is_grey(listing.open(indices[place])):
                return 3
        except BadImage:
            continue  # reported when it is decoded
    return 1


def _moments(images: ImageSet) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel, exact, from how often each of the 256 values occurs."""
    counts = np.zeros((images.pixels.shape[1], 256), np.int64)  # (C, 256)
    for start in range(0, len(images), 1024):
        part = images.pixels[start : start + 1024]
        for channel in range(len(counts)):
            counts[channel] += np.bincount(part[:, channel].ravel(), minlength=256)
    mean, deviation = [], []
    for row in counts.tolist():  # in integers of any size, so that a variance of 0 is exactly 0
        total, first, second = (sum(count * value**power for value, count in enumerate(row)) for power in range(3))
        mean.append(first / total / 255)
        variance = (total * second - first**2) / total**2
        deviation.append(math.sqrt(variance) / 255 if variance else 1.0)  # a constant channel stays as it is
    return tuple(mean), tuple(deviation)


# What is kept and what is said


def _save(images: Images) -> None:
    values = {
        "classes": images.classes,
        "image": asdict(images.shape),
        "mean": images.mean,
        "deviation": images.deviation,
    }
    write_text(images.directory / "classes.json", json.dumps(values, ensure_ascii=False, indent=1))


def _report(images: Images, sets: dict[SplitName, ImageSet], listings: dict[SplitName, Listing], say: Say) -> None:
    shape = images.shape
    parts = [f"{len(sets[split]):,} to {PURPOSES[split]}" for split in SPLITS]
    kind = "grey" if shape.channels == 1 else "colour"
    size = f"{shape.rows} × {shape.columns} pixels, {kind}"
    say(f"images of {len(images.classes):,} classes: {', '.join(parts[:2])} and {parts[2]}; {size}")
    for split in ("valid", "test"):
        present = set(sets[split].labels.tolist())
        absent = [name for number, name in enumerate(images.classes) if number not in present]
        if absent:
            why = "not in its files" if split in listings else "too few images"
            say(
                f"no images to {PURPOSES[split]} of {_some(absent)} ({why}): scores do not cover {'it' if len(absent) == 1 else 'them'}"
            )
    for listing in listings.values():
        if listing.empty:
            is_one = len(listing.empty) == 1
            say(
                f"{'Folder' if is_one else 'Folders'} {_some(listing.empty)} in {listing.origin} "
                f"{'contains no images and was' if is_one else 'contain no images and were'} ignored"
            )
        if listing.ignored:
            say(f"{listing.origin}: {listing.ignored:,} files are not images and were ignored")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
