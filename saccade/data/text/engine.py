"""The tokenizer engine reads regular expressions and rewriting rules from a file, and some of them never end or fill the memory:
so a tokenizer.json, of ours or in Hugging Face's format, may hold only the parts that are listed here.

    engine = engine_from(content)        check_tokenizer(content), then the engine itself

Known patterns take time in proportion to the text; a replacement may not be longer than what it replaces; nothing is padded to a length
of the file's choosing. Any other part, or a pattern that is not known, is a ValueError that names it.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import tokenizers

from saccade.data.text.words import PATTERNS

Part = Mapping[str, Any]

_MOST_TOKENS = 1_000_000
_LONGEST_TOKEN = 10_000  # characters; some vocabularies have long runs of spaces or dashes
_MOST_PARTS = 16  # of a sequence
_LONGEST_PADDING = 8192

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_AFTER = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_KNOWN_PATTERNS = frozenset(
    (
        *PATTERNS,
        _GPT2,
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}{_AFTER}",  # Llama 3
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{_AFTER}",  # Qwen
        r" {2,}",
        r"\s+",
        r"\d",
        r"\p{N}",
    )
)


def engine_from(content: Any) -> tokenizers.Tokenizer:
    """The engine of a parsed tokenizer.json; a ValueError where it is unsafe or damaged."""
    check_tokenizer(content)
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(content))
    except BaseException as error:  # the engine raises bare Exceptions, and its panics are not even those
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise ValueError(str(error)[:200]) from None


def check_tokenizer(content: Any) -> None:
    """Whether each part of a parsed tokenizer.json is one of those that are known to be safe; a ValueError says which is not."""
    tokenizer = _mapping(content, "it")
    _model(_mapping(tokenizer.get("model"), "its model"))
    for name, known in (
        ("normalizer", _NORMALIZERS),
        ("pre_tokenizer", _PRE_TOKENIZERS),
        ("post_processor", _POST_PROCESSORS),
        ("decoder", _DECODERS),
    ):
        if tokenizer.get(name) is not None:
            _part(tokenizer[name], f"its {name}", known, depth=0)
    added = tokenizer.get("added_tokens") or []
    if not isinstance(added, list) or len(added) > _MOST_TOKENS:
        raise ValueError("its added_tokens are not a list of tokens")
    for token in added:
        _text(_mapping(token, "an added token").get("content"), "an added token", _LONGEST_TOKEN)
    _padding(tokenizer.get("padding"))


def _model(model: Part) -> None:
    kind = model.get("type") or ("BPE" if "merges" in model else None)  # old files leave it out
    if kind not in ("BPE", "WordLevel", "WordPiece", "Unigram"):
        raise ValueError(f"its model {_shown(kind)} is none of BPE, WordLevel, WordPiece and Unigram")
    if model.get("dropout"):
        raise ValueError("its model drops merges at random, so that it never reads a text twice alike")
    vocabulary = model.get("vocab")
    wanted = list if kind == "Unigram" else dict
    if not isinstance(vocabulary, wanted) or not 0 < len(vocabulary) <= _MOST_TOKENS:
        raise ValueError(f"its vocabulary has not between 1 and {_MOST_TOKENS:,} tokens")
    if isinstance(vocabulary, dict) and any(
        not isinstance(number, int) or not 0 <= number < 2 * _MOST_TOKENS for number in vocabulary.values()
    ):
        raise ValueError("its vocabulary has tokens that are not numbered")
    tokens = (
        vocabulary
        if isinstance(vocabulary, dict)
        else (row[0] if isinstance(row, list) and row else None for row in vocabulary)
    )
    for token in tokens:
        _text(token, "a token", _LONGEST_TOKEN)
    if not isinstance(model.get("merges", []), list) or len(model.get("merges", [])) > 2 * _MOST_TOKENS:
        raise ValueError("its merges are not a list")
    if not 0 <= _number(model.get("max_input_chars_per_word", 0)) <= _LONGEST_TOKEN:
        raise ValueError(f"max_input_chars_per_word is not between 0 and {_LONGEST_TOKEN:,}")
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "unk_token"):
        if model.get(name) is not None:
            _text(model[name], name, 100)


def _part(content: Any, place: str, known: "Mapping[str, _Check]", depth: int) -> None:
    part = _mapping(content, place)
    kind = part.get("type")
    if kind == "Sequence":
        inner = next(
            (part[name] for name in ("normalizers", "pretokenizers", "processors", "decoders") if name in part), None
        )
        if not isinstance(inner, list) or len(inner) > _MOST_PARTS or depth > 1:
            raise ValueError(f"{place} is not a sequence of at most {_MOST_PARTS} parts")
        for one in inner:
            _part(one, place, known, depth + 1)
        return
    if not isinstance(kind, str) or kind not in known:
        raise ValueError(f"{place} has the part {_shown(kind)}, and only {', '.join(sorted(known))} are read")
    known[kind](part)


_Check = Callable[[Part], None]


def _nothing(part: Part) -> None:
    """Has no settings that could do harm."""


def _replace(part: Part) -> None:
    """What is written instead must not be longer: rules that follow each other would multiply."""
    pattern, content = _mapping(part.get("pattern"), "a pattern"), _text(part.get("content"), "a replacement", 100)
    _pattern(pattern)
    if len(content) > len(pattern.get("String", " ")):
        raise ValueError(f"a rule replaces text by the longer {_shown(content)}")


def _split(part: Part) -> None:
    _pattern(_mapping(part.get("pattern"), "a pattern"))


def _pattern(pattern: Part) -> None:
    if isinstance(pattern.get("String"), str) and len(pattern) == 1:
        _text(pattern["String"], "a pattern", 100)
    elif len(pattern) != 1 or pattern.get("Regex") not in _KNOWN_PATTERNS:
        raise ValueError(f"the pattern {_shown(pattern.get('Regex'))} is not one that is known to end")


def _prepend(part: Part) -> None:
    _text(part.get("prepend"), "what is prepended", 8)


def _metaspace(part: Part) -> None:
    _text(part.get("replacement", "▁"), "a replacement", 1)


def _template(part: Part) -> None:
    for name in ("single", "pair"):
        template = part.get(name)
        if template is not None and (not isinstance(template, list) or len(template) > _MOST_PARTS):
            raise ValueError(f"its template has more than {_MOST_PARTS} parts")
    for token in _mapping(part.get("special_tokens", {}), "its special tokens").values():
        ids = _mapping(token, "a special token").get("ids")
        if not isinstance(ids, list) or len(ids) > _MOST_PARTS:
            raise ValueError(f"a special token stands for more than {_MOST_PARTS}")


_NORMALIZERS: Mapping[str, _Check] = {
    **dict.fromkeys(("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "BertNormalizer"), _nothing),
    "Prepend": _prepend,
    "Replace": _replace,
}
_PRE_TOKENIZERS: Mapping[str, _Check] = {
    **dict.fromkeys(
        ("ByteLevel", "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Punctuation", "Digits"), _nothing
    ),
    "Metaspace": _metaspace,
    "Split": _split,
}
_POST_PROCESSORS: Mapping[str, _Check] = {
    **dict.fromkeys(("BertProcessing", "RobertaProcessing", "ByteLevel"), _nothing),
    "TemplateProcessing": _template,
}
_DECODERS: Mapping[str, _Check] = {
    **dict.fromkeys(("ByteLevel", "WordPiece", "BPEDecoder", "Fuse", "ByteFallback", "Strip"), _nothing),
    "Metaspace": _metaspace,
    "Replace": _split,  # decoders of some files write more than they read, once
}


def _padding(padding: Any) -> None:
    if padding is None:
        return
    strategy = _mapping(padding, "its padding").get("strategy")
    sizes = [_mapping(padding, "its padding").get("pad_to_multiple_of") or 0]
    if strategy != "BatchLongest":
        sizes.append(_mapping(strategy, "its padding").get("Fixed"))
    if any(not 0 <= _number(size) <= _LONGEST_PADDING for size in sizes):
        raise ValueError(f"its padding is longer than {_LONGEST_PADDING:,} tokens")


def _mapping(value: Any, what: str) -> Part:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a group of settings")
    return value


def _text(value: Any, what: str, most: int) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f"{what} is not text of at most {most:,} characters")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise ValueError(f"{_shown(value)} is not a number")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
