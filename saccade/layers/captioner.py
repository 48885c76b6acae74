"""What all captioners share: an image as a row of cells to look at, and words.

    a_i = norm(feature_i)          the annotation of cell i of the encoder's grid

Encoders differ in the scale of what they give, and so do the cells of one image, so each cell is normalised.

Axis legend: B batch, K cells, T words, D features, E embedding size, V vocabulary.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from saccade.data.image_shape import ImageShape
from saccade.data.text.tokenizer import UNK
from saccade.layers.dropout import Dropout
from saccade.layers.image_encoders import EncoderConfig, encoder


@dataclass(frozen=True)
class Encoded:
    """A batch of images, read."""

    annotations: Tensor  # (B, K, D)
    visible: Tensor  # (B, 1, K), all of them


class Reading(NamedTuple):
    """What a captioner computes for reference captions."""

    readouts: Tensor  # (B, T, E), before the output layer
    log_prob: Tensor  # (B, T) of what attention sampled, or a single 0
    penalty: Tensor  # what the model minimises beside the words, summed over the captions; 0 where there is nothing


class Captioner(nn.Module):
    """The encoder, its annotations and the words around a decoder."""

    def __init__(
        self, encoding: EncoderConfig, image: ImageShape, embedding: int, words: int, dropout: float, tied: bool
    ):
        super().__init__()
        self.encoder = encoder(encoding, image)
        self.norm = nn.LayerNorm(self.encoder.size)
        self.target_embedding = nn.Embedding(words, embedding, padding_idx=0)
        self.output = nn.Linear(embedding, words)
        self.dropout = Dropout(dropout)
        nn.init.normal_(self.target_embedding.weight, std=embedding**-0.5)
        with torch.no_grad():
            self.target_embedding.weight[0].zero_()
        if tied:
            self.output.weight = self.target_embedding.weight

    def features(self, images: Tensor) -> Tensor:
        """Images (B, 3, rows, columns) as the encoder sees them: (B, K, D)."""
        return self.encoder(images)

    def encode(self, features: Tensor) -> Encoded:
        annotations = self.norm(features.to(self.norm.weight.dtype))
        return Encoded(annotations, annotations.new_ones(len(features), 1, features.shape[1], dtype=torch.bool))

    def word_logits(self, readout: Tensor) -> Tensor:
        """Scores of the next word (B, V). A caption is for people, so "a word I do not know" is never chosen."""
        logits = self.output(readout)
        unknown = torch.arange(logits.shape[-1], device=logits.device) == UNK
        return logits.masked_fill(unknown, -math.inf)
