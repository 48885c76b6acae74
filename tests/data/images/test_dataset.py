"""Images are split, decoded once, and read back the same: against scikit-learn, Pillow and numpy."""

import csv
import gzip
import io
import json
import multiprocessing
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError
from sklearn.datasets import load_digits

from saccade.data.image_shape import ImageShape
from saccade.data.images import cache as image_cache
from saccade.data.images.cache import ImageSet
from saccade.data.images.dataset import ImagesConfig, prepare, reopen
from saccade.data.splits import SPLITS
from saccade.errors import UserError


def a_folder(root: Path, counts: dict[str, int], size=(6, 5), mode="RGB", seed=0) -> Path:
    generator = np.random.default_rng(seed)
    shape = (*size, 3) if mode == "RGB" else size
    for name, count in counts.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for index in range(count):
            pixels = generator.integers(0, 256, shape, dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{index:03}.png")
    return root


def prepared(directory: Path, **settings):
    notices: list[str] = []
    return prepare(ImagesConfig(**settings), directory, notices.append), notices


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("digits") / "run", corpus="digits")


def test_the_built_in_digits_are_scikit_learns(digits):
    images, notices = digits
    data, labels = load_digits(return_X_y=True)
    assert images.shape == ImageShape(1, 8, 8)
    assert images.classes == tuple("0123456789")
    everything = [images.train, images.valid, images.test]
    places = [int(name.removeprefix("digit ")) for split in everything for name in split.names]
    assert sorted(places) == list(range(1797))
    pixels = np.concatenate([split.pixels for split in everything]).reshape(-1, 64)
    np.testing.assert_array_equal(np.rint(pixels * (16 / 255)), data[places])
    np.testing.assert_array_equal(np.concatenate([split.labels for split in everything]), labels[places])
    assert notices[0] == "images of 10 classes: 1,439 to train on, 179 to validate and 179 to test; 8 × 8 pixels, grey"
    assert notices[1].startswith("1,797 images read in ")


def test_what_is_cut_off_has_a_tenth_of_every_class(digits):
    images, _ = digits
    whole = np.bincount(load_digits(return_X_y=True)[1])
    for split in (images.valid, images.test):
        assert (abs(np.bincount(split.labels) - whole / 10) <= 1).all()


def test_the_split_depends_on_the_seed_alone(tmp_path, digits):
    images, _ = digits
    again, _ = prepared(tmp_path / "again", corpus="digits")
    other, _ = prepared(tmp_path / "other", corpus="digits", split_seed=2)
    assert again.test.names == images.test.names
    assert again.valid.names == images.valid.names
    assert other.test.names != images.test.names


