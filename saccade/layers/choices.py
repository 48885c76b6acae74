"""What a recipe may name: every score and selection there is."""

from typing import TYPE_CHECKING, Literal

from saccade.attention import all_scores, all_selections

if TYPE_CHECKING:
    ScoreName = str
    SelectionName = str
    AttentionName = str
else:  # whatever there is: a new score or selection is a choice without being named here
    ScoreName = Literal[tuple(all_scores())]
    SelectionName = Literal[tuple(all_selections())]
    _OR_NONE = ("none", *all_scores())
    AttentionName = Literal[_OR_NONE]
