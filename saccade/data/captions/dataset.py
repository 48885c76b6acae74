"""Captioned images as training needs them: all of one size, decoded once, mapped into memory, each with all its captions.

Captions are prepared once, into the run directory:

    captions.json             the size of an image
    tokenizer.json            the words, of the training captions alone
    images/SPLIT.npy          pixels, 8 bits each
    images/SPLIT.names.json   where each image came from
    captions/SPLIT.json       the captions of each image and, for the built-in shapes, the region of each noun

so that a run can be resumed and moved without its files. To predict, captions.json and tokenizer.json are enough.

Axis legend: N images, H rows, W columns, P pairs of an image and one of its captions.
"""

import json
import time
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, ValidationInfo, model_validator

from saccade import checksums
from saccade.config.recipe import Config, ExistingFile, StartConfig, files_may_be_missing
from saccade.data.builtin.shapes import SIDE, Region
from saccade.data.captions.sources import Source, files_source, shapes_source
from saccade.data.image_shape import ImageShape, StoredShape
from saccade.data.images.cache import ImageSet, write_sets
from saccade.data.images.dataset import ImagesPath
from saccade.data.splits import PURPOSES, SPLITS, SplitName
from saccade.data.text.starting import vocabularies_of
from saccade.data.text.tokenizer import Tokenizer, Vocabularies
from saccade.errors import Say, UserError
from saccade.files import make_directory, write_text
from saccade.stored import Stored, read_json

Array = np.ndarray[Any, np.dtype[Any]]

_SIDE = 224  # pixels: what encoders trained on ImageNet expect
_LARGEST_VOCABULARY = 50_000
_MOST_CAPTIONS = 1 << 28  # bytes of those of a split


class _CaptionsHeader(Stored):
    """captions.json"""

    image: StoredShape


class _CaptionsFile(Stored):
    """captions/SPLIT.json"""

    captions: list[Annotated[tuple[str, ...], Field(min_length=1)]]
    regions: list[tuple[tuple[NonNegativeInt, float, float, float, float], ...]] | None


class CaptionsConfig(Config):
    corpus: Literal["files", "shapes"] = Field("files", description="your own files, or built-in drawings of shapes")
    images: ImagesPath | None = Field(None, description="the folder or zip that the images are in")
    captions: ExistingFile | None = Field(
        None, description="Flickr8k's token file, COCO's caption JSON, or a CSV of image and caption"
    )
    train_list: ExistingFile | None = Field(
        None, description="image names, one a line; unless given, all that are in no other list"
    )
    valid_list: ExistingFile | None = Field(None, description="cut from train unless given")
    test_list: ExistingFile | None = Field(None, description="cut from train unless given")
    split_seed: int = Field(
        1,
        ge=0,
        lt=2**63,
        description="which images are held out where no lists are named: independent of train.seed",
    )
    examples: int = Field(20_000, ge=10, description="shapes: how many pictures to train on")
    rows: int | None = Field(None, ge=16, le=1024, description="of every image; 224 unless given (shapes have 64)")
    columns: int | None = Field(None, ge=16, le=1024)
    min_count: int = Field(5, ge=1, description="files: words that occur less often in training captions become <unk>")
    mirrored: bool = Field(
        False,
        description="mirror each training image with probability 1/2; for captions that never mention left or right",
    )
    batch_size: int = Field(64, ge=1, description="captions a batch")
    skip_bad: bool = Field(
        False,
        description="leave out images that cannot be decoded, and say how many; missing ones are always left out and named",
    )

    @model_validator(mode="after")
    def _files_are_named(self, info: ValidationInfo) -> "CaptionsConfig":
        files = (self.images, self.captions, self.train_list, self.valid_list, self.test_list)
        if not files_may_be_missing(info) and self.corpus == "files" and (self.images is None or self.captions is None):
            raise ValueError(
                "name your files: --set data.images=FOLDER --set data.captions=FILE, or take data.corpus=shapes"
            )
        if self.corpus == "shapes" and any(file is not None for file in files):
            raise ValueError("the built-in shapes take no files: leave them out, or set corpus: files")
        if self.corpus == "shapes":
            self._refuse_unused("your own files and data.corpus is shapes", "split_seed")
        if self.corpus == "shapes" and (self.rows, self.columns) != (None, None):
            raise ValueError(f"the built-in shapes have {SIDE} × {SIDE} pixels: leave rows and columns out")
        if self.corpus == "shapes" and self.mirrored:
            raise ValueError("the captions of the built-in shapes mention left and right: leave mirrored out")
        if self.corpus == "files":
            self._refuse_unused("the built-in shapes, and of your own files all images are used", "examples")
        if (self.rows is None) != (self.columns is None):
            raise ValueError("give both rows and columns, or neither: then they are 224")
        return self


