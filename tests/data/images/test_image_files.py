"""Images are found in folders, zips, tables and idx files, and nowhere else."""

import gzip
import io
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from saccade.data.images.decoding import BadImage
from saccade.data.images.files import in_order, list_images
from saccade.data.images.store import open_file, open_store
from saccade.errors import UserError


def png(value: int = 0) -> bytes:
    content = io.BytesIO()
    Image.new("L", (5, 4), value).save(content, "PNG")
    return content.getvalue()


def fill(root: Path, names: list[str]) -> Path:
    for value, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(png(value))
    return root


def zipped(path: Path, names: list[str], content=None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for value, name in enumerate(names):
            archive.writestr(name, png(value) if content is None else content)
    return path


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def opened(listing) -> list[int]:
    return [listing.open(index).getpixel((0, 0)) for index in range(len(listing))]


NAMES = ["dog/b.png", "cat/2.PNG", "cat/1.png", "dog/deep/a.png"]


@pytest.mark.parametrize("wrapped", ["", "images/", "a/b/"])
def test_a_folder_and_its_zip_list_the_same_images_in_the_same_order(tmp_path, wrapped):
    names = [wrapped + name for name in NAMES]
    folder, archive = list_images(fill(tmp_path / "data", names)), list_images(zipped(tmp_path / "data.zip", names))
    for listing in (folder, archive):
        assert listing.names == sorted(names)
        assert listing.labels == ["cat", "cat", "dog", "dog"]
        assert opened(listing) == [2, 1, 0, 3]


def test_a_class_that_is_alone_in_its_folder_is_still_a_class(tmp_path):
    fill(tmp_path / "valid", ["cat/deep/1.png", "cat/deep/2.png"])
    assert list_images(tmp_path / "valid", classes=("cat", "dog")).labels == ["cat", "cat"]


def test_what_systems_leave_behind_is_passed_over_and_other_files_are_counted(tmp_path):
    root = fill(tmp_path / "data", [*NAMES, ".git/x.png", "cat/.hidden.png"])
    (root / "cat" / "notes.txt").write_text("hello")
    (root / ".DS_Store").write_text("x")
    listing = list_images(root)
    assert (listing.names, listing.ignored) == (sorted(NAMES), 1)
    archive = zipped(tmp_path / "data.zip", [*NAMES, "__MACOSX/cat/._1.png", "cat/readme.md"])
    listing = list_images(archive)
    assert (listing.names, listing.ignored) == (sorted(NAMES), 1)


def test_images_outside_of_a_class_folder_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"has 2 images outside of any class folder, the first x\.png"):
        list_images(fill(tmp_path / "data", [*NAMES, "x.png", "y.png"]))
    with pytest.raises(UserError, match="has 1 image outside"):
        list_images(zipped(tmp_path / "a.zip", [*NAMES, "x.png"]))


def test_a_place_without_images_is_refused(tmp_path):
    (tmp_path / "empty" / "cat").mkdir(parents=True)
    for path in (tmp_path / "empty", zipped(tmp_path / "a.zip", ["readme.txt"])):
        with pytest.raises(UserError, match="contains no images"):
            list_images(path)


def test_class_names_are_the_same_however_an_accent_is_stored(tmp_path):
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    archive = zipped(tmp_path / "a.zip", [f"{composed}/1.png", f"{decomposed}/2.png", "tea/1.png"])
    assert set(list_images(archive).labels) == {composed, "tea"}


def test_classes_are_in_the_order_of_the_alphabet_or_of_numbers():
    assert in_order(["b", "a", "b", "10"]) == ("10", "a", "b")
    assert in_order(["10", "9", "0"]) == ("0", "9", "10")


def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_read(tmp_path):
    root = fill(tmp_path / "data", NAMES)
    (root / "cat" / "3.png").symlink_to(root / "dog" / "b.png")
    assert len(list_images(root)) == 5
    secret = fill(tmp_path / "elsewhere", ["secret.png"])
    (root / "dog" / "c.png").symlink_to(secret / "secret.png")
    with pytest.raises(UserError, match="outside of"):
        list_images(root)
    (root / "dog" / "c.png").unlink()
    (root / "bird").symlink_to(secret)
    with pytest.raises(UserError, match="outside of"):
        list_images(root)


