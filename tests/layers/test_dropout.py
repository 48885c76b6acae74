"""Dropout: how much is dropped, where, and what training may change about it."""

import pytest
import torch

from saccade.attention import MultiHead
from saccade.kernels.dropout import draw_kept
from saccade.layers.dropout import Dropout, set_share


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_a_share_of_all_places_is_dropped_and_the_mean_stays(rate: float) -> None:
    dropout, x = Dropout(rate), torch.ones(1001, 333, requires_grad=True)
    dropped = dropout(x)
    assert dropped.mean().item() == pytest.approx(1, abs=0.06)
    kept = (dropped > 0).float()
    assert kept.mean().item() == pytest.approx(1 - rate, abs=0.004)
    assert len(dropped.unique()) == 2
    spread = 4 * (rate * (1 - rate) / 333) ** 0.5 + 0.01  # no row and no column is dropped more often than others
    assert (kept.mean(1) - kept.mean()).abs().mean() < spread
    assert (kept.mean(0) - kept.mean()).abs().mean() < spread
    torch.testing.assert_close(torch.autograd.grad(dropped.sum(), x)[0], dropped)
    assert not torch.equal(dropout(x), dropped)


@pytest.mark.parametrize("rate", [0.001, 0.999])
def test_extreme_rates_keep_their_share(rate: float) -> None:
    kept, scale = draw_kept(torch.empty(1000, 333), rate)
    assert scale * kept.mean().item() == pytest.approx(1, abs=0.06)
    assert kept.mean().item() == pytest.approx(1 - rate, abs=0.004)


def test_the_seed_decides_what_is_dropped() -> None:
    dropout, x = Dropout(0.3), torch.randn(7, 9)
    torch.manual_seed(2)
    first = dropout(x)
    torch.manual_seed(2)
    assert torch.equal(dropout(x), first)


def test_nothing_is_dropped_in_eval_mode_or_at_rate_zero() -> None:
    x = torch.randn(7, 9)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_a_share_of_the_rate_applies_to_every_dropout_of_a_model() -> None:
    model = torch.nn.ModuleList([Dropout(0.4), MultiHead(8, 2, dropout=0.2)])
    set_share(model, 0.5)
    assert model[0].rate == pytest.approx(0.2)
    assert model[1].dropout_share == 0.5


def test_a_rate_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0 and less than 1; got 1"):
        Dropout(1.0)
