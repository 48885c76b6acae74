"""The parts of a dataset: what is trained on, and what is held out to validate and to test."""

from typing import Literal

SplitName = Literal["train", "valid", "test"]

SPLITS: tuple[SplitName, ...] = ("train", "valid", "test")
PURPOSES: dict[SplitName, str] = {"train": "train on", "valid": "validate", "test": "test"}
