"""A tokenised corpus on disk: written once, then mapped into memory, so that its size does not matter.

    pairs = write_shards("run/tokens/train", vocabularies.encode_pairs(...), vocabulary_size=8000)
    source, target = pairs[17]                  # arrays of token ids
    TokenPairs.open("run/tokens/train")         # the same, in another process

    stream = write_stream("run/tokens/train", pieces, vocabulary_size=8000)
    stream.tokens[1000:1064]                    # running text: one long array

A directory of two files a side (source and target; of running text there is one) and header.json: the token ids one after another (unsigned
16 bit if the vocabulary allows it, else 32 bit), and the offset of each sentence (64 bit, and one more, the end of the last). The directory
gets its name when it is complete.
"""

import json
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from saccade.errors import UserError
from saccade.files import open_regular, replacing_directory
from saccade.stored import Stored, read_json

Array = np.ndarray[Any, np.dtype[Any]]
SIDES = ("source", "target")
TEXT = "text"
FLUSH_TOKENS = 1 << 20
_CHECKED_AT_A_TIME = 1 << 22  # tokens


class _Header(Stored):
    version: Literal[1]
    dtype: Literal["<u2", "<i4"]  # a stranger's header must not choose how memory is read
    pairs: int = Field(ge=1, lt=1 << 40)
    source_tokens: int | None = Field(None, ge=0, lt=1 << 48)
    target_tokens: int | None = Field(None, ge=0, lt=1 << 48)
    text_tokens: int | None = Field(None, ge=0, lt=1 << 48)
    fingerprint: str = Field(max_length=100)
    origin: str

    def total(self, name: str) -> int:
        total: int | None = getattr(self, f"{name}_tokens")
        if total is None:
            raise ValueError(f"it lacks '{name}_tokens'")
        return total


