"""From something encoded to words: the `decode` section of a recipe, and the search that it describes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, ValidationError, model_validator
from torch import Tensor, nn

from saccade.attention import record_attention
from saccade.config.errors import Sources, sentences, together
from saccade.config.recipe import Config
from saccade.data.text.tokenizer import BOS, EOS, PAD
from saccade.decoding import BeamConfig, Hypothesis, Prefix, SamplingConfig, beam_search, greedy_search, sample
from saccade.errors import UserError
from saccade.layers.decoder_steps import Prepared, weights_stay

_SORTED = 1024  # rows at a time; with a fourth of them batches of 32 hold a tenth more padding


class DecodeConfig(Config):
    search: Literal["greedy", "beam", "sample"] = "beam"
    beam: int = Field(5, ge=1, le=1000)
    length_penalty: float = Field(1.0, ge=-10, le=10, description="beam: above 0 favours longer outputs")
    coverage_penalty: float = Field(
        0.0, ge=0, le=100, description="beam: above 0 favours outputs that looked at all the source"
    )
    best: int = Field(1, ge=1, le=1000, description="how many outputs to give; greedy search has one")
    temperature: float = Field(1.0, ge=0.001, le=1000)
    top_k: int | None = Field(None, ge=1)
    top_p: float = Field(1.0, gt=0, le=1)
    seed: int = 1
    batch_size: int = Field(32, ge=1, description="inputs worked on at a time; changes the speed, never the output")
    max_length: int = Field(
        200, ge=1, description="an output has at most this many tokens, and at most twice the source's plus 20"
    )
    valid_sentences: int = Field(500, ge=1, description="sentences written at each validation, greedily")

    @model_validator(mode="after")
    def _greedy_has_one(self) -> "DecodeConfig":
        if self.search == "greedy" and self.best > 1:
            raise ValueError(f"{self.best} outputs are wanted and greedy search has one: use beam search or sampling")
        return self

    def with_changes(self, changes: dict[str, Any]) -> "DecodeConfig":
        kept = self.model_dump()
        if changes.get("search") == "greedy":
            kept["best"] = 1  # a recipe's own number is for its own search
        try:
            return DecodeConfig.model_validate({**kept, **changes})
        except ValidationError as error:
            found = sentences(error, DecodeConfig, changes, Sources({(): "given for this search"}))
            # what concerns no single setting is the search's, not a recipe's
            raise UserError(together(found, "the search").removeprefix("recipe (given for this search): ")) from None


@dataclass(frozen=True)
class Written:
    """What a model wrote for one input, best hypothesis first."""

    called: ClassVar[str]  # the hypotheses, in JSON

    source: str
    text: str
    hypotheses: list[Hypothesis]
    alternatives: list[str]

    def lines(self) -> list[str]:
        """Best first."""
        return [self.text, *self.alternatives]

    def to_dict(self) -> dict[str, Any]:
        found = [
            {"text": text, "score": hypothesis.score, "log_prob": hypothesis.log_prob, "finished": hypothesis.finished}
            for text, hypothesis in zip(self.lines(), self.hypotheses, strict=True)
        ]
        return {"source": self.source, self.called: found}


def generate(
    model: Any,
    memory: Any,
    longest: Tensor,
    config: DecodeConfig,
    forced: list[list[int]] | None = None,
    numbers: list[int] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses for each row of `memory` (what the model encoded), none longer than `longest` (B,).

    `forced` holds the tokens each must begin with. `numbers` names the rows, so that a sample belongs to its input whatever the batch.
    """
    begin = torch.full((len(longest),), BOS, device=longest.device)
    common: dict[str, Any] = {"eos": EOS, "pad": PAD, "max_length": longest.clamp(max=config.max_length)}
    if forced is not None:
        common["prefix"] = as_prefix(forced)
    if config.search == "greedy":
        return [[hypothesis] for hypothesis in greedy_search(model, memory, begin, **common)]
    if config.search == "sample":
        sampling = SamplingConfig(config.best, config.temperature, config.top_k, config.top_p)
        order = None if numbers is None else torch.tensor(numbers)
        return sample(model, memory, begin, sampling, seed=config.seed, numbers=order, **common)
    beam = BeamConfig(
        max(config.beam, config.best), config.best, config.length_penalty, coverage_penalty=config.coverage_penalty
    )
    stepper = CoverageStepper(model) if config.coverage_penalty else model
    return beam_search(stepper, memory, begin, beam, **common)


def found_in_order(
    lengths: Sequence[int], batch: int, search: Callable[[list[int]], list[list[Hypothesis]]]
) -> Iterator[list[Hypothesis] | None]:
    """What `search` finds for each row, in order and some at a time; None for a row of length 0, which it is not asked about.

    It gets the rows of a batch, whose lengths are nearly equal: more and more rows at a time are sorted, so that the first come soon and
    little is padded.
    """
    rest, at_a_time = range(len(lengths)), 8 * batch
    while rest:
        prepared: Prepared = {}  # not longer: whoever takes the answers may train the model in between
        part, rest = rest[:at_a_time], rest[at_a_time:]
        at_a_time = max(at_a_time, min(2 * at_a_time, _SORTED))
        order = sorted((row for row in part if lengths[row]), key=lambda row: lengths[row])
        found: dict[int, list[Hypothesis]] = {}
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            with weights_stay(prepared) if len(lengths) > batch else nullcontext():
                found.update(zip(rows, search(rows), strict=True))
        yield from (found.get(row) for row in part)


def as_prefix(rows: list[list[int]]) -> Prefix:
    longest = max(map(len, rows), default=0)
    tokens = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows], dtype=torch.long)
    return Prefix(tokens.view(len(rows), longest), torch.tensor([len(row) for row in rows]))


@dataclass(frozen=True)
class Covered:
    state: Any
    coverage: Tensor  # (B, S)


class CoverageStepper:
    """A model's steps, watched: what each source position has been attended to so far, averaged over heads and layers.

    Only a search that asks for a coverage penalty pays for the watching.
    """

    def __init__(self, model: nn.Module):
        self.model: Any = model

    def start(self, memory: Any) -> Covered:
        padded = (~memory.visible).squeeze(1).float()  # nothing is missed where there is nothing
        return Covered(self.model.start(memory), padded)

    def step(self, token: Tensor, state: Covered) -> tuple[Tensor, Covered]:
        with record_attention(self.model, "decoder.*") as seen:
            logits, after = self.model.step(token, state.state)
        over_source = [_rows(calls[-1]) for name, calls in seen.items() if "self" not in name]
        if not over_source:
            raise UserError(
                "this model has no attention, so nothing is covered: set decode.coverage_penalty to 0, or train one that attends"
            )
        return logits, Covered(after, state.coverage + torch.stack(over_source).mean(0))

    def select(self, state: Covered, rows: Tensor) -> Covered:
        return Covered(self.model.select(state.state, rows), state.coverage[rows])

    def coverage(self, state: Covered) -> Tensor:
        return state.coverage


def _rows(weights: Tensor) -> Tensor:
    """Weights of one query of each hypothesis, (B, W, S) or (B, H, W, S), as (B · W, S)."""
    return (weights if weights.dim() == 3 else weights.mean(1)).flatten(0, 1)
