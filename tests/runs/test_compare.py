"""What a comparison counts."""

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

from saccade.attention import LocalSelfAttention2d, MultiHead
from saccade.config.recipe import load
from saccade.data.image_shape import ImageShape
from saccade.errors import ConfigError, UserError
from saccade.layers.operations import operations
from saccade.models.shapes import Shapes
from saccade.runs.compare import Row, columns, combinations, compare, plot, validations


class Layer(nn.Module):
    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        output = self.layer(x)
        return output.context if isinstance(self.layer, MultiHead) else output


def test_operations_of_attention_are_those_of_its_formula():
    length, size = 40, 16
    expected = 2 * (4 * length * size**2 + 2 * length**2 * size)  # four projections, scores, weighted sums
    assert operations(Layer(MultiHead(size, 4)), torch.randn(1, length, size)) == expected


def test_operations_of_a_neighbourhood_are_those_of_its_formula():
    layer, image = LocalSelfAttention2d(8, 16, 5, 2), torch.randn(1, 8, 6, 7)
    pixels = 6 * 7
    projections, offsets = 3 * pixels * 8 * 16, 2 * 5 * pixels * 8  # row and column embeddings meet half a head each
    assert operations(Layer(layer), image) == 2 * (projections + 2 * 25 * pixels * 16 + offsets)


@pytest.mark.parametrize("model", ["vit", "cnn", "resnet", "swin"])
def test_operations_of_every_image_model_can_be_counted(model):
    recipe = load("digits-vit", [f"model.name={model}"])
    image = ImageShape(3, 32, 32)
    built = recipe.model_module.build(recipe.model, Shapes(image, 10)).eval()
    assert operations(built, torch.zeros(1, 3, 32, 32)) > 1e6
    assert all(parameter.requires_grad for parameter in built.parameters())


@pytest.mark.parametrize("cost", [None, "parameters", "minutes"])
def test_a_comparison_is_drawn(tmp_path, cost):
    rows = []
    for number in range(3):
        costs = {"parameters": 1.1e6 + 2e5 * number, "minutes": 50.0 + number}
        way = [{"minutes": 10.0 * step, "accuracy": 50.0 + step + number} for step in range(1, 6)]
        rows.append(Row({"recipe": f"recipe {number}"}, costs, {"accuracy %": 55.0 + number}, way))
    plot(rows, tmp_path / "compare.png", cost)
    with Image.open(tmp_path / "compare.png") as image:
        assert image.width == 7 * 150
        assert len(image.convert("RGB").getcolors(1 << 20)) > 50


@pytest.mark.parametrize(
    ("recipes", "vary", "against", "message"),
    [
        (
            ["digits-rnn", "digits-vit"],
            [],
            None,
            "the tasks translation and image_classes are judged by different scores",
        ),
        (
            ["digits-rnn"],
            ["model.hidden=4,8"],
            "MFLOP",
            "not a cost of the task translation: choose parameters, minutes",
        ),
        (["digits-vit"], ["model.layers=1,2"], "parrots", "choose parameters, minutes, MFLOP, training TFLOP"),
        (["digits-rnn"], ["model.hidden=4", "model.hidden=8"], None, "model.hidden is given twice"),
        (["digits-rnn"], ["model.hidden=4,4"], None, "^model.hidden=4 is given twice: give it once"),
        (["digits-rnn", "digits-rnn"], [], None, "^recipe=digits-rnn is given twice: give it once"),
        (["digits-rnn"], ["model.attention=a/b,a_b"], None, "rename one of them"),
        (["digits-rnn"], ["model.hiden=4"], None, r"^model.hiden = 4 \(--vary\) is not a setting: .*model.hidden"),
        (["digits-rnn"], ["model.hidden=many"], None, r'^model.hidden = "many" \(--vary\) must be a whole number'),
    ],
)
def test_what_cannot_be_compared_is_said_before_anything_is_trained(tmp_path, recipes, vary, against, message):
    with pytest.raises(ConfigError, match=message):
        compare(recipes, vary, [], tmp_path / "out", against)
    assert not (tmp_path / "out").exists()


def test_a_setting_is_not_both_varied_and_set(tmp_path):
    with pytest.raises(ConfigError, match=r"model.hidden is both varied \(--vary\) and set for all"):
        compare(["digits-rnn"], ["model.hidden=4,8"], ["model.hidden=16"], tmp_path)


def test_a_mistake_in_what_is_set_for_all_is_told_as_one(tmp_path):
    with pytest.raises(ConfigError, match=r"^model.hiden = 16 \(--set\) is not a setting"):
        compare(["digits-rnn"], ["model.attention=dot,additive"], ["model.hiden=16"], tmp_path)


