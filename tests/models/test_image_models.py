"""What holds for every image model there is: each file in saccade/models whose kind is "image-classes"."""

import importlib
import pkgutil

import pytest
import torch
from torch.nn import functional as F

import saccade.models
from saccade.attention import record_attention
from saccade.data.image_shape import ImageShape
from saccade.models.shapes import Shapes
from saccade.views.axes import Grid

SMALL_VIT = {"layers": 2, "width": 16, "heads": 2, "feed_forward": 32}
SMALL_RESNET = {"blocks": 1, "widths": (8, 8, 16), "heads": 2, "neighbourhood": 3}

# Small, and between them every setting; a model that is not named here is tested as it is by default.
VARIANTS = {
    "cnn": [
        {"widths": (8, 8, 16), "hidden": 32, "heads": 1},
        {"widths": (8, 8, 16), "hidden": 32, "heads": 4, "spread": True, "regions": 2, "dropout": 0.0},
        {"widths": (8, 8, 16), "hidden": 32, "attention": "none"},
    ],
    "resnet": [
        SMALL_RESNET | {"attention": "none"},
        SMALL_RESNET | {"attention": "after-stem", "stem_pool": True},
        SMALL_RESNET | {"attention": "all"},
        SMALL_RESNET | {"attention": "after-stem", "bottleneck": True, "widths": (16, 16, 32), "spread": True},
    ],
    "vit": [
        SMALL_VIT,
        SMALL_VIT | {"pooling": "mean", "positions": "sinusoidal", "dropout": 0.1},
        SMALL_VIT | {"stem": "convolutional", "pooling": "attention"},
        SMALL_VIT | {"layer_scale": 0.1, "stochastic_depth": 0.1},
    ],
    "swin": [
        {"width": 8, "layers": (2, 2), "heads": (1, 2), "window": 4, "expansion": 2},
        {
            "width": 8,
            "layers": (2,),
            "heads": (2,),
            "window": 3,
            "expansion": 2,
            "stochastic_depth": 0.0,
            "dropout": 0.1,
        },
    ],
}

SHAPES = [ImageShape(3, 16, 16), ImageShape(3, 12, 20), ImageShape(1, 16, 16), ImageShape(3, 13, 9)]


def image_models() -> dict[str, object]:
    names = [module.name for module in pkgutil.iter_modules(saccade.models.__path__)]
    modules = {name: importlib.import_module(f"saccade.models.{name}") for name in names}
    return {
        name: each
        for name, each in modules.items()
        if getattr(each, "Config", None) and each.Config.serves == ("image-classes",)
    }


CASES = [(module, settings) for name, module in image_models().items() for settings in VARIANTS.get(name, [{}])]
every_model = pytest.mark.parametrize(
    ("module", "settings"), CASES, ids=[f"{m.__name__.rpartition('.')[2]} {s}" for m, s in CASES]
)


def make(module, settings, image=SHAPES[0], classes=5):
    """With what starts at zero drawn, too: a branch that is silent could do anything."""
    torch.manual_seed(0)
    model = module.build(module.Config(**settings), Shapes(image, classes)).eval()
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def pictures(count: int, image: ImageShape) -> torch.Tensor:
    return torch.randn(count, image.channels, image.rows, image.columns, generator=torch.Generator().manual_seed(1))


def loss_of(model, images, targets) -> torch.Tensor:
    """As the task has it: the model's own terms, or the soft cross-entropy."""
    if hasattr(model, "terms"):
        return sum(model.terms(images, targets).values())
    return F.cross_entropy(model(images), targets, reduction="sum")


def test_there_are_image_models():
    assert set(VARIANTS) <= set(image_models())


@every_model
@pytest.mark.parametrize("image", SHAPES, ids=str)
@torch.no_grad()
def test_every_shape_of_image_gives_a_number_per_class(module, settings, image):
    logits = make(module, settings, image)(pictures(2, image))
    assert logits.shape == (2, 5)
    assert logits.isfinite().all()
    assert not torch.equal(logits[0], logits[1])


@every_model
@torch.no_grad()
def test_an_image_alone_gives_what_it_gives_among_others(module, settings):
    model, images = make(module, settings), pictures(4, SHAPES[0])
    together = model(images)
    for row in range(4):
        torch.testing.assert_close(model(images[row : row + 1]), together[row : row + 1], atol=1e-5, rtol=1e-4)


@every_model
@pytest.mark.parametrize("image", SHAPES, ids=str)
@torch.no_grad()
def test_being_watched_changes_nothing_and_every_map_has_its_axes(module, settings, image):
    model, images = make(module, settings, image), pictures(2, image)
    unwatched = model(images)
    with record_attention(model) as maps:
        watched = model(images)
    assert torch.equal(watched, unwatched)
    assert bool(maps) == hasattr(model, "attention_axes") or settings.get("attention") == "none"
    for name, calls in maps.items():
        queries, keys = model.attention_axes(name, {"image": Grid(image.rows, image.columns)})
        for weights in calls:
            assert weights.shape[0] == 2
            assert weights.shape[-2:] == (len(queries), len(keys))
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


@every_model
def test_every_parameter_learns_and_none_is_laid_out_otherwise(module, settings):
    """Optimisers and files go through weights and gradients in torch's own order, whatever order the images are in."""
    model = make(module, settings).train()
    for _, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, std=0.1)  # also what starts at 0 and lets nothing through
    loss_of(model, pictures(4, SHAPES[0]), torch.eye(5)[:4]).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any() or name.endswith("key.bias"), (
            name
        )  # which shifts all scores alike, so a softmax undoes it
        assert parameter.is_contiguous(), name
        assert parameter.grad.is_contiguous(), name


RANDOM = [
    (module, VARIANTS.get(name, [{}])[0] | {"dropout": 0.0, field: 0.5})
    for name, module in image_models().items()
    for field in ("dropout", "stochastic_depth")
    if field in module.Config.model_fields
]


@pytest.mark.parametrize(
    ("module", "settings"), RANDOM, ids=[f"{m.__name__.rpartition('.')[2]} {s}" for m, s in RANDOM]
)
@torch.no_grad()
def test_what_is_dropped_is_dropped_in_training_only(module, settings):
    model, images = make(module, settings), pictures(4, SHAPES[0])
    assert torch.equal(model(images), model(images))
    model.train()
    assert not torch.allclose(model(images), model(images))


@pytest.mark.parametrize("name", ["vit", "swin"])
@torch.no_grad()
def test_a_model_becomes_one_graph_for_any_number_of_images(name):
    model = make(image_models()[name], VARIANTS[name][0])
    batch = torch.export.Dim("batch", min=1, max=64)
    graph = torch.export.export(model, (pictures(3, SHAPES[0]),), dynamic_shapes=({0: batch},)).module()
    images = pictures(5, SHAPES[0])
    torch.testing.assert_close(graph(images), model(images), atol=1e-5, rtol=1e-4)


@every_model
def test_eight_random_images_can_be_learned_by_heart(module, settings):
    image = ImageShape(3, 8, 8)
    model, images, classes = make(module, settings, image, classes=8), pictures(8, image), torch.arange(8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(300):
        model.train()
        optimizer.zero_grad()
        loss_of(model, images, F.one_hot(classes, 8).float()).backward()
        optimizer.step()
        if step % 10 == 9 and torch.equal(model.eval()(images).argmax(1), classes):
            return
    raise AssertionError(f"after 300 steps it says {model(images).argmax(1).tolist()}")