@dataclass(frozen=True)
class CaptionPairs:
    """Every image with each of its captions: the examples of an epoch."""

    images: Array  # (P,) which image
    captions: Array  # (P,) which of its captions
    tokens: list[list[int]]  # without special tokens

    @cached_property
    def lengths(self) -> Array:
        return np.array([len(ids) for ids in self.tokens], np.int64)

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class CaptionSet:
    """The images of one split. Pixels are a view of a file: do not write to them."""

    pixels: np.ndarray[Any, np.dtype[np.uint8]]  # (N, 3, H, W)
    names: list[str]
    captions: list[tuple[str, ...]]  # lower-case words with a space between them
    regions: list[tuple[Region, ...]] | None  # shapes only: for each noun of the image's one caption
    vocabulary: Tokenizer

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def pairs(self) -> CaptionPairs:
        counts = [len(captions) for captions in self.captions]
        tokens = self.vocabulary.encode_batch([caption for captions in self.captions for caption in captions])
        numbers = [np.arange(count) for count in counts]
        return CaptionPairs(np.repeat(np.arange(len(counts)), counts), np.concatenate(numbers), tokens)


@dataclass(frozen=True)
class Captions:
    directory: Path
    shape: ImageShape
    vocabulary: Tokenizer

    @cached_property
    def train(self) -> CaptionSet:
        """Opened on first use: a run that only predicts does not need its images."""
        return self._open("train")

    @cached_property
    def valid(self) -> CaptionSet:
        return self._open("valid")

    @cached_property
    def test(self) -> CaptionSet:
        return self._open("test")

    def split(self, name: SplitName) -> CaptionSet:
        captions: CaptionSet = getattr(self, name)
        return captions

    def _open(self, split: SplitName) -> CaptionSet:
        images = ImageSet.open(self.directory / "images", split, self.shape)
        captions, regions = _load_captions(self.directory / "captions" / f"{split}.json", len(images))
        return CaptionSet(images.pixels, images.names, captions, regions, self.vocabulary)


def prepare(config: CaptionsConfig, directory: Path, say: Say, start: StartConfig | None = None) -> Captions:
    """Reads, splits, decodes or draws, learns the words (or takes those of the run to `start` from); everything is in `directory`
    afterwards."""
    started = time.monotonic()
    taken = vocabularies_of(start, "words", lowercase=True, joint=True, say=say)
    source = _source(config, say)
    side = SIDE if config.corpus == "shapes" else _SIDE
    # A caption may describe what is at the edge, so nothing is cropped.
    shape = ImageShape(3, config.rows or side, config.columns or side, stretched=True)
    make_directory(directory)
    choices = {split: (listing, range(len(listing))) for split, listing in source.listings.items()}
    counts = write_sets(directory / "images", choices, [""], shape, config.skip_bad, say)
    captions = {split: _keep(directory, split, source, shape) for split in SPLITS}
    # The shapes have few words, and all of them are needed.
    min_count = 1 if config.corpus == "shapes" else config.min_count
    texts = (text for image in captions["train"] for text in image)
    if taken is None:
        vocabulary = Tokenizer.train(texts, "words", _LARGEST_VOCABULARY, lowercase=True, min_count=min_count)
    else:
        vocabulary = taken.source
    Vocabularies(vocabulary, vocabulary).save(directory / "tokenizer.json")
    write_text(directory / "captions.json", json.dumps({"image": asdict(shape)}, indent=1))
    parts = [
        f"{len(captions[split]):,} images with {sum(map(len, captions[split])):,} captions to {PURPOSES[split]}"
        for split in SPLITS
    ]
    say(f"{', '.join(parts[:2])} and {parts[2]}; a vocabulary of {len(vocabulary):,} words")
    for sentence in counts.sentences(shape, time.monotonic() - started):
        say(sentence)
    return Captions(directory, shape, vocabulary)