def test_mean_and_deviation_are_those_of_the_training_images(tmp_path):
    images, _ = prepared(tmp_path / "run", train=a_folder(tmp_path / "data", {"cat": 12, "dog": 9}))
    pixels = images.train.pixels / 255
    np.testing.assert_allclose(images.mean, pixels.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(images.deviation, pixels.std((0, 2, 3)), rtol=1e-12)


def test_a_channel_without_contrast_is_not_divided_by_zero(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for index in range(3):
            Image.new("L", (5, 5), 100).save(tmp_path / "data" / name / f"{index}.png")
    images, _ = prepared(tmp_path / "run", train=tmp_path / "data")
    assert images.deviation == (1.0,)
    assert images.mean == pytest.approx((100 / 255,))


@pytest.mark.parametrize("named", [(), ("valid",), ("test",), ("valid", "test")])
def test_splits_without_files_are_cut_from_train(tmp_path, named):
    counts = {"cat": 30, "dog": 20}
    paths = {"train": a_folder(tmp_path / "train", counts)}
    paths |= {name: a_folder(tmp_path / name, {"cat": 2, "dog": 3}, seed=len(name)) for name in named}
    images, _ = prepared(tmp_path / "run", **paths)
    for split in ("valid", "test"):
        assert np.bincount(images.split(split).labels).tolist() == ([2, 3] if split in named else [3, 2])
    assert len(images.train) == 50 - 5 * (2 - len(named))
    different = {array.tobytes() for split in SPLITS for array in images.split(split).pixels}
    assert len(different) == 50 + 5 * len(named)  # nothing twice, nothing lost


def test_a_class_of_three_images_has_one_in_every_split(tmp_path):
    images, _ = prepared(tmp_path / "run", train=a_folder(tmp_path / "data", {"cat": 3, "dog": 40}))
    assert [int((images.split(split).labels == 0).sum()) for split in SPLITS] == [1, 1, 1]


def test_too_few_images_to_cut_from_is_a_sentence(tmp_path):
    with pytest.raises(UserError, match=r"no image is left to test: add images to the classes, or set data\.test"):
        prepared(tmp_path / "run", train=a_folder(tmp_path / "data", {"cat": 2, "dog": 2}))


def test_a_run_is_read_back_the_same_and_can_be_moved(tmp_path):
    images, _ = prepared(tmp_path / "run", train=a_folder(tmp_path / "data", {"cat": 12, "dog": 9}))
    before = images.train.pixels.copy()
    (tmp_path / "run").rename(tmp_path / "moved")
    again = reopen(tmp_path / "moved")
    assert (again.classes, again.shape, again.mean, again.deviation) == (
        images.classes,
        images.shape,
        images.mean,
        images.deviation,
    )
    np.testing.assert_array_equal(again.train.pixels, before)
    assert json.loads((tmp_path / "moved" / "classes.json").read_text())["classes"] == ["cat", "dog"]


def test_pixels_are_those_of_the_files(tmp_path):
    root = a_folder(tmp_path / "data", {"cat": 12, "dog": 9})
    images, notices = prepared(tmp_path / "run", train=root)
    for split in SPLITS:
        part = images.split(split)
        for pixels, name, label in zip(part.pixels, part.names, part.labels, strict=True):
            np.testing.assert_array_equal(pixels.transpose(1, 2, 0), np.asarray(Image.open(root / name)))
            assert images.classes[label] == name.split("/")[0]
    assert not any("had another size" in sentence for sentence in notices)


def read_sum(directory: Path, results) -> None:
    pixels = reopen(directory).train.pixels
    results.put((int(pixels.sum()), pixels.flags.writeable))


def test_several_processes_read_the_same_pixels(tmp_path):
    images, _ = prepared(tmp_path / "run", train=a_folder(tmp_path / "data", {"cat": 12, "dog": 9}))
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    processes = [context.Process(target=read_sum, args=(tmp_path / "run", results)) for _ in range(2)]
    for process in processes:
        process.start()
    answers = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert answers == [(int(images.train.pixels.sum()), False)] * 2


def test_sizes_come_from_the_first_image_and_others_are_counted(tmp_path):
    root = a_folder(tmp_path / "data", {"cat": 10, "dog": 10})
    Image.new("RGB", (9, 4), "red").save(root / "dog" / "zzz.png")
    images, notices = prepared(tmp_path / "run", train=root)
    assert images.shape == ImageShape(3, 6, 5)
    assert "1 images had another size and were scaled and cut to the proportions of 6 × 5" in notices
    images, notices = prepared(tmp_path / "other", train=root, rows=4, columns=7, channels=1)
    assert images.shape == ImageShape(1, 4, 7)
    assert any(sentence.startswith("21 images had another size") for sentence in notices)


def test_the_size_follows_the_images_up_to_a_limit_and_the_notice_says_so(tmp_path):
    root = a_folder(tmp_path / "data", {"cat": 4, "dog": 4}, size=(28, 40))
    for max_size, expected in ((64, (28, 40)), (32, (28, 32))):
        images, notices = prepared(tmp_path / str(max_size), train=root, max_size=max_size)
        assert (images.shape.rows, images.shape.columns) == expected
        assert any(notice.startswith(f"the model is built for 28 × {expected[1]} pixels") for notice in notices)
    images, notices = prepared(tmp_path / "set", train=root, rows=8, columns=8)
    assert not any("the model is built for" in notice for notice in notices)
    with pytest.raises(ValidationError, match="max_size = 32 is for a size that the first image decides"):
        ImagesConfig(train=root, rows=8, columns=8, max_size=32)


def test_one_colour_image_among_grey_ones_makes_colour(tmp_path):
    root = a_folder(tmp_path / "data", {"cat": 10, "dog": 10}, mode="L")
    assert prepared(tmp_path / "grey", train=root)[0].shape.channels == 1
    Image.new("RGB", (5, 6), "red").save(root / "dog" / "005.png")
    assert prepared(tmp_path / "colour", train=root)[0].shape.channels == 3


def test_a_first_image_that_is_too_small_asks_for_a_size(tmp_path):
    root = a_folder(tmp_path / "data", {"cat": 10, "dog": 10})
    for path in (root / "cat").iterdir():
        Image.new("RGB", (1, 1)).save(path)
    with pytest.raises(
        UserError, match=r"the first image, cat/\d+\.png, has 1 × 1 pixels.*data\.rows and data\.columns"
    ):
        prepared(tmp_path / "run", train=root)
    assert prepared(tmp_path / "run", train=root, rows=6, columns=5)[0].shape == ImageShape(3, 6, 5)


def test_a_bad_image_stops_with_its_name_unless_it_may_be_left_out(tmp_path):
    root = a_folder(tmp_path / "data", {"cat": 10, "dog": 10})
    content = (root / "cat" / "004.png").read_bytes()
    (root / "cat" / "004.png").write_bytes(content[: len(content) // 2])
    (root / "dog" / "999.png").write_bytes(b"")
    with pytest.raises(UserError, match=r"(cat/004|dog/999)\.png is .*; --skip-bad leaves such images out"):
        prepared(tmp_path / "run", train=root)
    assert not (tmp_path / "run" / "images").exists()
    assert list((tmp_path / "run").iterdir()) == []
    images, notices = prepared(tmp_path / "run", train=root, skip_bad=True)
    assert sum(len(images.split(split)) for split in SPLITS) == 19
    names = {name for split in SPLITS for name in images.split(split).names}
    assert not names & {"cat/004.png", "dog/999.png"}
    assert any(line.startswith("2 images cannot be decoded and were left out, the first: ") for line in notices)


def test_a_class_of_bad_images_only_is_a_sentence(tmp_path):
    root = a_folder(tmp_path / "data", {"cat": 10, "dog": 10, "eel": 3})
    for path in (root / "eel").iterdir():
        path.write_bytes(b"nothing")
    with pytest.raises(UserError, match="no image of the class eel is left to train on"):
        prepared(tmp_path / "run", train=root, skip_bad=True)


def test_held_out_images_may_not_lie_inside_the_training_folder(tmp_path):
    root = a_folder(tmp_path / "data", {"cat": 4, "dog": 4})
    a_folder(root / "test", {"cat": 2, "dog": 2})
    with pytest.raises(ValidationError, match="is part of"):
        ImagesConfig(train=root, test=tmp_path / "data" / ".." / "data" / "test")


def test_only_bad_images_is_a_sentence(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "1.png").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"has no image that can be read.* the first of 2: cat/1\.png is not a picture"):
        prepared(tmp_path / "run", train=tmp_path / "data", skip_bad=True)
    with pytest.raises(
        UserError, match=r"no image is left to train on \(2 cannot be decoded, the first: .*cat/1\.png is not a picture"
    ):
        prepared(tmp_path / "run", train=tmp_path / "data", skip_bad=True, rows=4, columns=4)


def test_a_file_that_is_not_there_is_no_bad_image(tmp_path):
    root = a_folder(tmp_path, {"pictures": 9})
    lines = [f"pictures/{index:03}.png,{'even' if index % 2 == 0 else 'odd'}" for index in range(10)]
    (root / "train.csv").write_text("\n".join(["path,label", *lines]))
    with pytest.raises(UserError, match=r"1 of the 10 files that it names are not there, the first pictures/009\.png"):
        prepared(tmp_path / "run", train=root / "train.csv", skip_bad=True)


def test_a_class_folder_without_images_is_named(tmp_path):
    root = a_folder(tmp_path / "data", {"cat": 10, "dog": 10, "eel": 0})
    assert f"Folder eel in {root} contains no images and was ignored" in prepared(tmp_path / "run", train=root)[1]
    alone = a_folder(tmp_path / "alone", {"cat": 10, "eel": 0})
    with pytest.raises(UserError, match=r"one class only \(cat\), and no images in eel"):
        prepared(tmp_path / "run", train=alone)


def test_classes_must_be_known_from_training_and_be_classes(tmp_path):
    train = a_folder(tmp_path / "train", {"cat": 5, "dog": 5})
    bird = a_folder(tmp_path / "test", {"cat": 1, "bird": 1})
    with pytest.raises(
        UserError, match="images of the class bird, which has no training images: the classes are cat, dog"
    ):
        prepared(tmp_path / "run", train=train, test=bird)
    with pytest.raises(UserError, match="one class only"):
        prepared(tmp_path / "run", train=a_folder(tmp_path / "alone", {"cat": 5}))
    with pytest.raises(UserError, match="has the folders test, train, which are not classes"):
        prepared(tmp_path / "run", train=a_folder(tmp_path / "both", {"train/cat": 5, "train/dog": 5, "test/cat": 5}))


def test_a_table_and_idx_files_train_as_well(tmp_path):
    root = a_folder(tmp_path, {"pictures": 12}, mode="L")
    with (root / "train.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("path", "label"))
        rows.writerows((f"pictures/{index:03}.png", "even" if index % 2 == 0 else "odd") for index in range(12))
    images, _ = prepared(tmp_path / "run", train=root / "train.csv")
    assert images.classes == ("even", "odd")
    pixels, labels = np.zeros((20, 4, 4), np.uint8), (np.arange(20) % 2).astype(np.uint8)
    for name, array in (("x-images.gz", pixels), ("x-labels.gz", labels)):
        header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
        (tmp_path / name).write_bytes(gzip.compress(header + array.tobytes()))
    images, _ = prepared(tmp_path / "run2", train=tmp_path / "x-images.gz")
    assert (images.classes, images.shape) == (("0", "1"), ImageShape(1, 4, 4))


def test_other_files_are_counted_out_loud(tmp_path):
    root = a_folder(tmp_path / "data", {"cat": 10, "dog": 10})
    (root / "cat" / "notes.txt").write_text("x")
    assert f"{root}: 1 files are not images and were ignored" in prepared(tmp_path / "run", train=root)[1]


def test_a_damaged_run_says_what_to_do(tmp_path):
    images, _ = prepared(tmp_path / "run", train=a_folder(tmp_path / "data", {"cat": 10, "dog": 10}))
    path = tmp_path / "run" / "images" / "test.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(UserError, match=r"the test images in .* are incomplete"):
        _ = reopen(tmp_path / "run").test
    path.unlink()
    assert len(reopen(tmp_path / "run").valid) == len(images.valid)
    with pytest.raises(UserError, match="copy the run again"):
        _ = reopen(tmp_path / "run").test
    (tmp_path / "run" / "classes.json").write_text('{"classes": []}')
    with pytest.raises(UserError, match="this run is incomplete"):
        reopen(tmp_path / "run")


def test_nothing_that_is_unpickled_is_read(tmp_path):
    directory = tmp_path / "images"
    directory.mkdir()
    content = io.BytesIO()
    np.save(content, np.array([print], dtype=object), allow_pickle=True)
    for name in ("train.npy", "train.labels.npy"):
        (directory / name).write_bytes(content.getvalue())
    (directory / "train.names.json").write_text('["x"]')
    with pytest.raises(UserError):
        ImageSet.open(directory, "train", ImageShape(1, 1, 1))


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="choose another place"):
        prepared(tmp_path / "file" / "run", corpus="digits")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "name your images"),
        ({"corpus": "digits", "train": "."}, "take no files"),
        ({"train": ".", "test": "."}, "must be different"),
        ({"train": ".", "rows": 8}, "give both rows and columns"),
        ({"train": ".", "rows": 2, "columns": 8}, "greater than or equal to 4"),
        ({"train": ".", "channels": 2}, "1 or 3"),
        ({"train": "./no-such-folder"}, "there is no file or folder"),
    ],
)
def test_wrong_settings_are_refused(settings, sentence):
    with pytest.raises(ValidationError, match=sentence):
        ImagesConfig(**settings)


def test_reading_many_images_reports_its_progress(tmp_path, monkeypatch):
    photos = a_folder(tmp_path / "photos", {"cat": 6, "dog": 6})
    monkeypatch.setattr(image_cache, "_MANY", 12)
    monkeypatch.setattr(image_cache, "_INTERVAL", -1.0)
    _, notices = prepared(tmp_path / "run", train=str(photos))
    assert notices[:3] == ["reading 12 images", "0 of 12 images read", "1 of 12 images read"]
    assert "11 of 12 images read" in notices
    monkeypatch.setattr(image_cache, "_MANY", 13)
    monkeypatch.setattr(image_cache, "_INTERVAL", 60.0)
    _, notices = prepared(tmp_path / "another", train=str(photos))
    assert not any("reading" in line or "of 12" in line for line in notices)
