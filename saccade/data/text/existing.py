"""The tokenizer of another model: a tokenizer.json of Hugging Face (WordPiece, byte-level BPE, SentencePiece's), or a BERT's vocab.txt.

It reads a text as its own library does, but for two things: special tokens cannot be written ("[SEP]" in a text is five characters of
text), and nothing is cut off or filled up, whatever the file says.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from saccade.data.text.engine import engine_from
from saccade.data.text.spelling import Encoded, SpecialTokens, Spelled, byte_level_bytes, check_lengths
from saccade.errors import ConfigError
from saccade.files import read_text

_ROLES = {  # in the files of a model, the first that it has
    "pad": ("pad_token",),
    "first": ("cls_token", "bos_token"),
    "last": ("sep_token", "eos_token"),
    "unknown": ("unk_token",),
    "mask": ("mask_token",),
}
_USUAL = {
    "pad": ("[PAD]", "<pad>"),
    "first": ("[CLS]", "<s>"),
    "last": ("[SEP]", "</s>", "<|endoftext|>"),
    "unknown": ("[UNK]", "<unk>"),
    "mask": ("[MASK]", "<mask>"),
}


class ExistingTokenizer(Spelled):
    """`size` is how many tokens the model's embedding has: at least as many as the vocabulary."""

    kind = "existing"

    def __init__(self, engine: tokenizers.Tokenizer, special: SpecialTokens, size: int):
        engine.no_truncation()
        engine.no_padding()
        engine.encode_special_tokens = True
        self._engine = engine
        self._size = size
        names = {token: name for name, token in engine.get_vocab().items()}
        spell = _speller(json.loads(engine.to_str()))
        added = {token: added.content.encode() for token, added in engine.get_added_tokens_decoder().items()}
        spelled = [added[token] if token in added else spell(names.get(token, "")) for token in range(size)]
        super().__init__(spelled, special, marks_subwords=True)

    @classmethod
    def from_folder(cls, directory: Path) -> "ExistingTokenizer":
        """That of a model in Hugging Face's format; it must fit the model's config.json."""
        engine, settings = _engine_of(directory), _json(directory / "config.json")
        known = engine.get_vocab_size(with_added_tokens=True)
        size = int(settings.get("vocab_size", known))
        if known > size:
            raise ConfigError(
                f"{directory}: its tokenizer has {known:,} tokens and its weights know {size:,}, so they do not belong together: "
                "copy both again from one model"
            )
        names = {**_json(directory / "special_tokens_map.json"), **_json(directory / "tokenizer_config.json")}
        special = _special_tokens(engine, names)
        theirs = settings.get("pad_token_id")
        if theirs is not None and _token(engine, names, "pad") not in (None, theirs):
            raise ConfigError(
                f"{directory}: its tokenizer fills up with token {special.pad} and its weights were trained with {theirs}, "
                "so they do not belong together: copy both again from one model"
            )
        return cls(engine, special, size)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        check_lengths(texts)
        return [encoding.ids for encoding in self._engine.encode_batch_fast(list(texts), add_special_tokens=False)]

    def encode_with_offsets(self, text: str) -> Encoded:
        check_lengths([text])
        encoding = self._engine.encode(text, add_special_tokens=False)
        return Encoded(tuple(encoding.ids), tuple(encoding.offsets))

    def decode(self, ids: Iterable[int]) -> str:
        """Without special tokens."""
        text: str = self._engine.decode([int(token) for token in ids], skip_special_tokens=True)
        return text

    def __len__(self) -> int:
        return self._size

    def to_json(self) -> str:
        content = {"kind": self.kind, "size": self._size, "special": vars(self.special)}
        return json.dumps({**content, "engine": json.loads(self._engine.to_str())}, ensure_ascii=False)

    def to_engine(self) -> tokenizers.Tokenizer:
        return tokenizers.Tokenizer.from_str(self._engine.to_str())

    @classmethod
    def from_json(cls, text: str) -> "ExistingTokenizer":
        content = json.loads(text)
        engine = engine_from(content["engine"])
        size = int(content["size"])
        special = SpecialTokens(**content["special"])
        if not {type(token) for token in vars(special).values()} <= {int, type(None)}:
            raise ValueError(f"special tokens {vars(special)}")
        if not 0 < engine.get_vocab_size(with_added_tokens=True) <= size <= _MOST_TOKENS:
            raise ValueError(f"a size of {size} for {engine.get_vocab_size(with_added_tokens=True)} tokens")
        return cls(engine, special, size)


