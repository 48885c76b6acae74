"""Looking inside: attention maps between axes as pictures, pages and data."""

from saccade.views.axes import Axis, Grid, Steps, Tokens
from saccade.views.maps import AttentionMap, save
from saccade.views.merging import merge_words
from saccade.views.rollout import rollout

__all__ = ["AttentionMap", "Axis", "Grid", "Steps", "Tokens", "merge_words", "rollout", "save"]
