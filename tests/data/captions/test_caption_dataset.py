"""Captioned images are split by image, decoded once and read back the same; words come from training captions alone."""

import json
import shutil
import zipfile
from collections import Counter

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from saccade.data.builtin.shapes import SHAPES, draw, scenes
from saccade.data.captions.dataset import CaptionsConfig, equal_length_batches, prepare, reopen
from saccade.data.image_shape import ImageShape
from saccade.data.splits import SPLITS
from saccade.errors import UserError

COUNT = 40


def prepared(directory, **settings):
    notices: list[str] = []
    return prepare(CaptionsConfig(**settings), directory, notices.append), notices


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Forty images of noise, two captions each: one alike for all, one with a word of the image's own."""
    root = tmp_path_factory.mktemp("photos")
    generator = np.random.default_rng(0)
    (root / "images").mkdir()
    lines = []
    for number in range(COUNT):
        Image.fromarray(generator.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(
            root / "images" / f"{number:02}.png"
        )
        lines += [f"{number:02}.png#0\tA dog runs .", f"{number:02}.png#1\tOne word{number} here !"]
    (root / "captions.txt").write_text("\n".join(lines))
    for split, numbers in (("train", range(30)), ("valid", range(30, 35)), ("test", range(35, 40))):
        (root / f"{split}.txt").write_text("".join(f"{number:02}.png\n" for number in numbers))
    return root


def files(root, **more):
    settings = {"images": root / "images", "captions": root / "captions.txt", "rows": 16, "columns": 24, "min_count": 1}
    return settings | more


def lists(root):
    return {f"{split}_list": root / f"{split}.txt" for split in SPLITS}


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("shapes") / "run", corpus="shapes", examples=60)


# Files


def test_lists_say_which_image_is_for_what(photos, tmp_path):
    found, notices = prepared(tmp_path / "run", **files(photos, **lists(photos)))
    assert found.train.names == [f"{number:02}.png" for number in range(30)]
    assert found.valid.names == [f"{number:02}.png" for number in range(30, 35)]
    assert found.test.captions[0] == ("a dog runs", "one word35 here")
    assert found.test.regions is None
    assert found.shape == ImageShape(3, 16, 24, stretched=True)
    assert notices[0] == (
        "30 images with 60 captions to train on, 5 images with 10 captions to validate and 5 images with 10 captions to test; "
        "a vocabulary of 39 words"
    )


def test_words_of_held_out_captions_are_unknown(photos, tmp_path):
    found, _ = prepared(tmp_path / "run", **files(photos, **lists(photos)))
    words = set(found.vocabulary.vocabulary[4:])
    assert words == {"a", "dog", "runs", "one", "here", *(f"word{number}" for number in range(30))}
    assert found.vocabulary.pieces(found.test.pairs.tokens[1]) == ["one", "<unk>", "here"]


def test_words_seen_too_seldom_are_unknown(photos, tmp_path):
    found, _ = prepared(tmp_path / "run", **files(photos, **lists(photos), min_count=5))
    assert set(found.vocabulary.vocabulary[4:]) == {"a", "dog", "runs", "one", "here"}


