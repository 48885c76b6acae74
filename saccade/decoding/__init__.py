"""From single decoder steps to whole outputs: greedy search, beam search, sampling, writing on, and scoring of targets.

All of them run over one `Stepper` protocol and many sentences at once. The outputs come in the order of the
sentences, and none of them depends on what else is in the batch.

    begin = torch.full((sentences,), bos)
    hypotheses = beam_search(decoder, memory, begin, BeamConfig(size=5, length_penalty=0.6), eos=eos, pad=pad, max_length=limits)
    hypotheses[0][0].tokens
"""

from saccade.decoding.beam import BeamConfig, beam_search
from saccade.decoding.constraints import Prefix, max_target_length
from saccade.decoding.continuing import Continuing, continued
from saccade.decoding.greedy import greedy_search
from saccade.decoding.hypothesis import Hypothesis
from saccade.decoding.sampling import SamplingConfig, sample
from saccade.decoding.scoring import score_targets
from saccade.decoding.stepper import Stepper, TracksCoverage

__all__ = [
    "BeamConfig",
    "Continuing",
    "Hypothesis",
    "Prefix",
    "SamplingConfig",
    "Stepper",
    "TracksCoverage",
    "beam_search",
    "continued",
    "greedy_search",
    "max_target_length",
    "sample",
    "score_targets",
]
