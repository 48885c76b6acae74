"""One sentence's beam search, with somebody watching it, or with the model's attention changed while it writes."""

from typing import TYPE_CHECKING, Any

import torch

from saccade.data.text.tokenizer import BOS, EOS, PAD
from saccade.decoding import BeamConfig, Hypothesis, beam_search, max_target_length
from saccade.decoding.beam import Observer
from saccade.tasks.writing import CoverageStepper, DecodeConfig, as_prefix

if TYPE_CHECKING:
    from saccade.tasks.translation.task import TranslationTask


def room(task: "TranslationTask", source: list[int]) -> int:
    """The most tokens a translation of this source may have, as `predict` allows them."""
    return min(max_target_length(len(source) + 1), int(task.recipe.decode.max_length))


def stepper_for(task: "TranslationTask", config: DecodeConfig) -> Any:
    return CoverageStepper(task.model) if config.coverage_penalty else task.stepper


@torch.no_grad()
def search(
    task: "TranslationTask",
    source: list[int],
    config: DecodeConfig,
    forced: list[int],
    observer: Observer | None = None,
    stepper: Any = None,
    memory: Any = None,
) -> list[Hypothesis]:
    """What `predict` finds with a beam, best first. `stepper` and `memory` stand in for the model's own, if given."""
    task.model.eval()
    size = config.beam if config.search == "beam" else 1
    beam = BeamConfig(max(size, config.best), config.best, config.length_penalty, config.coverage_penalty)
    return beam_search(
        stepper_for(task, config) if stepper is None else stepper,
        task.encoded([source])[0] if memory is None else memory,
        torch.tensor([BOS], device=task.device),
        beam,
        eos=EOS,
        pad=PAD,
        max_length=room(task, source),
        prefix=as_prefix([forced]),
        observer=observer,
    )[0]
