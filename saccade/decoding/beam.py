"""Beam search: at every length, the `size` most probable prefixes are kept.

Scores are those of Google's NMT system (Wu et al. 2016, https://arxiv.org/abs/1609.08144, equation 14):

    score(Y) = log P(Y | X) / ((5 + |Y|) / 6)^length_penalty
             + coverage_penalty · Σ_i log(min(Σ_j attention_ij, 1))          i source position, j output position

|Y| counts the tokens written, eos among them; with both penalties 0 the score is the plain log-probability.

At each step the candidates (every prefix, with every next token) are sorted by log-probability. Those among the first `size` that end in
eos leave the beam with their score; the first `size` of the others stay in it. The penalties rank finished hypotheses only: prefixes that
are compared with each other are equally long, and coverage in mid-sentence says little. A sentence is done when it has `best` finished
hypotheses and no prefix can overtake the last of them within the next `further` tokens (its log-probability can only fall, its coverage
penalty at most vanish), or at its limit. Hypotheses that are unfinished at the limit rank behind all finished ones.

With a length penalty the divisor grows with the length, so a prefix that is behind could win only by tokens of probability near 1.
`further` = None waits for that until the limit; in translation a few tokens give the same result sooner.

Axes: B sentences not yet done, W prefixes of each (1 at first, then up to `size`), C candidates of each.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from saccade.decoding.constraints import FREE, Constraints, Prefix
from saccade.decoding.hypothesis import Hypothesis, read_hypothesis
from saccade.decoding.largest import largest
from saccade.decoding.stepper import State, Stepper, TracksCoverage, chosen_log_prob, log_probs_of, select_rows
from saccade.errors import ConfigError

Number = TypeVar("Number", float, Tensor)


@dataclass(frozen=True)
class BeamConfig:
    size: int = 5
    best: int = 1  # how many hypotheses to return per sentence
    length_penalty: float = 0.0  # above 0 favours longer outputs, below 0 shorter ones
    coverage_penalty: float = 0.0  # above 0 favours outputs that attended to the whole source
    further: int | None = 4  # tokens within which a prefix must overtake; None: up to its limit

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"the beam size is {self.size}: it must be at least 1")
        if not 1 <= self.best <= self.size:
            raise ConfigError(f"best is {self.best}: a beam of {self.size} can return 1 to {self.size} hypotheses")
        if self.further is not None and self.further < 1:
            raise ConfigError(f"further is {self.further}: it must be 1 token or more, or None for no limit")
        if not self.coverage_penalty >= 0:
            raise ConfigError(f"coverage_penalty is {self.coverage_penalty}: it must be 0 (none) or above")


class Considered(NamedTuple):
    """The candidates of one step, best first; all but `sentence` are (B, C). Log-probability -inf: not a candidate."""

    length: int  # tokens written, this one included
    sentence: Tensor  # (B,)
    parent: Tensor  # the node that each continues
    node: Tensor  # its own, where it stays in the beam or has ended; ROOT where it is dropped
    token: Tensor
    token_log_prob: Tensor
    log_prob: Tensor
    score: Tensor
    ended: Tensor  # True: left the beam with this score


class Observer(Protocol):
    """Gets every step of a search. Without an observer nothing is computed for it."""

    def considered(self, step: Considered) -> None: ...

    def decided(self, results: list[list[tuple[float, int]]]) -> None:
        """The scores and nodes of each sentence's hypotheses, best first."""
        ...


@torch.inference_mode()
def beam_search(
    stepper: Stepper[State],
    memory: Any,
    begin: Tensor,
    config: BeamConfig,
    *,
    eos: int,
    pad: int,
    max_length: Tensor | int,
    prefix: Prefix | None = None,
    observer: Observer | None = None,
) -> list[list[Hypothesis]]:
    """The `config.best` best hypotheses per sentence, best first; fewer only if the model allows no more.

    `begin` (B,) is the token each sentence starts from; it gives the number of sentences and the device.
    `max_length` is the most tokens an output may have, eos included, for all or per sentence (B,).
    `observer` gets every candidate of every step, and the result.
    """
    coverage = None
    if config.coverage_penalty:
        if not isinstance(stepper, TracksCoverage):
            raise ConfigError(
                f"coverage_penalty is {config.coverage_penalty}, but {type(stepper).__name__} does not track coverage: "
                "set coverage_penalty to 0, or use a decoder whose state sums its attention"
            )
        coverage = stepper.coverage
    constraints = Constraints.of(begin, eos, pad, max_length, prefix)
    if len(begin) == 0:
        return []
    beam = _Beam(config, constraints, observer)
    state, token = stepper.start(memory), begin
    length = 0
    while True:
        length += 1
        logits, state = stepper.step(token, state)
        penalty = torch.zeros(len(logits), dtype=torch.float64)
        if coverage is not None:
            penalty = config.coverage_penalty * coverage_term(coverage(state)).cpu().double()
        rows = beam.advance(log_probs_of(logits), penalty, length)
        if len(rows) == 0:
            if observer is not None:
                observer.decided(beam.results)
            return beam.hypotheses()
        state = select_rows(stepper, state, rows, len(logits), begin.device)
        token = beam.token.flatten().to(begin.device)


