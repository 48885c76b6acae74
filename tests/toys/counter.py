"""A model for "how many": one query looks at the letters of a text and counts those it looks at."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from saccade.attention import Additive, Attend, padding
from saccade.config.recipe import Config as BaseConfig
from saccade.models.shapes import Shapes
from saccade.views.axes import Axis


class Config(BaseConfig):
    serves: ClassVar[tuple[str, ...]] = ("counting",)

    width: int = Field(8, ge=1)


class Counter(nn.Module):
    def __init__(self, config: Config, letters: int):
        super().__init__()
        self.embedding = nn.Embedding(letters, config.width)
        self.query = nn.Parameter(torch.zeros(1, config.width))
        self.attention = Attend(Additive(config.width, config.width))
        self.output = nn.Linear(config.width, 1)

    def forward(self, letters: Tensor, lengths: Tensor) -> Tensor:
        keys = self.embedding(letters)  # (B, K, D)
        query = self.query.expand(len(letters), 1, -1)
        context = self.attention(query, keys, keys, visible=padding(lengths, letters.shape[1])).context
        share = self.output(context).squeeze(-1)  # of the letters (B, 1)
        return (share * lengths[:, None]).squeeze(-1)  # (B,)

    def attention_axes(self, name: str, axes: Mapping[str, Axis]) -> tuple[Axis, Axis]:
        return axes["answer"], axes["letters"]


def build(config: Config, shapes: Shapes) -> Counter:
    return Counter(config, shapes.source_words)