class TokenPairs:
    """Pairs of token id sequences by index, in memory or mapped from disk. Arrays are views: do not write to them."""

    def __init__(self, source: "_Side", target: "_Side", fingerprint: str, origin: str = ""):
        self.fingerprint = fingerprint  # of the token ids: equal for equal pairs, wherever they are stored
        self.origin = origin  # what the writer says they were made from
        self._source = source
        self._target = target

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> "TokenPairs":
        """Reads the header and checks the sizes of the files; they are mapped on first use in each process."""
        (source, target), header = _open(Path(directory), SIDES)
        return cls(source, target, header.fingerprint, header.origin)

    @classmethod
    def open_to_train(cls, directory: Path, source_words: int, target_words: int) -> "TokenPairs":
        """The same, read through once: the tokens must be those that were written, and be in the vocabularies. A model looks them up in
        its tables by number, so a wrong one would read other memory."""
        pairs = cls.open(directory)
        try:
            pairs._source.check_content(source_words)
            pairs._target.check_content(target_words)
            if _fingerprint_of((pairs._source, pairs._target)) != pairs.fingerprint:
                raise ValueError("its tokens have changed since they were written")
        except (OSError, ValueError) as error:
            raise _incomplete(directory, error) from None
        return pairs

    @classmethod
    def from_lists(cls, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> "TokenPairs":
        """The same in memory, for small corpora."""
        columns = list(zip(*pairs, strict=True)) or [(), ()]
        sides = []
        for column in columns:
            offsets = np.cumsum([0, *map(len, column)], dtype=np.int64)
            tokens = np.fromiter((token for ids in column for token in ids), np.int32, count=offsets[-1])
            sides.append(_Side.in_memory(tokens, offsets))
        return cls(sides[0], sides[1], _fingerprint_of(sides))

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> tuple[Array, Array]:
        return self._source[index], self._target[index]

    @property
    def lengths(self) -> tuple[Array, Array]:
        """The number of tokens of each source and of each target, without touching the tokens."""
        return np.diff(self._source.offsets), np.diff(self._target.offsets)


class TokenStream:
    """Running text as one long array of token ids, in memory or mapped from disk. Do not write to it."""

    def __init__(self, text: "_Side", fingerprint: str = ""):
        self.fingerprint = fingerprint
        self._text = text

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> "TokenStream":
        (text,), header = _open(Path(directory), (TEXT,))
        return cls(text, header.fingerprint)

    @classmethod
    def open_to_train(cls, directory: Path, words: int) -> "TokenStream":
        """The same, read through once, as `TokenPairs.open_to_train` does."""
        stream = cls.open(directory)
        try:
            stream._text.check_content(words)
            if _fingerprint_of((stream._text,)) != stream.fingerprint:
                raise ValueError("its tokens have changed since they were written")
        except (OSError, ValueError) as error:
            raise _incomplete(directory, error) from None
        return stream

    @classmethod
    def from_list(cls, tokens: Sequence[int]) -> "TokenStream":
        return cls(_Side.in_memory(np.asarray(tokens, np.int32), np.array([0, len(tokens)])))

    def __len__(self) -> int:
        return self._text.total

    @property
    def tokens(self) -> Array:
        return self._text.tokens


def write_stream(
    directory: str | os.PathLike[str], pieces: Iterable[Sequence[int]], vocabulary_size: int
) -> TokenStream:
    """Write running text that comes in pieces, as `write_shards` writes pairs, and open it."""
    _write_sides(directory, (TEXT,), ((piece,) for piece in pieces), vocabulary_size)
    return TokenStream.open(directory)


def write_shards(
    directory: str | os.PathLike[str],
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    vocabulary_size: int,
    origin: str = "",
) -> TokenPairs:
    """Write the pairs in memory for about a million tokens, and open them.

    `vocabulary_size` is that of the larger side. `origin` is stored for the caller: what the tokens were made from. An older corpus under
    the same name is replaced when the new one is complete.
    """
    _write_sides(directory, SIDES, pairs, vocabulary_size, origin)
    return TokenPairs.open(directory)


def _write_sides(
    directory: str | os.PathLike[str],
    names: Sequence[str],
    rows: Iterable[Sequence[Sequence[int]]],
    vocabulary_size: int,
    origin: str = "",
) -> None:
    directory = Path(directory)
    _check_replaceable(directory)
    with replacing_directory(directory) as aside:
        _write(aside, names, rows, np.dtype(np.uint16 if vocabulary_size <= 1 << 16 else np.int32), origin)


def _write(
    directory: Path,
    names: Sequence[str],
    rows: Iterable[Sequence[Sequence[int]]],
    dtype: np.dtype[Any],
    origin: str,
) -> None:
    """Rows of a sequence for each side."""
    count = 0
    with ExitStack() as stack:
        sides = {name: stack.enter_context(_SideWriter(directory / name, dtype)) for name in names}
        for row in rows:
            for side, ids in zip(sides.values(), row, strict=True):
                side.add(ids)
            count += 1
    if count == 0:
        raise UserError("there are no pairs to tokenise: give a corpus with some")
    header = {
        "version": 1,
        "pairs": count,
        "dtype": dtype.str,
        **{f"{name}_tokens": side.total for name, side in sides.items()},
        "fingerprint": _joined([side.fingerprint for side in sides.values()]),
        "origin": origin,
    }
    (directory / "header.json").write_text(json.dumps(header, indent=1), encoding="utf-8")


def _incomplete(directory: Path, error: Exception) -> UserError:
    return UserError(
        f"{directory} is not a complete tokenised corpus ({error}): train the run again, with another --out"
    )


def _open(directory: Path, names: Sequence[str]) -> tuple[list["_Side"], _Header]:
    """The sides and the header, the sizes of the files checked."""
    try:
        header = read_json(directory / "header.json", _Header)
        sides = [_Side(directory / name, header.dtype, header.pairs, header.total(name)) for name in names]
        for side in sides:
            side.check()
        return sides, header
    except (OSError, ValueError) as error:
        raise _incomplete(directory, error) from None


def _check_replaceable(directory: Path) -> None:
    ours = (directory / "header.json").is_file()
    if directory.exists() and not ours and not (directory.is_dir() and not any(directory.iterdir())):
        raise UserError(f"{directory} is not a tokenised corpus: choose another place or delete it")


class _SideWriter:
    """Appends sequences to the two files of a side."""

    def __init__(self, path: Path, dtype: np.dtype[Any]):
        self.total = 0
        self.fingerprint = _Fingerprint()
        self._dtype = dtype
        self._tokens = array("H" if dtype == np.uint16 else "i")  # refuses ids that do not fit
        self._ends = array("q")
        self._tokens_file = _tokens_file(path).open("wb")
        self._offsets_file = _offsets_file(path).open("wb")
        self._offsets_file.write(np.zeros(1, np.int64).tobytes())

    def add(self, ids: Sequence[int]) -> None:
        self._tokens.extend(ids)
        self.total += len(ids)
        self._ends.append(self.total)
        if len(self._tokens) + len(self._ends) >= FLUSH_TOKENS:
            self._flush()

    def _flush(self) -> None:
        tokens, ends = np.array(self._tokens, self._dtype), np.array(self._ends, np.int64)
        self.fingerprint.add(tokens, ends)
        self._tokens_file.write(tokens.tobytes())
        self._offsets_file.write(ends.tobytes())
        del self._tokens[:], self._ends[:]

    def __enter__(self) -> "_SideWriter":
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        try:
            if error_type is None:
                self._flush()
        finally:
            self._tokens_file.close()
            self._offsets_file.close()


class _Fingerprint:
    """Of the tokens and the ends of sequences, independent of the chunks in which they are added."""

    def __init__(self) -> None:
        self._tokens = blake2b(digest_size=16)
        self._ends = blake2b(digest_size=16)

    def add(self, tokens: Array, ends: Array) -> None:
        self.add_tokens(tokens)
        self.add_ends(ends)

    def add_tokens(self, tokens: Array) -> None:
        self._tokens.update(tokens.astype("<i4").tobytes())

    def add_ends(self, ends: Array) -> None:
        self._ends.update(ends.astype("<i8").tobytes())

    def digest(self) -> bytes:
        return self._tokens.digest() + self._ends.digest()


def _fingerprint_of(sides: Sequence["_Side"]) -> str:
    hashes = [_Fingerprint() for _ in sides]
    for digest, side in zip(hashes, sides, strict=True):
        for part in side.parts():
            digest.add_tokens(part)
        digest.add_ends(side.offsets[1:])
    return _joined(hashes)


def _joined(fingerprints: list[_Fingerprint]) -> str:
    return blake2b(b"".join(fingerprint.digest() for fingerprint in fingerprints), digest_size=16).hexdigest()


@dataclass
class _Side:
    """Token id sequences, concatenated. Given as a path, the files are mapped on first use."""

    path: Path | None
    dtype: str
    count: int
    total: int
    _arrays: tuple[Array, Array] | None = None

    @classmethod
    def in_memory(cls, tokens: Array, offsets: Array) -> "_Side":
        return cls(None, tokens.dtype.str, len(offsets) - 1, len(tokens), (tokens, offsets))

    def check(self) -> None:
        assert self.path is not None
        for file, size in (
            (_tokens_file(self.path), self.total * np.dtype(self.dtype).itemsize),
            (_offsets_file(self.path), (self.count + 1) * 8),
        ):
            if file.stat().st_size != size:
                raise ValueError(f"{file.name} has {file.stat().st_size:,} bytes, not {size:,}")

    def check_content(self, words: int) -> None:
        """Every sequence lies within the tokens, and every token is one of so many words."""
        offsets = self.offsets
        if offsets[0] != 0 or offsets[-1] != self.total or (np.diff(offsets) < 0).any():
            raise ValueError("its sequences do not follow each other")
        for part in self.parts():
            if part.min() < 0 or part.max() >= words:
                raise ValueError(f"a token is not one of the {words:,} of the vocabulary")

    def parts(self) -> Iterator[Array]:
        """The tokens, some at a time, so that a corpus larger than memory can be read through."""
        for start in range(0, self.total, _CHECKED_AT_A_TIME):
            yield self.tokens[start : start + _CHECKED_AT_A_TIME]

    @property
    def tokens(self) -> Array:
        return self._mapped()[0]

    @property
    def offsets(self) -> Array:
        return self._mapped()[1]

    def _mapped(self) -> tuple[Array, Array]:
        if self._arrays is None:
            assert self.path is not None
            self._arrays = (
                _map(_tokens_file(self.path), self.dtype, self.total),
                _map(_offsets_file(self.path), "<i8", self.count + 1),
            )
        return self._arrays

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Array:
        if not -self.count <= index < self.count:
            raise IndexError(f"there are {self.count:,} pairs; {index} is not one of them")
        tokens, offsets = self._mapped()
        start = index % self.count
        return tokens[offsets[start] : offsets[start + 1]]

    def __getstate__(self) -> dict[str, Any]:
        """Another process gets the path, not the corpus."""
        return {**self.__dict__, "_arrays": None if self.path is not None else self._arrays}


def _map(file: Path, dtype: str, count: int) -> Array:
    if count == 0:
        return np.empty(0, dtype)
    with open_regular(file) as opened:
        return np.memmap(opened, dtype, mode="r", shape=(count,)).view(np.ndarray)


def _tokens_file(side: Path) -> Path:
    return side.with_name(side.name + ".tokens")


def _offsets_file(side: Path) -> Path:
    return side.with_name(side.name + ".offsets")
