"""Images by name, from a folder or a zip, and nothing from outside of it."""

import zipfile

import numpy as np
import pytest
from PIL import Image

from saccade.data.images.decoding import BadImage
from saccade.data.images.store import open_store
from saccade.errors import UserError


@pytest.fixture
def folder(tmp_path):
    for number, name in enumerate(["photos/a.png", "photos/b.png", "more/b.png", "c.PNG"]):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2), (number, 0, 0)).save(path)
    (tmp_path / "images" / "notes.txt").write_text("no image")
    (tmp_path / "images" / ".hidden.png").write_text("no image")
    return tmp_path / "images"


def zipped(folder):
    with zipfile.ZipFile(folder.parent / "images.zip", "w") as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
        archive.writestr("__MACOSX/._a.png", b"no image")
    return folder.parent / "images.zip"


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_images_are_found_by_path_and_by_a_bare_name_that_is_theirs_alone(folder, kind):
    store = open_store(folder if kind == "folder" else zipped(folder))
    assert list(store.names) == ["c.PNG", "more/b.png", "photos/a.png", "photos/b.png"]
    assert store.find("photos/b.png") == "photos/b.png"
    assert store.find("./photos/b.png") == "photos/b.png"
    assert store.find("photos\\b.png") == "photos/b.png"
    assert store.find("a.png") == "photos/a.png"
    assert store.find("elsewhere/a.png") == "photos/a.png"
    assert store.find("b.png") is None  # there are two
    assert store.find("d.png") is None
    assert np.asarray(store.open("more/b.png"))[0, 0, 0] == 2


def test_a_link_out_of_the_folder_is_refused(folder, tmp_path):
    Image.new("L", (2, 2)).save(tmp_path / "secret.png")
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(UserError, match="outside of"):
        open_store(folder)


def test_a_damaged_entry_is_a_bad_image(folder):
    path = zipped(folder)
    content = bytearray(path.read_bytes())
    place = content.find(b"IHDR")
    content[place : place + 8] = bytes(8)
    path.write_bytes(content)
    with pytest.raises(BadImage, match=r"c\.PNG in images\.zip cannot be unpacked"):
        open_store(path).open("c.PNG")


def test_what_holds_no_images_is_refused(tmp_path):
    with pytest.raises(UserError, match="contains no images"):
        open_store(tmp_path)
    (tmp_path / "table.csv").write_text("path,label")
    with pytest.raises(UserError, match="neither a folder nor a zip file"):
        open_store(tmp_path / "table.csv")
    with pytest.raises(UserError, match="neither a folder nor a zip file"):
        open_store(tmp_path / "nothing")
