"""Which texts are trained on and which are held out: the same share of every class, and no text in two parts."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b

from saccade.data.splits import SPLITS, SplitName
from saccade.data.text.labelled.files import Labelled, Listing
from saccade.errors import Say, UserError

_MOST_HELD_OUT = 2000


def split_listings(
    listings: Mapping[SplitName, Listing], seed: int, say: Say, share: float = 0.1
) -> dict[SplitName, list[Labelled]]:
    """A part without a listing is cut from train: `share` of every class, by a hash of the text, so neither the order of the file nor other
    texts matter. Case and white space do not make a text another. Training texts that also occur in a held-out file are left out."""
    train = listings["train"]
    _check_labels(train, say)
    parts = {split: list(listing.examples) for split, listing in listings.items()}
    for split in [split for split in SPLITS[1:] if split in parts]:
        check_classes(listings[split], {example.label for example in train.examples})
    given = {_same(example.text) for split in SPLITS[1:] for example in parts.get(split, ())}
    rest = [example for example in train.examples if _same(example.text) not in given]
    if len(rest) < len(train.examples):
        count = len(train.examples) - len(rest)
        say(f"{count:,} training texts also occur in the validation or test files; they were left out of training")
    missing = [split for split in SPLITS[1:] if split not in parts]
    if missing:
        cut = _cut(rest, missing, seed, share)
        for split in missing:
            parts[split] = _once(example for example in rest if cut.get(_same(example.text)) == split)
        rest = [example for example in rest if _same(example.text) not in cut]
    empty = next((split for split in missing if not parts[split]), None)
    if empty or not rest:
        raise UserError(
            f"{train.origin}: {len(train.examples):,} texts cannot be split into train, {' and '.join(missing) or 'held-out files'}: "
            "give more, or files of their own for data.valid and data.test"
        )
    _check_left(train, rest, parts)
    return {**parts, "train": rest}


def _check_left(train: Listing, rest: Sequence[Labelled], parts: Mapping[SplitName, Sequence[Labelled]]) -> None:
    """Every class that is tested, and at least two, must still have training texts."""
    left = {example.label for example in rest}
    lost = {example.label for split in SPLITS[1:] for example in parts[split]} - left
    if len(left) < 2:
        lost |= train.labels().keys() - left
    if lost:
        raise UserError(
            f"{train.origin}: all texts of the class {min(lost)} are also validation or test texts, so none is left to train on: "
            "give more of that class, or take them out of data.valid and data.test"
        )


def _check_labels(train: Listing, say: Say) -> None:
    labels = train.labels()
    once = sorted(label for label, count in labels.items() if count == 1)
    if len(once) > max(3, len(labels) // 2) and sum(labels.values()) < 2 * len(labels):
        raise UserError(
            f"{train.origin}: nearly every label occurs once ({', '.join(map(repr, once[:3]))}, …), so these are no classes: "
            "name the column of labels with --set data.label=COLUMN, or begin each line with its label"
        )
    if len(labels) == 1:
        raise UserError(
            f"{train.origin}: all {sum(labels.values()):,} texts have the label {next(iter(labels))}: give a second class"
        )
    if once:
        some = ", ".join(once[:5]) + (", …" if len(once) > 5 else "")
        say(f"labels that occur once can be trained on and not tested: {some}")


def check_classes(listing: Listing, classes: Collection[str]) -> None:
    unknown = sorted(set(listing.labels()) - set(classes))
    if unknown:
        raise UserError(
            f"{listing.origin} has texts of the class {unknown[0]}, which has no training texts: "
            f"the classes are {', '.join(sorted(classes)[:20])}{', …' if len(classes) > 20 else ''}"
        )


def _cut(examples: Sequence[Labelled], parts: Sequence[SplitName], seed: int, share: float) -> dict[str, SplitName]:
    """The part of every text that is cut off. A text with two labels counts for the first."""
    classes = dict[str, str]()
    for example in examples:
        classes.setdefault(_same(example.text), example.label)
    by_class = dict[str, list[str]]()
    for text, label in classes.items():
        by_class.setdefault(label, []).append(text)
    largest = _MOST_HELD_OUT / max(len(classes), 1)
    cut = dict[str, SplitName]()
    for texts in by_class.values():
        ranked = sorted(texts, key=lambda text: _rank(text, seed))
        size = max(round(min(share, largest) * len(texts)), 1 if len(texts) > len(parts) else 0)
        for number, split in enumerate(parts):
            cut.update(dict.fromkeys(ranked[number * size : (number + 1) * size], split))
    return cut


def _once(examples: Iterable[Labelled]) -> list[Labelled]:
    """Each text and label once: what is tested should not count twice."""
    kept = dict[tuple[str, str], Labelled]()
    for example in examples:
        kept.setdefault((_same(example.text), example.label), example)
    return list(kept.values())


def imbalance(counts: Counter[str]) -> str:
    """How unequal classes are, where they are: "the largest class has 12.5 times as many texts as the smallest"."""
    most, fewest = max(counts.values()), min(counts.values())
    return (
        f"the largest class has {most / fewest:.1f} times as many texts as the smallest" if most >= 1.5 * fewest else ""
    )


def _rank(text: str, seed: int) -> bytes:
    return blake2b(f"{seed}\0{text}".encode(), digest_size=16).digest()


def _same(text: str) -> str:
    return " ".join(text.casefold().split())
