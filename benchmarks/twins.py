"""A Hugging Face model with the weights of one of our trained runs, for comparisons in which only the program differs.

Post-norm models become a MarianMTModel, pre-norm ones a PegasusForConditionalGeneration: the same architectures under other names. Their
sinusoids stand in another order, so our table of positions is copied as well. `twin` proves that both give the same logits before it
hands the model over.
"""

from typing import Any

import torch
from torch import Tensor, nn

from saccade.data.text.batching import collate
from saccade.data.text.shards import TokenPairs
from saccade.data.text.tokenizer import BOS, EOS, PAD
from saccade.runs.run import Run

TOLERANCE = 1e-4
POSITIONS = 512


def twin(run: Run, sentences: list[str]) -> Any:
    """The Hugging Face model of a run's weights, whose logits for `sentences` are equal to ours."""
    _require_possible(run)
    theirs = _empty(run).eval()
    _copy(run.task.model, theirs)
    difference = _difference(run, theirs, sentences)
    if difference > TOLERANCE:
        raise SystemExit(f"the twin's logits differ by {difference:.2g}, more than {TOLERANCE}: not the same model")
    return theirs


def _require_possible(run: Run) -> None:
    model = run.recipe.model
    wanted = {"positions": ("sinusoidal",), "activation": ("relu", "gelu"), "tied": (True,), "shared": (True,)}
    for name, allowed in wanted.items():
        value = getattr(model, name, None)
        if value not in allowed:
            raise SystemExit(
                f"{run.path} has model.{name} = {value}; Hugging Face has no such twin: give a Transformer with {allowed}"
            )


def _empty(run: Run) -> Any:
    from transformers import MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

    model, sizes = run.recipe.model, run.recipe.model.sizes
    pre = model.norm == "pre"
    config = (PegasusConfig if pre else MarianConfig)(
        vocab_size=len(run.task.vocabularies.target),
        d_model=sizes.width,
        encoder_layers=sizes.layers,
        decoder_layers=sizes.layers,
        encoder_attention_heads=sizes.heads,
        decoder_attention_heads=sizes.heads,
        encoder_ffn_dim=sizes.feed_forward,
        decoder_ffn_dim=sizes.feed_forward,
        activation_function=model.activation,
        scale_embedding=True,
        max_position_embeddings=POSITIONS,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=BOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
    )
    return (PegasusForConditionalGeneration if pre else MarianMTModel)(config)


@torch.no_grad()
def _copy(ours: Any, theirs: Any) -> None:
    theirs.model.shared.weight.copy_(ours.target_embedding.weight)
    theirs.final_logits_bias.copy_(ours.output.bias[None])
    for stack, other, positions in (
        (ours.encoder, theirs.model.encoder, ours.source_positions),
        (ours.decoder, theirs.model.decoder, ours.target_positions),
    ):
        other.embed_positions.weight.copy_(positions(POSITIONS))
        if isinstance(stack.norm, nn.LayerNorm):
            other.layer_norm.load_state_dict(stack.norm.state_dict())
        for mine, layer in zip(stack.layers, other.layers, strict=True):
            _copy_attention(mine.self_attention, layer.self_attn)
            layer.self_attn_layer_norm.load_state_dict(mine.around_self_attention.norm.state_dict())
            if hasattr(mine, "cross_attention"):
                _copy_attention(mine.cross_attention, layer.encoder_attn)
                layer.encoder_attn_layer_norm.load_state_dict(mine.around_cross_attention.norm.state_dict())
            layer.fc1.load_state_dict(mine.feed_forward.expand.state_dict())
            layer.fc2.load_state_dict(mine.feed_forward.contract.state_dict())
            layer.final_layer_norm.load_state_dict(mine.around_feed_forward.norm.state_dict())


def _copy_attention(mine: Any, other: Any) -> None:
    for our_name, their_name in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("output", "out_proj")):
        getattr(other, their_name).load_state_dict(getattr(mine, our_name).state_dict())


@torch.no_grad()
def _difference(run: Run, theirs: Any, sentences: list[str]) -> float:
    """The largest difference of the logits over all words that are not padding; each sentence stands in for its translation."""
    tokens = run.task.encode(sentences)
    batch = collate(TokenPairs.from_lists([(each, each) for each in tokens]), range(len(tokens)))
    ours = run.task.model
    mine: Tensor = ours.output(ours.read(ours.encode(batch.source, batch.source_lengths), batch.target_in)[0])
    seen = (batch.source != PAD).long()
    other: Tensor = theirs(
        input_ids=batch.source, attention_mask=seen, decoder_input_ids=batch.target_in, use_cache=False
    ).logits
    return float((mine - other)[batch.target_out != PAD].abs().max())
