"""The mechanism: score, select, sum. Imports torch and, in routes.py alone, saccade.kernels; every module works on its own."""

from saccade.attention.attend import Attend, Attended
from saccade.attention.local2d import LocalSelfAttention2d
from saccade.attention.memory import Memory
from saccade.attention.multihead import MultiHead
from saccade.attention.packing import Packed, Packing
from saccade.attention.positions import (
    Around2d,
    CalendarDay,
    Learned,
    Learned2d,
    RelativeBias,
    Rotary,
    Sinusoidal,
    Sinusoidal2d,
)
from saccade.attention.recording import Recording, record_attention
from saccade.attention.routes import Route
from saccade.attention.scores import (
    Additive,
    Concat,
    Cosine,
    Dot,
    General,
    Location,
    Perceptron,
    ScaledDot,
    Score,
    Trilinear,
    all_scores,
)
from saccade.attention.selection import (
    Alignment,
    Hard,
    LocalMonotonic,
    LocalPredictive,
    Selection,
    Soft,
    StraightThrough,
    all_selections,
)
from saccade.attention.visibility import CAUSAL, Band, padding

__all__ = [
    "CAUSAL",
    "Additive",
    "Alignment",
    "Around2d",
    "Attend",
    "Attended",
    "Band",
    "CalendarDay",
    "Concat",
    "Cosine",
    "Dot",
    "General",
    "Hard",
    "Learned",
    "Learned2d",
    "LocalMonotonic",
    "LocalPredictive",
    "LocalSelfAttention2d",
    "Location",
    "Memory",
    "MultiHead",
    "Packed",
    "Packing",
    "Perceptron",
    "Recording",
    "RelativeBias",
    "Rotary",
    "Route",
    "ScaledDot",
    "Score",
    "Selection",
    "Sinusoidal",
    "Sinusoidal2d",
    "Soft",
    "StraightThrough",
    "Trilinear",
    "all_scores",
    "all_selections",
    "padding",
    "record_attention",
]
