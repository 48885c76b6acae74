"""Drawn shapes: the caption follows from the picture, and the regions are where the shapes really are, to the pixel."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from saccade.data.builtin.shapes import COLOURS, COUNTS, SHAPES, SIDE, SIZES, draw, scenes

MANY = scenes("train", 1500)
SINGULAR = {plural: singular for singular, plural in SHAPES.items()}
GROUP = rf"({'|'.join(COUNTS)}) ({'|'.join(SIZES)}) ({'|'.join(COLOURS)}) ({'|'.join([*SHAPES.values(), *SHAPES])})"


def test_every_caption_is_a_sentence_of_the_grammar():
    for scene in MANY:
        assert re.fullmatch(rf"{GROUP}(( above {GROUP}){{0,2}}|( left of {GROUP}){{0,2}})", scene.caption), (
            scene.caption
        )


def test_every_word_is_used_and_scenes_have_one_to_three_groups():
    words = Counter(word for scene in MANY for word in scene.caption.split())
    every = {*COUNTS, *SIZES, *COLOURS, *SHAPES, *SHAPES.values(), "above", "left", "of"}
    assert set(words) == every
    assert set(Counter(len(scene.regions) for scene in MANY)) == {1, 2, 3}


def test_a_scene_is_the_same_picture_always_and_a_larger_count_begins_with_a_smaller():
    assert scenes("train", 5) == MANY[:5]
    assert scenes("train", 5, seed=2) != MANY[:5]
    np.testing.assert_array_equal(np.asarray(draw(MANY[3])), np.asarray(draw(scenes("train", 4)[3])))


def test_no_caption_is_in_two_splits():
    train, valid, test = ({scene.caption for scene in scenes(split, 200)} for split in ("train", "valid", "test"))
    assert not train & valid
    assert not train & test
    assert not valid & test


def test_pictures_have_64_pixels_a_side_and_differ():
    pictures = [np.asarray(draw(scene)) for scene in MANY[:50]]
    assert {picture.shape for picture in pictures} == {(SIDE, SIDE, 3)}
    assert len({picture.tobytes() for picture in pictures}) == 50


@pytest.mark.parametrize("number", range(0, 1500, 250))
def test_the_region_of_a_noun_is_where_its_shapes_change_the_picture(number):
    scene = MANY[number]
    words = scene.caption.split()
    shapes = list(scene.shapes)
    for region in scene.regions:
        *_, count, _, _, noun = words[: region.word + 1]
        own = [shapes.pop(0) for _ in range(COUNTS.index(count) + 1)]
        assert {shape.name for shape in own} == {SINGULAR.get(noun, noun)}
        without = replace(scene, shapes=tuple(shape for shape in scene.shapes if shape not in own))
        changed = (np.asarray(draw(scene)) != np.asarray(draw(without))).any(-1)
        rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
        found = [rows[0], columns[0], rows[-1] + 1, columns[-1] + 1]
        np.testing.assert_allclose(found, np.array(region[1:]) * SIDE, atol=1.1)
    assert not shapes


def test_shapes_stay_inside_and_apart():
    for scene in MANY:
        boxes = [shape.box() for shape in scene.shapes]
        assert min(min(box) for box in boxes) >= 0
        assert max(max(box) for box in boxes) <= SIDE
        for index, (top, left, bottom, right) in enumerate(boxes):
            for other in boxes[:index]:
                assert bottom <= other[0] or other[2] <= top or right <= other[1] or other[3] <= left


def test_groups_stand_as_the_caption_says_and_never_both_ways():
    for scene in MANY:
        for before, after in zip(scene.regions, scene.regions[1:], strict=False):
            middles = [((r.top + r.bottom) / 2, (r.left + r.right) / 2) for r in (before, after)]
            down, along = (second - first for first, second in zip(*middles, strict=True))
            if " above " in scene.caption:
                assert before.bottom < after.top
                assert abs(along) < down
            else:
                assert before.right < after.left
                assert abs(down) < along


def test_two_groups_differ_in_shape_or_colour():
    for scene in MANY:
        kinds = [(colour, SINGULAR.get(noun, noun)) for _, _, colour, noun in re.findall(GROUP, scene.caption)]
        assert len(set(kinds)) == len(kinds)


def test_edges_are_smooth():
    """A white square on a grey ground has values between the two along its edge: no staircase."""
    scene = next(scene for scene in MANY if "a large white square" in scene.caption)
    square = next(shape for shape in scene.shapes if shape.name == "square" and min(shape.colour) > 200)
    top, left, bottom, right = (int(edge) for edge in square.box())
    grey = np.asarray(draw(scene)).mean(-1)[top - 1 : bottom + 2, left - 1 : right + 2]
    low, high = np.percentile(grey, 5), np.percentile(grey, 95)
    between = (grey > low + 0.25 * (high - low)) & (grey < high - 0.25 * (high - low))
    assert between.sum() >= 8