def test_a_folder_that_is_itself_a_link_is_read(tmp_path):
    fill(tmp_path / "data", NAMES)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    assert len(list_images(tmp_path / "link")) == 4


@pytest.mark.parametrize("name", [b"cat/caf\xe9.png", b"caf\xe9/1.png"])
def test_a_name_that_is_no_text_is_refused(tmp_path, name):
    path = os.path.join(os.fsencode(fill(tmp_path / "data", NAMES)), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(png())
    with pytest.raises(UserError, match=r"not UTF-8, .*caf\\xe9.*: rename it"):
        list_images(tmp_path / "data")


def test_a_table_names_paths_and_labels(tmp_path):
    fill(tmp_path, ["pictures/1.png", "pictures/2.png"])
    table = tmp_path / "train.csv"
    table.write_bytes(b"\xef\xbb\xbfid, Label,PATH\n7, cat ,pictures/2.png\n8,dog,pictures/1.png\n")
    listing = list_images(table)
    assert (listing.names, listing.labels) == (["pictures/2.png", "pictures/1.png"], ["cat", "dog"])
    assert opened(listing) == [1, 0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("file,class\na.png,cat\n", "must name the columns path and label"),
        ("", "must name the columns path and label"),
        ("path,label\n", "no lines after the first"),
        ("path,label\na.png,\n", "line 2, lacks a path or a label"),
        ("path,label\na.png\n", "line 2, lacks a path or a label"),
        ("path,label\n../secret.png,cat\n", "outside of"),
        ("path,label\n/etc/hostname,cat\n", "outside of"),
        ("path,label\n\x00,cat\n", "not a readable CSV"),
        ("path,label\na.png,cat\nb.png,cat\nx/../a.png,cat\n", "in line 2 and again in line 4"),
        ("path,label\na.png,cat\na.png,dog\n", "in line 2 and again in line 3"),
    ],
)
def test_a_wrong_table_is_refused_in_a_sentence(tmp_path, text, sentence):
    (tmp_path / "data").mkdir()
    table = tmp_path / "data" / "train.csv"
    table.write_text(text)
    with pytest.raises(UserError, match=sentence):
        list_images(table)


def test_a_table_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "a.csv").write_bytes("path,label\na.png,caf\u00e9\n".encode("latin-1"))
    with pytest.raises(UserError, match="UTF-8"):
        list_images(tmp_path / "a.csv")


def test_lines_for_missing_files_are_counted_and_the_first_is_named(tmp_path):
    fill(tmp_path, ["here.png"])
    (tmp_path / "a.csv").write_text("path,label\nhere.png,cat\nmissing.png,cat\nlost.png,dog\n")
    with pytest.raises(
        UserError, match=r"2 of the 3 files that it names are not there, the first missing\.png in line 3"
    ):
        list_images(tmp_path / "a.csv")


def test_a_table_with_other_marks_between_its_columns_is_told_to_have_commas(tmp_path):
    (tmp_path / "a.csv").write_text("path;label\na.png;cat\n")
    with pytest.raises(UserError, match="must name the columns path and label, separated by commas"):
        list_images(tmp_path / "a.csv")


@pytest.mark.parametrize("wrapped", ["", "images/"])
def test_folders_beside_the_classes_that_hold_no_image_are_named(tmp_path, wrapped):
    root = fill(tmp_path / "data", [wrapped + name for name in NAMES])
    (root / wrapped / "eel").mkdir()
    (root / wrapped / "fox" / "deep").mkdir(parents=True)
    (root / wrapped / "fox" / "deep" / "notes.txt").write_text("x")
    (root / wrapped / ".git").mkdir()
    assert list_images(root).empty == ["eel", "fox"]
    archive = zipped(tmp_path / "data.zip", [wrapped + name for name in (*NAMES, "fox/deep/notes.txt")])
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr(f"{wrapped}eel/", b"")
    assert list_images(archive).empty == ["eel", "fox"]


