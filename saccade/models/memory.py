"""End-to-end memory networks (Sukhbaatar et al. 2015, https://arxiv.org/abs/1503.08895), which answer by words of the story: a memory of
sentences, looked at once per hop, each time with what was found before.

    m_s = Σ_j l_j ∘ A x_sj + T_A(s),  c_s = Σ_j l_j ∘ C x_sj + T_C(s)        word j of sentence s; T counts from the end of the story
    u_1 = Σ_j l_j ∘ B q_j
    a^k = softmax_s(m_s · u_k)        u_(k+1) = H u_k + Σ_s a^k_s c_s
    p(word t is the answer) ∝ a^K_s(t) exp(w x_t · u_(K+1))                   s(t) the sentence of the word

l_j = (1 - j/J) - (d/D)(1 - 2j/J) says where in its sentence of J words a word stands. A of hop k + 1 is C
of hop k. The last line is a pointer (Kadlec 2016), in place of a softmax over a vocabulary: an answer stands in the story, and in a
sentence that was looked at.

Axis legend: B batch, Q question, C words of the story, S sentences, D features, U different words.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.attention import Attend, Dot
from saccade.config.recipe import Config as BaseConfig
from saccade.data.questions.batching import QuestionBatch
from saccade.layers.dropout import Dropout
from saccade.models.shapes import Shapes
from saccade.views.axes import Axis, Tokens

_FAINTEST = 1e-6  # a sentence that is not looked at keeps this share, so that gradients stay finite


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("spans",)

    hidden: int = Field(64, ge=2)
    hops: int = Field(3, ge=1, le=10)
    sentences: int = Field(128, ge=1, description="whose age is told apart; all that are older are alike")
    dropout: float = Field(0.0, ge=0, lt=1)


class Memory(nn.Module):
    def __init__(self, config: Config, shapes: Shapes):
        super().__init__()
        size, hops = config.hidden, config.hops
        self.oldest = config.sentences - 1
        self.embeds = nn.ModuleList(nn.Embedding(shapes.source_words, size, padding_idx=0) for _ in range(hops + 1))
        self.ages = nn.ModuleList(nn.Embedding(config.sentences, size) for _ in range(hops + 1))
        self.hops = nn.ModuleList(Attend(Dot(size)) for _ in range(hops))
        self.between = nn.Linear(size, size, bias=False)
        self.begins, self.ends = nn.Linear(size, size), nn.Linear(size, size)
        self.no_answer = nn.Linear(size, 2)
        self.dropout = Dropout(config.dropout)
        for embedding in (*self.embeds, *self.ages):
            nn.init.normal_(embedding.weight, std=0.1)
        nn.init.eye_(self.between.weight)

    def stack(self) -> list[nn.Module]:
        """The parts from the words up to the head, for learning rates that fall from part to part."""
        words = nn.ModuleList([*self.embeds, *self.ages])
        return [words, nn.ModuleList([self.between]), nn.ModuleList(self.output_layers())]

    def output_layers(self) -> list[nn.Module]:
        return [self.begins, self.ends, self.no_answer]

    def forward(self, batch: QuestionBatch) -> tuple[Tensor, Tensor]:
        """Logits of the first and the last word of the answer, (B, 1 + C) each; position 0 is "no answer"."""
        inside = torch.arange(batch.context.shape[1], device=batch.context.device) < batch.context_lengths[:, None]
        of_sentence = F.one_hot(batch.sentences).transpose(1, 2) * inside[:, None]  # (B, S, C)
        lengths = of_sentence.sum(-1)  # (B, S)
        visible = (lengths > 0)[:, None]  # (B, 1, S)
        order = _order(of_sentence, lengths, self.between.in_features)
        count = visible.sum(-1)  # (B, 1)
        age = (count - 1 - torch.arange(lengths.shape[1], device=count.device)).clamp(0, self.oldest)

        def memory(number: int) -> Tensor:
            words = self.embeds[number](batch.forms)[batch.context]  # (B, C, D)
            return of_sentence.float() @ (words * order) + self.ages[number](age)  # (B, S, D)

        u = self._question(batch)[:, None]  # (B, 1, D)
        keys = self.dropout(memory(0))
        for number, hop in enumerate(self.hops):
            assert isinstance(hop, Attend)
            scores = hop.score(u, keys).masked_fill(~visible, -torch.inf)  # (B, 1, S)
            values = self.dropout(memory(number + 1))
            u = self.between(u) + hop(u, keys, values, visible=visible).context
            keys = values
        looked = scores.softmax(-1).clamp_min(_FAINTEST).log()[:, 0]  # (B, S) of the last hop
        return self._pointers(u, batch, looked.gather(1, batch.sentences), inside)

    def _pointers(self, u: Tensor, batch: QuestionBatch, looked: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        """u (B, 1, D), and the log-attention on the sentence of each word (B, C)."""
        words = self.embeds[-1](batch.forms)  # (U, D)
        nothing = self.no_answer(u[:, 0])  # (B, 2)
        sides = []
        for number, side in enumerate((self.begins, self.ends)):
            fits = (u @ side(words).t())[:, 0].gather(1, batch.context)  # (B, U) at the words of each story -> (B, C)
            logits = (fits + looked).masked_fill(~inside, -torch.inf)
            sides.append(torch.cat((nothing[:, number : number + 1], logits), dim=1))
        return sides[0], sides[1]

    def _question(self, batch: QuestionBatch) -> Tensor:
        place = torch.arange(batch.question.shape[1], device=batch.question.device)
        inside = place < batch.question_lengths[:, None]  # (B, Q)
        order = _order(inside[:, None], batch.question_lengths[:, None], self.between.in_features)
        return (self.embeds[0](batch.forms)[batch.question] * order * inside[..., None]).sum(1)

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        """`name` is "hops.K"."""
        return Tokens((f"hop {int(name.rpartition('.')[2]) + 1}",)), axes["sentences"]


def _order(of_sentence: Tensor, lengths: Tensor, size: int) -> Tensor:
    """l (B, C, D) of each word, given which sentence it belongs to (B, S, C) and the lengths of sentences (B, S)."""
    place = (of_sentence.cumsum(-1) * of_sentence).sum(1)  # (B, C) from 1
    share = place / (of_sentence * lengths[..., None]).sum(1).clamp_min(1)  # j/J
    feature = torch.arange(1, size + 1, device=share.device) / size  # d/D
    return (1 - share)[..., None] - feature * (1 - 2 * share)[..., None]


def build(config: Config, shapes: Shapes) -> Memory:
    return Memory(config, shapes)