_MOST_TOKENS = 10_000_000


def _engine_of(directory: Path) -> tokenizers.Tokenizer:
    file, words = directory / "tokenizer.json", directory / "vocab.txt"
    try:
        if file.is_file():
            return engine_from(json.loads(read_text(file)))
        if words.is_file():
            return _word_pieces(words, bool(_json(directory / "tokenizer_config.json").get("do_lower_case", True)))
    except Exception as error:  # the engine raises bare Exceptions for what it cannot parse
        raise ConfigError(f"{file} cannot be read as a tokenizer ({error}): copy the model again") from None
    raise ConfigError(
        f"{directory} has no tokenizer.json (nor a vocab.txt), so nobody knows what its weights read: "
        "copy it from the model, or save it with transformers' AutoTokenizer"
    )


def _word_pieces(path: Path, lowercase: bool) -> tokenizers.Tokenizer:
    """BERT's, from its list of words alone."""
    names = path.read_text(encoding="utf-8").splitlines()
    vocabulary = {name: token for token, name in enumerate(names)}
    engine = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    engine.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece()
    engine.add_special_tokens([name for names in _USUAL.values() for name in names if name in vocabulary])
    return engine


def _special_tokens(engine: tokenizers.Tokenizer, names: Mapping[str, Any]) -> SpecialTokens:
    tokens = {role: _token(engine, names, role) for role in _ROLES}
    alone, pair = (engine.num_special_tokens_to_add(is_pair) for is_pair in (False, True))
    pad = tokens.pop("pad")
    return SpecialTokens(0 if pad is None else pad, **tokens, between=max(1, pair - alone))


def _token(engine: tokenizers.Tokenizer, names: Mapping[str, Any], role: str) -> int | None:
    """The special token of this role, by the model's files or by its usual name."""
    written = [names.get(key) for key in _ROLES[role]]
    spelled = [name.get("content") if isinstance(name, dict) else name for name in written]
    for name in [*(name for name in spelled if isinstance(name, str)), *_USUAL[role]]:
        token: int | None = engine.token_to_id(name)
        if token is not None:
            return token
    return None


def _speller(engine: Mapping[str, Any]) -> Callable[[str], bytes]:
    """How a token of this kind of vocabulary is spelled, with a space where a word begins."""
    model, written = engine["model"], json.dumps([engine.get("pre_tokenizer"), engine.get("decoder")])
    if model["type"] == "WordPiece":
        prefix = model.get("continuing_subword_prefix", "##")
        return lambda name: name.removeprefix(prefix).encode() if name.startswith(prefix) else b" " + name.encode()
    if '"ByteLevel"' in written:
        return byte_level_bytes
    return _with_spaces


def _with_spaces(name: str) -> bytes:
    """SentencePiece writes a space as ▁ and a byte that is no letter of its own as <0x0A>."""
    byte = re.fullmatch(r"<0x([0-9A-F]{2})>", name)
    return bytes([int(byte[1], 16)]) if byte else name.replace("▁", " ").encode()


def _json(path: Path) -> dict[str, Any]:
    """Nothing where there is no such file."""
    try:
        content = json.loads(read_text(path))
    except OSError:
        return {}
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON ({error}): copy the model again") from None
    return content if isinstance(content, dict) else {}