def length_divisor(length: Number, length_penalty: float) -> Number:
    """What a log-probability is divided by: ((5 + length) / 6)^length_penalty."""
    return ((5 + length) / 6) ** length_penalty


def coverage_term(coverage: Tensor) -> Tensor:
    """Σ log(min(coverage, 1)) over the source positions (N, S): 0 when all were attended to, else below."""
    return coverage.float().clamp(torch.finfo(torch.float32).tiny, 1).log().sum(1)


class _Beam:
    """The prefixes in the beam and the finished hypotheses. On the CPU in double precision; the tensors are small."""

    def __init__(self, config: BeamConfig, constraints: Constraints, observer: Observer | None = None) -> None:
        self.config, self.constraints, self.observer = config, constraints, observer
        count = len(constraints.limit)
        self.sentence = torch.arange(count)  # (B,) the sentences not yet done
        self.token = torch.empty(count, 1, dtype=torch.long)  # (B, W) last token of each prefix
        self.log_prob = torch.zeros(count, 1, dtype=torch.float64)  # (B, W) -inf: an empty slot
        self.node = torch.full((count, 1), Paths.ROOT)  # (B, W) the node of its last token
        empty = torch.full((count, config.best), -torch.inf, dtype=torch.float64)
        self.ended = Ranking(empty, torch.full_like(empty, Paths.ROOT, dtype=torch.long))
        self.paths = Paths()
        self.results: list[list[tuple[float, int]]] = [[] for _ in range(count)]

    def advance(self, log_probs: Tensor, penalty: Tensor, length: int) -> Tensor:
        """Write the token number `length`, given the step's log_probs (B·W, V) and coverage penalty (B·W,).

        Returns the rows of that step that the prefixes in the beam continue; none when every sentence is done.
        """
        width = self.node.shape[1]
        forced = self.constraints.forced_at(length - 1, self.sentence)
        size = 1 if forced is not None and bool((forced != FREE).all()) else self.config.size
        token_log_prob, token = self._candidates(log_probs, forced)
        choices = token.shape[2]

        total = (self.log_prob.unsqueeze(2) + token_log_prob).flatten(1)  # (B, W, C) -> (B, W·C)
        # No prefix has more than one candidate that ends, so the best `size` + W contain the best `size` that do not.
        # Stable: equal candidates keep their order, whatever else is in the batch.
        total, place = (ordered[:, : size + width] for ordered in total.sort(dim=1, descending=True, stable=True))
        token, token_log_prob = token.flatten(1).gather(1, place), token_log_prob.flatten(1).gather(1, place)
        parent = place // choices
        parent_node = self.node.gather(1, parent)
        score = total / length_divisor(float(length), self.config.length_penalty)
        score = score + penalty.view(-1, width).gather(1, parent)

        ends = token == self.constraints.eos
        accepted = ends & (torch.arange(ends.shape[1]) < size)
        if accepted.any():
            node = self.paths.add(parent_node, token, token_log_prob)
            self.ended = self.ended.merge(score.masked_fill(~accepted, -torch.inf), node)

        onward = ends.byte().argsort(dim=1, stable=True)[:, :size]
        self.log_prob = total.masked_fill(ends, -torch.inf).gather(1, onward)
        # An empty slot repeats the best prefix, so that the model never reads a token of probability 0.
        onward = onward.where(self.log_prob > -torch.inf, onward[:, :1])
        self.token = token.gather(1, onward)
        self.node = self.paths.add(parent_node.gather(1, onward), self.token, token_log_prob.gather(1, onward))
        if self.observer is not None:
            own = node.where(accepted, Paths.ROOT) if accepted.any() else torch.full_like(token, Paths.ROOT)
            own = self._numbered(own, onward)
            self.observer.considered(
                Considered(length, self.sentence, parent_node, own, token, token_log_prob, total, score, accepted)
            )
        rows = torch.arange(len(place)).unsqueeze(1) * width + parent.gather(1, onward)
        return rows[self._release(score.gather(1, onward), length)].flatten()

    def _numbered(self, node: Tensor, onward: Tensor) -> Tensor:
        """`node` (B, C) with the numbers of the candidates that stay in the beam; an empty slot changes nothing."""
        filled = self.log_prob > -torch.inf
        own = self.node.where(filled, self.node[:, :1]).where(filled[:, :1], node.gather(1, onward))
        return node.scatter(1, onward, own)

    def _candidates(self, log_probs: Tensor, forced: Tensor | None) -> tuple[Tensor, Tensor]:
        """The best next tokens of each prefix: log-probabilities and tokens, both (B, W, C)."""
        enough = self.config.size + 2  # `size` that stay, eos, and pad, which is never written
        value, token = largest(log_probs, enough)
        value = value.masked_fill(token == self.constraints.pad, -torch.inf)
        if forced is not None:
            forced = forced.repeat_interleave(self.node.shape[1]).to(token.device)
            fixed = forced != FREE
            value[fixed] = -torch.inf
            value[fixed, 0] = chosen_log_prob(log_probs[fixed], forced[fixed])
            token[fixed, 0] = forced[fixed]
        shape = (*self.node.shape, token.shape[1])
        return value.cpu().double().view(shape), token.cpu().view(shape)

    def _release(self, score: Tensor, length: int) -> Tensor:
        """Store the results of the sentences that are done and remove them; (B,) True for those that are not."""
        limit = self.constraints.limit[self.sentence]
        best_length = torch.full_like(limit, length + 1)
        if self.config.length_penalty > 0:
            further = self.config.further
            best_length = limit if further is None else limit.clamp(max=length + further)
        reachable = self.log_prob.amax(1) / length_divisor(best_length.double(), self.config.length_penalty)
        stay = (reachable > self.ended.score[:, -1]) & (length < limit)
        if stay.all():
            return stay
        unended = Ranking(score.masked_fill(self.log_prob == -torch.inf, -torch.inf), self.node)
        for sentence, first, then in zip(
            self.sentence[~stay].tolist(), self.ended.pairs(~stay), unended.pairs(~stay), strict=True
        ):
            self.results[sentence] = (first + then)[: self.config.best]
        self.sentence, self.token, self.log_prob = self.sentence[stay], self.token[stay], self.log_prob[stay]
        self.node, self.ended = self.node[stay], Ranking(self.ended.score[stay], self.ended.node[stay])
        return stay

    def hypotheses(self) -> list[list[Hypothesis]]:
        nodes = [node for result in self.results for _, node in result]
        paths = iter(self.paths.read(nodes))
        eos = self.constraints.eos
        return [[read_hypothesis(*next(paths), eos, score) for score, _ in result] for result in self.results]


