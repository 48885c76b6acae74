"""What the tests run over: everything discovered, made at a small size, and the kinds of masks a person gives."""

import inspect

import torch
from hypothesis import settings

from saccade.attention import CAUSAL, Attend, Band, Route, all_scores, all_selections, record_attention, routes
from saccade.attention.routes import Lookup

SCORES = sorted(all_scores())
SELECTIONS = sorted(all_selections())
HEADS = [None, 2]
EXACT = {"rtol": 1e-10, "atol": 1e-10}
FEW = settings(max_examples=4, deadline=None, derandomize=True)
SOME = settings(max_examples=60, deadline=None, derandomize=True)

# These look at where a key stands, not only at what it is, so moving the keys is meant to change what they do.
BY_POSITION = {"location", "local-m", "local-p"}


def make_score(name, size=4, heads=None):
    return all_scores()[name](size, size, heads=heads)


def make_selection(name, size=4, heads=None, **options):
    cls = all_selections()[name]
    accepted = inspect.signature(cls).parameters
    given = {"query_size": size, "heads": heads, "reach": 2, **options}
    return cls(**{key: value for key, value in given.items() if key in accepted})


def make_attend(score, selection="soft", size=4, heads=None, **options):
    return Attend(make_score(score, size, heads), make_selection(selection, size, heads), **options)


def draw(batch, heads, length, size=4, dtype=torch.float64):
    return torch.randn(*leading(batch, heads), length, size, dtype=dtype)


def leading(batch, heads):
    return (batch,) if heads is None else (batch, heads)


def weights_of(attend, *inputs, **how):
    with record_attention(attend) as maps:
        attend(*inputs, **how)
    (weights,) = maps[""]
    return weights


def fits(route, attend, query, key, value, **how):
    lookup = Lookup(query, attend.score.prepare(key), value, **how)
    try:
        routes.require_fit(route, attend.score, attend.selection, attend.dropout * attend.training, lookup)
    except ValueError:
        return False
    return True


def fitting_routes(attend, *inputs, **how):
    return [route for route in Route if fits(route, attend, *inputs, **how)]


def some_visible(*shape):
    """A mask in which every row sees something."""
    visible = torch.rand(shape) < 0.6
    visible[..., 0] |= ~visible.any(-1)
    return visible


def gradients(output, inputs, module):
    """Of a fixed random mixture of the outputs, by each input and parameter; one that is not used has gradient 0."""
    mixture = torch.sin(torch.arange(output.numel(), dtype=output.dtype)).reshape(output.shape)
    wanted = [*inputs, *module.parameters()]
    found = torch.autograd.grad((output * mixture).sum(), wanted, allow_unused=True)
    return [
        torch.zeros_like(tensor) if gradient is None else gradient
        for tensor, gradient in zip(wanted, found, strict=True)
    ]


def _padding(batch, heads, queries, keys):
    lengths = torch.randint(1, keys + 1, (batch,))
    return (torch.arange(keys) < lengths[:, None]).view(batch, *[1] * (1 if heads is None else 2), keys)


def _one_row_sees_nothing(batch, heads, queries, keys):
    visible = some_visible(*leading(batch, heads), queries, keys)
    visible[0, ..., queries // 2, :] = False
    visible[-1] = False
    return visible


# name -> (batch, heads, queries, keys) -> how `Attend` is called
MASKS = {
    "no mask": lambda b, h, q, k: {},
    "padding": lambda b, h, q, k: {"visible": _padding(b, h, q, k)},
    "causal": lambda b, h, q, k: {"band": CAUSAL},
    "window": lambda b, h, q, k: {"band": Band(before=3, after=2)},
    "causal window": lambda b, h, q, k: {"band": Band(before=5, after=0)},
    "window of one": lambda b, h, q, k: {"band": Band(before=0, after=0)},
    "only the past is limited": lambda b, h, q, k: {"band": Band(before=2)},
    "window and padding": lambda b, h, q, k: {"band": Band(before=2, after=4), "visible": _padding(b, h, q, k)},
    "causal and padding": lambda b, h, q, k: {"band": CAUSAL, "visible": _padding(b, h, q, k)},
    "any mask": lambda b, h, q, k: {"visible": some_visible(*leading(b, h), q, k)},
    "any mask and window": lambda b, h, q, k: {
        "visible": some_visible(b, *[1] * (h is not None), q, k),
        "band": Band(4, 4),
    },
    "a row that sees nothing": lambda b, h, q, k: {"visible": _one_row_sees_nothing(b, h, q, k)},
    "a row that sees nothing, and bias": lambda b, h, q, k: {
        "visible": _one_row_sees_nothing(b, h, q, k),
        "bias": torch.randn(q, k, dtype=torch.float64),
    },
    "nothing visible in a window": lambda b, h, q, k: {
        "visible": torch.zeros(1, k, dtype=torch.bool),
        "band": Band(1, 1),
    },
    "keys hidden for all": lambda b, h, q, k: {"visible": some_visible(k)},
    "keys hidden for all, with a query axis": lambda b, h, q, k: {"visible": some_visible(1, k), "band": Band(2, 2)},
    "examples hidden": lambda b, h, q, k: {
        "visible": (torch.arange(b) % 2 == 0).view(b, *[1] * (2 if h is None else 3)),
        "band": Band(2, 2),
    },
    "queries hidden": lambda b, h, q, k: {"visible": torch.rand(q, 1) < 0.5},
    "bias": lambda b, h, q, k: {"bias": torch.randn(*leading(b, h), q, k, dtype=torch.float64)},
    "bias by head and causal": lambda b, h, q, k: {
        "bias": torch.randn(h or 1, q, k, dtype=torch.float64),
        "band": CAUSAL,
    },
    "bias by key": lambda b, h, q, k: {"bias": torch.randn(k, dtype=torch.float64), "visible": _padding(b, h, q, k)},
    "later queries": lambda b, h, q, k: {"band": CAUSAL, "first_query": 3},
    "later queries in a window": lambda b, h, q, k: {"band": Band(3, 1), "first_query": 2},
}