def test_images_without_lists_are_split_by_the_seed_and_never_shared(photos, tmp_path):
    first, again, other = (
        prepared(tmp_path / name, split_seed=seed, **files(photos))[0] for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    names = [set(first.split(split).names) for split in SPLITS]
    assert [len(each) for each in names] == [32, 4, 4]
    assert set.union(*names) == {f"{number:02}.png" for number in range(COUNT)}
    assert first.test.names == again.test.names
    assert first.test.names != other.test.names


def test_with_held_out_lists_alone_the_rest_is_trained_on(photos, tmp_path):
    held_out = {name: path for name, path in lists(photos).items() if name != "train_list"}
    found, _ = prepared(tmp_path / "run", **files(photos, **held_out))
    assert found.train.names == [f"{number:02}.png" for number in range(30)]


def test_pixels_are_those_that_pillow_decodes(photos, tmp_path):
    found, _ = prepared(tmp_path / "run", **files(photos, **lists(photos), rows=20, columns=30))
    expected = np.asarray(Image.open(photos / "images" / "31.png")).transpose(2, 0, 1)
    np.testing.assert_array_equal(found.valid.pixels[1], expected)
    assert found.valid.pixels.dtype == np.uint8


def test_a_zip_with_a_folder_around_is_the_same(photos, tmp_path):
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        for path in (photos / "images").iterdir():
            archive.write(path, f"Wrapped_Dataset/{path.name}")
    unpacked, _ = prepared(tmp_path / "a", **files(photos, **lists(photos)))
    packed, _ = prepared(tmp_path / "b", **files(photos, **lists(photos), images=tmp_path / "images.zip"))
    np.testing.assert_array_equal(packed.test.pixels, unpacked.test.pixels)
    assert packed.test.captions == unpacked.test.captions
    assert packed.test.names[0] == "Wrapped_Dataset/35.png"


def test_captions_without_an_image_are_named_and_counted(photos, tmp_path):
    captions = tmp_path / "captions.txt"
    captions.write_text((photos / "captions.txt").read_text() + "\ngone.png#0\tA cat .\n39.png#2\t.\n")
    found, notices = prepared(tmp_path / "run", **files(photos, **lists(photos), captions=captions))
    assert notices[0].startswith("1 image with captions are missing in ")
    assert notices[0].endswith("the first: gone.png")
    assert notices[1] == "1 captions without a word were left out"
    assert "cat" not in found.vocabulary.vocabulary


def test_images_without_a_caption_are_counted(photos, tmp_path):
    captions = tmp_path / "captions.txt"
    captions.write_text("\n".join((photos / "captions.txt").read_text().splitlines()[: 2 * 38]))
    _, notices = prepared(tmp_path / "run", **files(photos, captions=captions))
    assert notices[0] == "2 images without captions were left out"


def test_a_damaged_image_stops_unless_it_may_be_skipped(photos, tmp_path):
    shutil.copytree(photos / "images", tmp_path / "images")
    (tmp_path / "images" / "03.png").write_bytes(b"no image")
    settings = files(photos, **lists(photos), images=tmp_path / "images")
    with pytest.raises(UserError, match=r"03\.png is not a picture .*--skip-bad"):
        prepared(tmp_path / "run", **settings)
    found, notices = prepared(tmp_path / "run", **settings, skip_bad=True)
    assert len(found.train) == 29
    assert len(found.train.captions) == 29
    assert found.train.captions[3] == ("a dog runs", "one word4 here")
    assert any("1 images cannot be decoded and were left out" in sentence for sentence in notices)


def test_a_listed_image_that_is_missing_stops_unless_it_may_be_skipped(photos, tmp_path):
    (tmp_path / "test.txt").write_text("35.png\nlost.png\n")
    settings = files(photos, **lists(photos) | {"test_list": tmp_path / "test.txt"})
    with pytest.raises(UserError, match=r"names 1 image without a file or a caption, the first lost\.png"):
        prepared(tmp_path / "run", **settings)
    found, notices = prepared(tmp_path / "run", **settings, skip_bad=True)
    assert found.test.names == ["35.png"]
    assert notices[0] == "1 image of test.txt without a file or a caption were left out, the first: lost.png"


def test_an_image_in_two_lists_is_refused(photos, tmp_path):
    with pytest.raises(UserError, match=r"data\.valid_list and data\.test_list both name 30\.png \(5 images in all\)"):
        prepared(tmp_path / "run", **files(photos, **lists(photos) | {"test_list": photos / "valid.txt"}))


def test_captions_of_other_images_are_refused(photos, tmp_path):
    (tmp_path / "captions.txt").write_text("x.png#0\tA dog .\n")
    with pytest.raises(UserError, match=r"has none of the 1 images .* the first x\.png"):
        prepared(tmp_path / "run", **files(photos, captions=tmp_path / "captions.txt"))


def test_a_run_is_reopened_where_it_was_moved_and_its_files_are_gone(photos, tmp_path):
    shutil.copytree(photos / "images", tmp_path / "images")
    found, _ = prepared(tmp_path / "run", **files(photos, **lists(photos), images=tmp_path / "images"))
    expected = found.test.pixels.copy()
    shutil.rmtree(tmp_path / "images")
    (tmp_path / "run").rename(tmp_path / "moved")
    again = reopen(tmp_path / "moved")
    assert again.shape == found.shape
    assert again.vocabulary.vocabulary == found.vocabulary.vocabulary
    assert again.test.captions == found.test.captions
    np.testing.assert_array_equal(again.test.pixels, expected)


def test_what_a_run_lacks_is_named_when_it_is_asked_for(photos, tmp_path):
    prepared(tmp_path / "run", **files(photos, **lists(photos)))
    (tmp_path / "run" / "captions" / "test.json").write_text(json.dumps({"captions": [["a"]], "regions": None}))
    again = reopen(tmp_path / "run")
    assert len(again.valid) == 5
    with pytest.raises(UserError, match=r"test\.json cannot be read \(1 captioned images for 5\)"):
        _ = again.test
    (tmp_path / "run" / "captions.json").unlink()
    with pytest.raises(UserError, match=r"captions\.json cannot be read"):
        reopen(tmp_path / "run")


def test_to_predict_a_run_needs_no_images(photos, tmp_path):
    found, _ = prepared(tmp_path / "run", **files(photos, **lists(photos)))
    shutil.rmtree(tmp_path / "run" / "images")
    again = reopen(tmp_path / "run")
    assert again.shape == found.shape
    assert again.vocabulary.decode(again.vocabulary.encode("a dog runs")) == "a dog runs"
    with pytest.raises(UserError, match=r"the train images in .* are incomplete"):
        _ = again.train


# Pairs and batches


def test_pairs_are_every_image_with_each_of_its_captions(photos, tmp_path):
    found, _ = prepared(tmp_path / "run", **files(photos, **lists(photos)))
    pairs = found.train.pairs
    assert len(pairs) == 60
    for image, caption, ids, length in zip(pairs.images, pairs.captions, pairs.tokens, pairs.lengths, strict=True):
        assert found.vocabulary.decode(ids) == found.train.captions[image][caption]
        assert length == len(found.train.captions[image][caption].split())


def test_a_batch_has_captions_of_one_length_and_an_epoch_every_caption_once():
    lengths = np.random.default_rng(0).integers(3, 9, 500)
    batches = equal_length_batches(lengths, 32, seed=1, number=4)
    assert all(len(set(lengths[batch])) == 1 and 1 <= len(batch) <= 32 for batch in batches)
    assert Counter(np.concatenate(batches).tolist()) == Counter(range(500))
    assert [lengths[batch[0]] for batch in batches] != sorted(lengths[batch[0]] for batch in batches)


def test_epochs_differ_and_come_again_the_same():
    lengths = np.full(100, 7)
    first, again, other = (np.concatenate(equal_length_batches(lengths, 8, 1, number)) for number in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_processes_together_see_the_batches_that_one_would_see():
    lengths = np.random.default_rng(0).integers(3, 9, 100)
    whole = equal_length_batches(lengths, 16, 1, 0)
    shards = [equal_length_batches(lengths, 16, 1, 0, (rank, 3)) for rank in range(3)]
    for number, batch in enumerate(whole):
        assert sorted(index for shard in shards for index in shard[number]) == sorted(batch)


# Shapes


def test_shapes_are_drawn_with_their_captions_and_regions(shapes):
    found, _ = shapes
    expected = scenes("train", 60)
    assert found.shape == ImageShape(3, 64, 64, stretched=True)
    assert [len(found.split(split)) for split in SPLITS] == [60, 500, 1000]
    np.testing.assert_array_equal(found.train.pixels[7], np.asarray(draw(expected[7])).transpose(2, 0, 1))
    assert found.train.captions[7] == (expected[7].caption,)
    assert found.train.regions is not None
    assert found.train.regions[7] == expected[7].regions


def test_the_words_of_regions_are_the_nouns_among_the_tokens(shapes):
    found, _ = shapes
    nouns = {*SHAPES, *SHAPES.values()}
    for regions, ids in zip(found.train.regions, found.train.pairs.tokens, strict=True):
        pieces = found.vocabulary.pieces(ids)
        assert [region.word for region in regions] == [place for place, word in enumerate(pieces) if word in nouns]


# Settings


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "name your files"),
        ({"corpus": "shapes", "captions": "HERE"}, "the built-in shapes take no files"),
        ({"corpus": "shapes", "rows": 32, "columns": 32}, "have 64 × 64 pixels"),
        ({"images": "HERE", "captions": "HERE", "rows": 32}, "give both rows and columns"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, sentence):
    here = {name: __file__ if value == "HERE" else value for name, value in settings.items()}
    with pytest.raises(ValidationError, match=sentence):
        CaptionsConfig(**here)
