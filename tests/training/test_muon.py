"""Muon against torch's own, which rounds to bfloat16 on the way (here it may not), and against a singular value decomposition."""

import pytest
import torch
from torch import nn

from saccade.data.image_shape import ImageShape
from saccade.models import glimpse
from saccade.models.shapes import Shapes
from saccade.training.muon import Muon, inner_matrices, orthogonal

torch_muon = getattr(torch.optim, "Muon", None)


@pytest.mark.parametrize("shape", [(6, 6), (4, 12), (12, 4)])
def test_the_update_has_the_gradients_directions_and_equal_lengths(shape):
    torch.manual_seed(0)
    u, _, vh = torch.linalg.svd(torch.randn(3, *shape), full_matrices=False)
    sizes = torch.logspace(-1, 1, min(shape))  # a hundred times apart
    seen = u.mT @ orthogonal(u * sizes @ vh) @ vh.mT
    lengths = seen.diagonal(dim1=1, dim2=2)
    assert (seen - torch.diag_embed(lengths)).abs().max() < 1e-4
    assert lengths.min() > 0.6
    assert lengths.max() < 1.3


def test_no_gradient_moves_nothing():
    assert torch.equal(orthogonal(torch.zeros(1, 4, 4)), torch.zeros(1, 4, 4))


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.embedding = nn.Embedding(9, 6)
        self.wide, self.same, self.alike = nn.Linear(6, 10), nn.Linear(10, 10), nn.Linear(10, 10)
        self.tall = nn.Linear(10, 6)
        self.output = nn.Linear(6, 9)
        self.output.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.same(self.wide(self.embedding(tokens)).relu())
        return self.output(self.tall(self.alike(x.relu())))

    def loss(self):
        tokens = torch.arange(9)
        return nn.functional.cross_entropy(self(tokens), tokens.flip(0))


def test_inner_matrices_are_neither_embeddings_nor_the_output():
    model = Small()
    names = {parameter: name for name, parameter in model.named_parameters()}
    assert [names[each] for each in inner_matrices(model)] == [
        "wide.weight",
        "same.weight",
        "alike.weight",
        "tall.weight",
    ]
    model.output.weight = nn.Parameter(torch.zeros(9, 6))
    assert len(inner_matrices(model)) == 4


@pytest.mark.skipif(torch_muon is None, reason="this torch has no Muon")
def test_equal_to_torch_with_adamw_for_the_rest(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda tensor: tensor.clone())
    ours, theirs = Small(), Small()
    mine = Muon([{"params": list(ours.parameters())}], inner_matrices(ours), lr=0.02, weight_decay=0.1)
    matrices = inner_matrices(theirs)
    rest = [each for each in theirs.parameters() if all(each is not matrix for matrix in matrices)]
    others = [
        torch_muon(matrices, lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=0.02, weight_decay=0.1),
    ]
    start = [each.detach().clone() for each in ours.parameters()]
    for _ in range(5):
        for model, optimizers in ((ours, [mine]), (theirs, others)):
            model.zero_grad()
            model.loss().backward()
            for optimizer in optimizers:
                optimizer.step()
    for before, one, other in zip(start, ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)
        assert not torch.allclose(before, one, atol=1e-3)


def test_a_convolution_moves_as_the_matrix_of_its_filters():
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 5, 2)
    matrix = nn.Linear(12, 5)
    matrix.weight.data = convolution.weight.detach().flatten(1).clone()
    gradient = torch.randn(5, 12)
    for layer in (convolution, matrix):
        layer.weight.grad = gradient.view_as(layer.weight).clone()
        Muon([{"params": [layer.weight]}], inner_matrices(nn.Sequential(layer)), lr=0.1).step()
    assert torch.equal(convolution.weight.flatten(1), matrix.weight)


def test_outputs_of_a_network_that_glimpses_and_depthwise_convolutions_are_adamws():
    network = glimpse.build(glimpse.Config(), Shapes(ImageShape(1, 28, 28), classes=10))
    names = {parameter: name for name, parameter in network.named_parameters()}
    assert [names[each] for each in inner_matrices(network)] == ["what.weight", "where.weight", "together.weight"]
    assert inner_matrices(nn.Sequential(nn.Conv2d(6, 6, 3, groups=6))) == []
