"""The constraints of a search: the special tokens, how long an output may be, and how it must begin.

Length counts every generated token, a forced prefix and eos among them. `max_length` = 20 therefore allows 19 tokens and
their end, or 20 tokens that have not ended. A prefix longer than the limit is still written out in full.

A forced token is scored like any other: it has the model's log-probability and counts in the length. An output has the same score whether
its prefix was forced or not, and the same again when it is scored as a target.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from saccade.errors import ConfigError

FREE = -1

Length = TypeVar("Length", int, Tensor)


def max_target_length(source_length: Length) -> Length:
    """How long a translation may become, both lengths with their end token: no fluent one is longer."""
    return 2 * source_length + 20


class Prefix(NamedTuple):
    """The tokens that each output must begin with: the first `lengths[b]` of `tokens[b]`, which may be none."""

    tokens: Tensor  # (B, P)
    lengths: Tensor  # (B,)


@dataclass(frozen=True)
class Constraints:
    """On the CPU, like the state of a search; only logits, tokens and decoder states are on the device."""

    limit: Tensor  # (B,) the most tokens an output may have
    forced: Tensor  # (B, P) the token to write at each position, or FREE
    eos: int
    pad: int

    @classmethod
    def of(cls, begin: Tensor, eos: int, pad: int, max_length: Tensor | int, prefix: Prefix | None) -> "Constraints":
        if eos == pad:
            raise ConfigError(f"eos and pad are both token {eos}: they must differ, or no output could end")
        limit = torch.as_tensor(max_length, dtype=torch.long).cpu().expand(len(begin))
        if (limit < 1).any():
            raise ConfigError(f"max_length is {int(limit.min())}: an output needs at least 1 token, its end")
        if prefix is None:
            return cls(limit, torch.empty(len(begin), 0, dtype=torch.long), eos, pad)
        forced = forced_tokens(prefix, len(begin))
        if ((forced == eos) | (forced == pad)).any():
            raise ConfigError(f"a prefix contains eos ({eos}) or pad ({pad}): remove it")
        return cls(torch.maximum(limit, prefix.lengths.cpu()), forced, eos, pad)

    def forced_at(self, position: int, sentences: Tensor) -> Tensor | None:
        """The token forced on each of `sentences` at `position`, FREE where there is none; None if all are free."""
        if position >= self.forced.shape[1]:
            return None
        token = self.forced[sentences, position]
        return None if bool((token == FREE).all()) else token


def forced_tokens(prefix: Prefix, sentences: int) -> Tensor:
    """The prefix as one matrix (B, P) with FREE after each sentence's own length."""
    tokens, lengths = prefix.tokens.long().cpu(), prefix.lengths.cpu()
    if tokens.dim() != 2 or len(tokens) != sentences or lengths.shape != (sentences,):
        shapes = f"{tuple(tokens.shape)} and lengths {tuple(lengths.shape)}"
        raise ValueError(
            f"the tokens have shape {shapes} for {sentences} sentences: give (B, P) and (B,), one row each"
        )
    if ((lengths < 0) | (lengths > tokens.shape[1])).any():
        raise ValueError(f"a length is not between 0 and {tokens.shape[1]}, the number of token columns")
    return tokens.masked_fill(torch.arange(tokens.shape[1]) >= lengths.unsqueeze(1), FREE)
