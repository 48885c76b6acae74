"""Looking inside: attention maps between axes as pictures, pages and data."""

from saccade.views.axes import Axis, Dates, Grid, Objects, Scales, Steps, Tokens, Variables
from saccade.views.maps import AttentionMap, save
from saccade.views.merging import merge_words
from saccade.views.rollout import rollout
from saccade.views.view import View, Word

__all__ = [
    "AttentionMap",
    "Axis",
    "Dates",
    "Grid",
    "Objects",
    "Scales",
    "Steps",
    "Tokens",
    "Variables",
    "View",
    "Word",
    "merge_words",
    "rollout",
    "save",
]
