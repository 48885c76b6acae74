"""Transformers of several libraries at the same sizes, each with one method `update(batch)`: an update of its weights.

Ours runs through the training loop that users run. A peer runs in the loop that its users would write: forward, cross-entropy with
label smoothing over the words that are not padding, backward, clip, fused AdamW. Where a peer would drop out attention weights as well,
that is turned off, as it is off in ours: it would cost the peer its fused kernel. All share one embedding for source, target and output.
"""

import math
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.pairs import LONGEST, VOCABULARY
from saccade.attention import Sinusoidal
from saccade.config import recipe as configs
from saccade.data.text.batching import PairBatch
from saccade.data.text.tokenizer import BOS, EOS, PAD
from saccade.models.transformer import SIZES, Size
from saccade.tasks.translation.task import TranslationTask
from saccade.training.allocator import keep_freed_memory
from saccade.training.checkpoint import RunDirectory
from saccade.training.loop import Training
from saccade.training.reporter import Reporter
from saccade.training.world import World

DROPOUT, SMOOTHING, RATE, CLIP = 0.1, 0.1, 1e-4, 1.0


class Trainer(Protocol):
    def update(self, batch: PairBatch) -> None: ...


class PreparedTask(TranslationTask):
    """The translation task without a corpus: its batches are given."""

    def batch(self, work: PairBatch) -> PairBatch:  # type: ignore[override]
        return work


class OurTraining:
    """An update of saccade's own loop, in a process whose allocator keeps freed memory, as that of `saccade train` does."""

    def __init__(self, model: str, *settings: str):
        keep_freed_memory()
        changes = [
            "data.joint=true",
            f"model.name={model}",
            f"model.dropout={DROPOUT}",
            *[f"model.{setting}" for setting in settings],
            f"objective.label_smoothing={SMOOTHING}",
            "train.precision=fp32",
            f"train.learning_rate={RATE}",
            f"train.max_grad_norm={CLIP}",
        ]
        recipe = configs.load("phrasebook-transformer", changes)
        words = range(VOCABULARY)
        corpus: Any = SimpleNamespace(vocabularies=SimpleNamespace(source=words, target=words))
        task = PreparedTask(recipe, corpus)
        self.model = task.model
        self.training = Training(
            task, recipe.train, RunDirectory(Path(tempfile.gettempdir())), Reporter(quiet=True), World()
        )

    def update(self, batch: PairBatch) -> None:
        self.training._update([batch])


class PlainTraining:
    """The loop that everybody writes."""

    def __init__(self, model: nn.Module, loss: Callable[[PairBatch], Tensor]):
        self.model = model.train()
        self.loss = loss
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, fused=True
        )

    def update(self, batch: PairBatch) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(batch).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()


def smoothed(logits: Tensor, batch: PairBatch) -> Tensor:
    return F.cross_entropy(
        logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD, label_smoothing=SMOOTHING
    )


def ours(size: Size) -> OurTraining:
    sizes = (f"{name}={getattr(size, name)}" for name in ("layers", "width", "heads", "feed_forward"))
    return OurTraining("transformer", *sizes, "shared=true")


class TorchTranslator(nn.Module):
    """torch.nn.Transformer between an embedding and itself."""

    def __init__(self, size: Size):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, size.width, padding_idx=PAD)
        self.dropout = nn.Dropout(DROPOUT)
        self.register_buffer("positions", Sinusoidal(size.width)(LONGEST + 1))
        self.transformer = nn.Transformer(
            size.width,
            size.heads,
            size.layers,
            size.layers,
            size.feed_forward,
            DROPOUT,
            batch_first=True,
            norm_first=True,
        )
        for module in self.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
        self.output = nn.Linear(size.width, VOCABULARY)
        self.output.weight = self.embedding.weight

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        hidden = source == PAD
        future = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        read = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=future,
            src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden,
            tgt_is_causal=True,
        )
        return self.output(read)

    def embed(self, words: Tensor) -> Tensor:
        embedded = self.embedding(words) * math.sqrt(self.embedding.embedding_dim)
        return self.dropout(embedded + self.positions[: words.shape[1]])


def torch_nn(size: Size) -> PlainTraining:
    model = TorchTranslator(size)
    return PlainTraining(model, lambda batch: smoothed(model(batch.source, batch.target_in), batch))


def hugging_face(size: Size) -> PlainTraining:
    model = marian(size, VOCABULARY, DROPOUT)

    def loss(batch: PairBatch) -> Tensor:
        seen = (batch.source != PAD).long()
        output = model(input_ids=batch.source, attention_mask=seen, decoder_input_ids=batch.target_in, use_cache=False)
        return smoothed(output.logits, batch)

    return PlainTraining(model, loss)