class Ranking(NamedTuple):
    """Hypotheses per sentence and their scores: -inf where there is none."""

    score: Tensor  # (B, n)
    node: Tensor  # (B, n)

    def merge(self, score: Tensor, node: Tensor) -> "Ranking":
        """The best of these and some more (B, m), best first and no more of them than before."""
        score, node = torch.cat([self.score, score], 1), torch.cat([self.node, node], 1)
        score, order = score.sort(dim=1, descending=True, stable=True)
        kept = self.score.shape[1]
        return Ranking(score[:, :kept], node.gather(1, order[:, :kept]))

    def pairs(self, sentences: Tensor) -> list[list[tuple[float, int]]]:
        """(score, node), best first, of each of `sentences` (B,) that are True."""
        score, order = self.score[sentences].sort(dim=1, descending=True, stable=True)
        node = self.node[sentences].gather(1, order)
        return [
            [pair for pair in zip(*ranked, strict=True) if pair[0] > -torch.inf]
            for ranked in zip(score.tolist(), node.tolist(), strict=True)
        ]


class Paths:
    """Every token written, each with a pointer to the one before: a tree whose nodes are numbered in the order of creation."""

    ROOT = -1

    def __init__(self) -> None:
        self.size = 0
        self.parents: list[Tensor] = []
        self.tokens: list[Tensor] = []
        self.log_probs: list[Tensor] = []

    def add(self, parent: Tensor, token: Tensor, log_prob: Tensor) -> Tensor:
        """New nodes under `parent`; returns their numbers, in the same shape."""
        node = torch.arange(self.size, self.size + token.numel()).view_as(token)
        self.size += token.numel()
        self.parents.append(parent.flatten())
        self.tokens.append(token.flatten())
        self.log_probs.append(log_prob.flatten())
        return node

    def read(self, nodes: list[int]) -> list[tuple[list[int], list[float]]]:
        """The tokens and log-probabilities from the root to each node."""
        parents, tokens, log_probs = (
            torch.cat(column).tolist() for column in (self.parents, self.tokens, self.log_probs)
        )
        paths = []
        for node in nodes:
            path = []
            while node != self.ROOT:
                path.append(node)
                node = parents[node]
            path.reverse()
            paths.append(([tokens[step] for step in path], [log_probs[step] for step in path]))
        return paths
