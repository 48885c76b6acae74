"""Pooling against numbers known on paper and a numpy loop."""

import numpy as np
import pytest
import torch

from saccade.attention import record_attention
from saccade.layers.pooling import AttentionPooling, ClassToken, pooling


def test_a_class_token_stands_before_the_cells_and_is_read_again():
    pool, cells = ClassToken(4), torch.randn(2, 3, 4)
    tokens = pool.begin(cells)
    assert tokens.shape == (2, 4, 4)
    assert torch.equal(tokens[:, 1:], cells)
    assert torch.equal(pool(tokens), pool.token.expand(2, 4))


def test_the_mean_is_the_mean():
    cells = torch.arange(12.0).view(2, 3, 2)
    assert pooling("mean", 2)(cells).tolist() == [[2.0, 3.0], [8.0, 9.0]]


@torch.no_grad()
def test_attention_weighs_the_cells_as_a_numpy_loop_does():
    torch.manual_seed(0)
    pool, cells = AttentionPooling(4), torch.randn(2, 3, 4)
    torch.nn.init.normal_(pool.query)
    with record_attention(pool) as maps:
        pooled = pool(cells)
    query = pool.query.numpy()
    for row, example in enumerate(cells.numpy()):
        weights = np.array([np.exp(query @ cell / 2.0) for cell in example])
        weights /= weights.sum()
        np.testing.assert_allclose(
            pooled[row], sum(w * cell for w, cell in zip(weights, example, strict=True)), atol=1e-6
        )
        np.testing.assert_allclose(maps["attention"][0][row, 0], weights, atol=1e-6)


@pytest.mark.parametrize(("name", "extra"), [("class", ("[class]",)), ("mean", ()), ("attention", ())])
def test_every_pooling_names_the_tokens_it_adds(name, extra):
    pool = pooling(name, 4)
    cells = torch.randn(2, 3, 4)
    assert pool.extra == extra
    assert pool.begin(cells).shape[1] == 3 + len(extra)
    assert pool(pool.begin(cells)).shape == (2, 4)