@pytest.mark.parametrize("cost", [None, "parameters"])
def test_the_picture_of_several_seeds_shows_each(tmp_path, cost, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: drawn.append(self) or Path(_[0]).touch())
    scores = {("none", "1"): 60.0, ("none", "2"): 70.0, ("additive", "1"): 96.0, ("additive", "2"): 97.0}
    rows = [
        Row({"model.attention": name, "train.seed": seed}, {"parameters": 1e6}, {"BLEU": score})
        for (name, seed), score in scores.items()
    ]
    plot(rows, tmp_path / "compare.png", cost)
    axes = drawn[0].axes[0]
    words = {text.get_text() for text in axes.texts} | {axes.get_xlabel(), axes.get_title()}
    assert any("(mean ± half the range of 2 seeds)" in text for text in words)
    if cost is None:
        dots = {x for points in axes.collections for x, _ in points.get_offsets().tolist()}
        assert dots == set(scores.values())
        assert {"65.0 ± 5.0", "96.5 ± 0.5"} <= words
    else:
        ranges = {tuple(line.get_ydata()) for line in axes.lines}
        assert ranges == {(60.0, 70.0), (96.0, 97.0)}


def test_one_diverging_training_leaves_the_others_their_figures(tmp_path, tiny_settings, capfd):
    rows = compare(["digits-rnn"], ["train.learning_rate=1e39,1e-3"], tiny_settings, tmp_path / "c")
    assert [bool(row.scores) for row in rows] == [False, True]
    assert (
        "train.learning_rate=1e39 has no figures, training continues with the others: the loss became"
        in capfd.readouterr().err
    )  # nan or inf
    assert dict(columns(rows))["perplexity"][0] == "–"
    seeds = [Row({"a": "b", "train.seed": seed}, {}, scores) for seed, scores in (("1", {"BLEU": 2.0}), ("2", {}))]
    assert dict(columns(seeds)) == {"a": ["b"], "seeds": ["1"], "BLEU": ["2.00"]}
    plot(rows, tmp_path / "compare.png", "parameters")
    with pytest.raises(UserError, match="every training diverged"):
        compare(["digits-rnn"], ["train.learning_rate=1e39"], tiny_settings, tmp_path / "c")


def test_a_damaged_result_is_measured_again_and_other_settings_are_named(tmp_path, tiny_settings):
    first = compare(["digits-rnn"], ["train.learning_rate=1e-3"], tiny_settings, tmp_path / "c")
    (tmp_path / "c" / "train.learning_rate=1e-3" / "result.json").write_text("[tor")
    assert compare(["digits-rnn"], ["train.learning_rate=1e-3"], tiny_settings, tmp_path / "c") == first
    with pytest.raises(ConfigError, match=r"other settings \(model\.hidden \d+, wanted 32\)"):
        compare(["digits-rnn"], ["train.learning_rate=1e-3"], [*tiny_settings, "model.hidden=32"], tmp_path / "c")


def test_lists_can_be_varied():
    chosen = combinations(["train.betas=[0.9,0.98],[0.9,0.999]", "model.heads=1,2"])
    assert [each["train.betas"] for each in chosen] == ["[0.9,0.98]", "[0.9,0.98]", "[0.9,0.999]", "[0.9,0.999]"]


def test_the_way_of_a_run_has_the_costs_spent_until_each_validation():
    lines = [
        {"step": 5, "seconds": 30.0, "loss": 2.0},
        {"step": 10, "seconds": 60.0, "loss": 1.0},
        {"step": 10, "valid": {"accuracy": 40.0}},
        {"step": 20, "seconds": 150.0, "loss": 0.5},
        {"step": 20, "valid": {"accuracy": 50.0}},
    ]
    row = Row({}, {}, {"accuracy %": 48.0}, list(validations(lines, {"training TFLOP": 0.5})))
    assert row.way("minutes", "accuracy %") == [(1.0, 40.0), (2.5, 50.0)]
    assert row.way("training TFLOP", "accuracy %") == [(5.0, 40.0), (10.0, 50.0)]
    assert row.way("parameters", "accuracy %") == []
    text = [{"step": 3, "seconds": 6.0, "valid": {"bleu": 30.0}}, {"step": 3, "averaged": 5, "valid": {"bleu": 2.0}}]
    assert Row({}, {}, {"BLEU": 31.0}, list(validations(text, {}))).way("minutes", "BLEU") == [(0.1, 30.0)]