def marian(size: Size, vocabulary: int, dropout: float, hidden_dropout: float | None = None, longest: int = 256) -> Any:
    """Hugging Face's MarianMTModel with our special tokens; hidden units are dropped as the rest is unless given otherwise."""
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=vocabulary,
        d_model=size.width,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        encoder_ffn_dim=size.feed_forward,
        decoder_ffn_dim=size.feed_forward,
        activation_function="relu",
        dropout=dropout,
        activation_dropout=dropout if hidden_dropout is None else hidden_dropout,
        attention_dropout=0.0,
        scale_embedding=True,
        max_position_embeddings=longest,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=BOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        share_encoder_decoder_embeddings=True,
    )
    return MarianMTModel(config)


def x_transformers(size: Size) -> PlainTraining:
    from x_transformers import Decoder, Encoder, TransformerWrapper

    layers: dict[str, Any] = {
        "dim": size.width,
        "depth": size.layers,
        "heads": size.heads,
        "attn_dim_head": size.width // size.heads,
        "attn_flash": True,
        "attn_sublayer_dropout": DROPOUT,
        "ff_mult": size.feed_forward / size.width,
        "ff_dropout": DROPOUT,
        "ff_sublayer_dropout": DROPOUT,
        "ff_custom_activation": nn.ReLU(),
    }
    words: dict[str, Any] = {"num_tokens": VOCABULARY, "max_seq_len": LONGEST + 1, "emb_dropout": DROPOUT}
    encoder = TransformerWrapper(**words, attn_layers=Encoder(**layers), return_only_embed=True)
    decoder = TransformerWrapper(**words, attn_layers=Decoder(**layers, cross_attend=True), tie_embedding=True)
    decoder.token_emb = encoder.token_emb

    def loss(batch: PairBatch) -> Tensor:
        seen = batch.source != PAD
        encoded = encoder(batch.source, mask=seen, return_embeddings=True)
        return smoothed(decoder(batch.target_in, context=encoded, context_mask=seen), batch)

    return PlainTraining(nn.ModuleDict({"encoder": encoder, "decoder": decoder}), loss)


def joeynmt(size: Size) -> PlainTraining:
    part = {
        "type": "transformer",
        "num_layers": size.layers,
        "num_heads": size.heads,
        "hidden_size": size.width,
        "ff_size": size.feed_forward,
        "dropout": DROPOUT,
        "layer_norm": "pre",
        "embeddings": {"embedding_dim": size.width, "scale": True, "dropout": DROPOUT},
    }
    return joeynmt_training(part, part)


def joeynmt_training(encoder: dict[str, Any], decoder: dict[str, Any], shared: bool = True) -> PlainTraining:
    """JoeyNMT's model with its own loss. It wants special tokens of other numbers, and the longest source first."""
    import logging

    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    logging.disable(logging.INFO)
    special = {"unk": 0, "pad": 1, "bos": 2, "eos": 3}
    marks: dict[str, Any] = {f"{name}_token": f"<{name}>" for name in special}
    marks |= {f"{name}_id": number for name, number in special.items()}
    words = [str(number) for number in range(len(special), VOCABULARY)]
    vocabulary = Vocabulary(words, SimpleNamespace(**marks, lang_tags=[], sep_token=None, sep_id=None))
    shape = {"encoder": encoder, "decoder": decoder, "tied_embeddings": shared, "tied_softmax": True}
    model = build_model(shape, vocabulary, vocabulary)
    model.loss_function = ("crossentropy", SMOOTHING)
    for module in model.modules():
        if type(module).__name__ == "MultiHeadedAttention":
            module.dropout.p = 0.0
    theirs = torch.arange(VOCABULARY)
    theirs[torch.tensor([PAD, BOS, EOS])] = torch.tensor([special["pad"], special["bos"], special["eos"]])

    def loss(batch: PairBatch) -> Tensor:
        lengths, order = batch.source_lengths.sort(descending=True)
        source, target = batch.source[order], batch.target_out[order]
        total, *_ = model(
            return_type="loss",
            src=theirs[source],
            src_length=lengths,
            src_mask=(source != PAD)[:, None],
            trg_input=theirs[batch.target_in[order]],
            trg=theirs[target],
            trg_mask=(target != PAD)[:, None],
        )
        return total / batch.target_lengths.sum()

    return PlainTraining(model, loss)


TRANSFORMERS: dict[str, Callable[[Size], Trainer]] = {
    "saccade": ours,
    "torch.nn": torch_nn,
    "Hugging Face": hugging_face,
    "x-transformers": x_transformers,
    "JoeyNMT": joeynmt,
}


PACKAGES = {"Hugging Face": "transformers", "x-transformers": "x_transformers", "JoeyNMT": "joeynmt"}


def installed(names: Iterable[str]) -> list[str]:
    """Those of the contenders that can run here; the others are named, so that nobody takes a table for whole that is not."""
    missing = [name for name in names if name in PACKAGES and find_spec(PACKAGES[name]) is None]
    if missing:
        print(f"left out, because not installed: {', '.join(missing)} (see the extra `peers`)", file=sys.stderr)
    return [name for name in names if name not in missing]


def build(name: str, size: str) -> Trainer:
    """Drawn with the same seed whoever it is."""
    torch.manual_seed(1)
    return TRANSFORMERS[name](SIZES[size])