@pytest.mark.parametrize("packed", [True, False])
def test_idx_files_are_pictures_and_labels(tmp_path, packed):
    images, labels = np.arange(60, dtype=np.uint8).reshape(3, 4, 5), np.array([7, 10, 7], np.uint8)
    ending, pack = (".gz", gzip.compress) if packed else ("", bytes)
    (tmp_path / f"t-images-idx3-ubyte{ending}").write_bytes(pack(idx(images)))
    (tmp_path / f"t-labels-idx1-ubyte{ending}").write_bytes(pack(idx(labels)))
    listing = list_images(tmp_path / f"t-images-idx3-ubyte{ending}")
    assert listing.labels == ["7", "10", "7"]
    np.testing.assert_array_equal([np.asarray(listing.open(index)) for index in range(3)], images)


def test_in_a_folder_of_idx_files_one_of_them_is_to_be_named(tmp_path):
    for name in ("t-images-idx3-ubyte.gz", "t-labels-idx1-ubyte.gz"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(UserError, match=r"is a folder of idx files: give the file of the images, .*t-images-idx3"):
        list_images(tmp_path)


def test_damaged_idx_files_are_refused(tmp_path):
    images, labels = tmp_path / "images", tmp_path / "labels"
    content = idx(np.zeros((3, 4, 5), np.uint8))
    images.write_bytes(content)
    with pytest.raises(UserError, match=r"expected in .*labels, which is not there"):
        list_images(images)
    labels.write_bytes(idx(np.zeros(2, np.uint8)))
    with pytest.raises(UserError, match=r"3 images but .* 2 labels"):
        list_images(images)
    for broken in (content[:-1], content + b"x", content[:6], gzip.compress(content)[:-9], gzip.compress(b"hello")):
        images.write_bytes(broken)
        with pytest.raises(UserError, match=r"copy it again|is not an idx file"):
            list_images(images)
    images.write_bytes(bytes([0, 0, 8, 3]) + b"\xff" * 12)  # promises 2^96 numbers
    with pytest.raises(UserError, match="announces"):
        list_images(images)
    (tmp_path / "digits").write_bytes(content)
    with pytest.raises(UserError, match="with labels instead of images"):
        list_images(tmp_path / "digits")


def test_damaged_zip_files_are_refused(tmp_path):
    whole = zipped(tmp_path / "a.zip", NAMES).read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    for read in (list_images, open_store):
        with pytest.raises(UserError, match=r"cut\.zip is a damaged or incomplete zip file"):
            read(tmp_path / "cut.zip")
    broken = bytearray(whole)
    broken[60:70] = b"0123456789"  # inside the first image's bytes
    (tmp_path / "broken.zip").write_bytes(broken)
    listing = list_images(tmp_path / "broken.zip")
    with pytest.raises(BadImage, match=r"dog/b\.png in broken\.zip cannot be unpacked"):
        listing.open(listing.names.index("dog/b.png"))


def test_a_zip_never_writes_and_its_names_lead_nowhere(tmp_path):
    archive = zipped(tmp_path / "a.zip", ["../evil/1.png", "/etc/2.png", "C:\\evil\\3.png", *NAMES])
    listing = list_images(archive)
    assert sorted(opened(listing)) == [1, 2, 3, 4, 5, 6]  # all but the one in a folder called ".."
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]


def test_an_entry_that_unpacks_to_more_than_a_picture_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("saccade.data.images.store._LARGEST_FILE", 1000)
    archive = zipped(tmp_path / "a.zip", ["cat/1.png"], b"\0" * 100_000)
    with pytest.raises(BadImage, match="100,000 bytes, more than any image"):
        list_images(archive).open(0)
    (tmp_path / "large.png").write_bytes(b"\0" * 1001)
    with pytest.raises(BadImage, match="1,001 bytes"):
        open_file(tmp_path / "large.png", "large.png")


def test_something_else_is_refused_with_what_is_possible(tmp_path):
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(UserError, match="give a folder with a folder for each class, a zip of one"):
        list_images(tmp_path / "a.txt")
    with pytest.raises(UserError, match="cannot be read"):
        list_images(tmp_path / "nothing")


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is readable to root")
def test_a_file_without_rights_is_a_sentence(tmp_path):
    root = fill(tmp_path / "data", NAMES)
    (root / "cat" / "1.png").chmod(0)
    with pytest.raises(BadImage, match="Permission denied"):
        list_images(root).open(0)
