"""Caption files of three kinds say the same; what cannot be read is named with its line."""

import csv
import json

import pytest

from saccade.data.captions.files import plain, read_captions, read_names
from saccade.errors import UserError

ROWS = [
    ("b.jpg", "A dog runs ."),
    ("b.jpg", "Two dogs, one of them black, run!"),
    ("a.jpg", 'A "girl" in a T-shirt .'),
]
EXPECTED = {"b.jpg": ("a dog runs", "two dogs one of them black run"), "a.jpg": ("a girl in a t shirt",)}


def flickr(path):
    path.write_text("".join(f"{name}#{number}\t{caption}\n" for number, (name, caption) in enumerate(ROWS)))


def coco(path):
    images = [{"id": 7, "file_name": "b.jpg"}, {"id": 9, "file_name": "a.jpg"}]
    notes = [{"image_id": 7 if name == "b.jpg" else 9, "caption": caption} for name, caption in ROWS]
    path.write_text(json.dumps({"info": {}, "images": images, "annotations": notes}))


def table(path):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("image", "caption"), *ROWS])


def table_of_a_spreadsheet(path):
    """With a byte order mark, other columns, capital letters and Windows' line ends."""
    lines = ["Number,Caption,Image"] + [
        f'{number},"{caption.replace(chr(34), chr(34) * 2)}",{name}' for number, (name, caption) in enumerate(ROWS)
    ]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())


@pytest.mark.parametrize("write", [flickr, coco, table, table_of_a_spreadsheet])
def test_every_kind_of_file_gives_the_captions_of_each_image(tmp_path, write):
    write(tmp_path / "captions")  # told by its content, not its ending
    assert read_captions(tmp_path / "captions").captions == EXPECTED


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("A Man .", "a man"),
        ("The dog 's T-shirt!", "the dogs t shirt"),
        ("they don't", "they dont"),
        ("the 'big' one", "the big one"),
        ("l’été – 3.5 m_2", "lété 3 5 m 2"),
        ("Ete\u0301", "ét\u00e9".replace("é", "e", 1)),
        (" . , ", ""),
    ],
)
def test_captions_are_lower_case_words(caption, words):
    assert plain(caption) == words


def test_captions_without_a_word_are_counted(tmp_path):
    (tmp_path / "captions.txt").write_text("a.jpg#0\tA dog .\na.jpg#1\t.\n\nb.jpg#0\t\n")
    found = read_captions(tmp_path / "captions.txt")
    assert found.captions == {"a.jpg": ("a dog",)}
    assert found.empty == 2


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a.jpg#0\tA dog .\na.jpg A dog .\n", "line 2, is not NAME#NUMBER, a tab and a caption"),
        (b"", "contains no captions"),
        (b"image,caption\n", "contains no captions"),
        (b"image,caption\na.jpg,one\nb.jpg\n", "line 3, lacks an image or a caption"),
        (b'{"images": []}', "is not COCO's caption JSON"),
        (b'{"images": [', "is not COCO's caption JSON"),
        (b'{"images": [], "annotations": [{"image_id": 4, "caption": "x"}]}', "KeyError: 4"),
        (b"a.jpg#0\tcaf\xe9\n", "is not text in UTF-8"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, content, sentence):
    (tmp_path / "captions.txt").write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        read_captions(tmp_path / "captions.txt")


def test_a_list_has_a_name_on_each_line(tmp_path):
    (tmp_path / "list.txt").write_text("b.jpg\n\n a.jpg \n")
    assert read_names(tmp_path / "list.txt") == ["b.jpg", "a.jpg"]
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(UserError, match=r"empty\.txt names no images"):
        read_names(tmp_path / "empty.txt")
