"""Looking inside: attention maps as pictures, pages and data; rollout; word alignments."""

from saccade.explain.alignment import alignment_error_rate, corpus_alignment_error_rate, hard_alignment
from saccade.explain.maps import AttentionMap, save
from saccade.explain.merging import merge_words
from saccade.explain.rollout import rollout

__all__ = [
    "AttentionMap",
    "alignment_error_rate",
    "corpus_alignment_error_rate",
    "hard_alignment",
    "merge_words",
    "rollout",
    "save",
]