def reopen(directory: Path) -> Captions:
    """The captions that `prepare` left there."""
    path = directory / "captions.json"
    try:
        shape = read_json(path, _CaptionsHeader).image.shape()
    except (OSError, ValueError) as error:
        raise _incomplete(path, error) from None
    return Captions(directory, shape, Vocabularies.load(directory / "tokenizer.json").source)


def equal_length_batches(
    lengths: Array, batch: int, seed: int, number: int, shard: tuple[int, int] = (0, 1)
) -> list[Array]:
    """The batches of an epoch as indices, the same for the same (seed, number): every caption once, and in a batch only captions of one
    length, so that nothing is padded. Each of `world` processes gets every `world`-th row of every batch."""
    rank, world = shard
    generator = np.random.default_rng([seed, number])
    batches: list[Array] = []
    for length in np.unique(lengths):
        rows = generator.permutation(np.flatnonzero(lengths == length))
        batches += np.array_split(rows, -(-len(rows) // batch))
    return [batches[index][rank::world] for index in generator.permutation(len(batches))]


# What is kept


def _source(config: CaptionsConfig, say: Say) -> Source:
    if config.corpus == "shapes":
        return shapes_source(config.examples)
    assert config.images is not None
    assert config.captions is not None
    lists = {"train": config.train_list, "valid": config.valid_list, "test": config.test_list}
    paths: dict[SplitName, Path] = {split: path for split in SPLITS if (path := lists[split]) is not None}
    return files_source(config.images, config.captions, paths, config.skip_bad, config.split_seed, say)


def _keep(directory: Path, split: SplitName, source: Source, shape: ImageShape) -> list[tuple[str, ...]]:
    """Writes and returns the captions of the images that could be decoded."""
    names = ImageSet.open(directory / "images", split, shape).names
    if not names:
        raise UserError(f"no image is left to {PURPOSES[split]}: add images, or name others in data.{split}_list")
    captions = [source.captions[name] for name in names]
    regions = None if source.regions is None else [source.regions[name] for name in names]
    _save_captions(directory / "captions" / f"{split}.json", captions, regions)
    return captions


def _save_captions(path: Path, captions: list[tuple[str, ...]], regions: list[tuple[Region, ...]] | None) -> None:
    write_text(path, json.dumps({"captions": captions, "regions": regions}, ensure_ascii=False))


def _load_captions(path: Path, count: int) -> tuple[list[tuple[str, ...]], list[tuple[Region, ...]] | None]:
    try:
        values = read_json(path, _CaptionsFile, _MOST_CAPTIONS)
        checksums.check_file(path.parent.parent, f"captions/{path.name}")
        captions = values.captions
        regions = None if values.regions is None else [tuple(map(Region._make, image)) for image in values.regions]
        if len(captions) != count or (regions is not None and len(regions) != count):
            raise ValueError(f"{len(captions):,} captioned images for {count:,}")
        for texts, image in zip(captions, regions or (), strict=False):
            if any(region.word >= len(texts[0].split()) for region in image):
                raise ValueError("a region is of a word that its caption does not have")
    except (OSError, ValueError) as error:
        raise _incomplete(path, error) from None
    return captions, regions


def _incomplete(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} cannot be read ({error}): this run is incomplete; copy it again or train it again")
