import gzip
import io
import json
import os
import random
import tracemalloc
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.text.lines import decoded_lines
from saccade.data.text.pairs import Report, normalise, read_pairs
from saccade.errors import UserError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def packed(content: bytes) -> bytes:
    """Gzip without the time of day, so that a test named after these bytes has the same name in every process."""
    return gzip.compress(content, mtime=0)


def test_two_aligned_files_give_pairs(tmp_path):
    source, target = write(tmp_path / "a.en", "a dog\na cat\n"), write(tmp_path / "a.fr", "un chien\nun chat")
    assert list(read_pairs(source, target)) == [("a dog", "un chien"), ("a cat", "un chat")]


def test_tab_separated_columns_give_pairs(tmp_path):
    assert list(read_pairs(write(tmp_path / "a.tsv", "a dog\tun chien\r\na cat\tun chat\r\n"))) == [
        ("a dog", "un chien"),
        ("a cat", "un chat"),
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.ndjson", "a.jsonl.gz"])
def test_json_lines_give_pairs(tmp_path, name):
    lines = [{"source": "a\tdog", "target": "un chien", "id": 1}, {"target": "un\nchat", "source": "a cat"}]
    file = write(tmp_path / name, "\n".join(map(json.dumps, lines)))
    assert list(read_pairs(file)) == [("a\tdog", "un chien"), ("a cat", "un chat")]


def test_gzip_is_known_by_its_content_not_its_name(tmp_path):
    packed = write(tmp_path / "a.tsv", gzip.compress(b"a\tb\n") + gzip.compress(b"c\td\n"))
    plain = write(tmp_path / "b.tsv.gz", b"a\tb\nc\td\n")
    assert list(read_pairs(packed)) == list(read_pairs(plain)) == [("a", "b"), ("c", "d")]


def test_a_byte_order_mark_is_not_text(tmp_path):
    assert list(read_pairs(write(tmp_path / "a.tsv", b"\xef\xbb\xbfa\tb"))) == [("a", "b")]


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x85", "\r"])
def test_only_newlines_end_a_line(tmp_path, inside):
    assert list(read_pairs(write(tmp_path / "a.tsv", f"a{inside}b\tc\nd\te\n"))) == [(f"a{inside}b", "c"), ("d", "e")]


def test_text_is_composed_and_stripped_and_lowercased_on_demand(tmp_path):
    file = write(tmp_path / "a.tsv", " E\u0301te\u0301 \tÉTÉ")
    assert list(read_pairs(file)) == [("Été", "ÉTÉ")]
    assert list(read_pairs(file, lowercase=True)) == [("été", "été")]
    assert normalise("e\u0301 ") == "é"


def test_reading_is_lazy(tmp_path):
    file = write(tmp_path / "a.tsv", b"a\tb\nc\td\n" + b"\xff\n")
    assert list(islice(read_pairs(file), 2)) == [("a", "b"), ("c", "d")]


def test_empty_sides_are_left_out_and_counted(tmp_path):
    report = Report()
    source = write(tmp_path / "a", "a\n\nc\n \nf\n")
    target = write(tmp_path / "b", "A\nB\n\t\n\nF\n")
    assert list(read_pairs(source, target, report=report)) == [("a", "A"), ("f", "F")]
    assert report.sentence() == "kept 2 of 5 pairs; left out 3 empty"


def test_the_report_says_only_what_happened():
    assert Report(read=1200).sentence() == "kept 1,200 of 1,200 pairs"
    full = Report(read=29000, empty=3, too_long=7, max_length=250)
    assert full.sentence() == "kept 28,990 of 29,000 pairs; left out 3 empty, 7 longer than 250 tokens"
    assert Report(read=10, held_out=2, repeated=1).sentence() == (
        "kept 7 of 10 pairs; held out 2 for validation and test; left out 1 that repeat a held-out sentence"
    )


def test_different_line_counts_are_reported_with_both_counts(tmp_path):
    short, long = write(tmp_path / "short", "a\nb\n"), write(tmp_path / "long", "a\nb\nc\nd\ne")
    with pytest.raises(UserError, match=r"short has 2 lines and .*long has 5"):
        list(read_pairs(short, long))
    with pytest.raises(UserError, match=r"long has 5 lines and .*short has 2"):
        list(read_pairs(long, short))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", b"a\tb\na\xffb\tc\n", "line 2: byte 0xff is not UTF-8"),
        ("a.tsv", b"a\tb\nab\n", "line 2: 1 column instead of two"),
        ("a.tsv", b"a\tb\tc\n", "line 1: 3 columns instead of two"),
        ("a.jsonl", b'{"source": "a", "target": "b"}\n{"source": ', "line 2: not valid JSON"),
        ("a.jsonl", b"[" * 99_999, "line 1: not valid JSON"),
        ("a.jsonl", b'{"source": "a"}', 'line 1: there is no text under the key "target"'),
        ("a.jsonl", b'{"source": 3, "target": "b"}', 'line 1: there is no text under the key "source"'),
        ("a.jsonl", b'{"source": "a", "target": "\\ud800"}', 'line 1: there is no text under the key "target"'),
        ("a.jsonl", b'["a", "b"]', 'line 1: there is no text under the key "source"'),
        ("a.tsv", b"a\tb\n" + b"c" * 100_001 + b"\td\n", "line 2: longer than 100,000 characters; shorten or delete"),
        ("a.tsv", b"a\tb\n" + "ü".encode() * 3_000_000, "line 2: longer than 100,000 characters"),
        ("a.tsv", b"", "is empty"),
        ("a.tsv", packed(b""), "is empty"),
        ("a.tsv", b"\n\t\n \n", "no pair has text on both sides"),
        ("a.tsv", packed(b"a\tb\n" * 1000)[:-9], "damaged or cut-off gzip"),
        ("a.tsv", packed(random.Random(0).randbytes(5000))[:1000], "damaged or cut-off gzip|not UTF-8"),
        ("a.tsv", b"\x1f\x8b nonsense", "damaged or cut-off gzip"),
        ("a.tsv", "a\tb".encode("utf-16"), "line 1: byte 0xff is not UTF-8 .it looks like UTF-16"),
    ],
)
def test_a_wrong_file_is_reported_in_one_sentence_with_its_place(tmp_path, name, content, message):
    file = write(tmp_path / name, content)
    with pytest.raises(UserError, match=message) as raised:
        list(read_pairs(file))
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_file_or_a_directory_is_reported_before_anything_is_read(tmp_path):
    there = write(tmp_path / "there", "a\n")
    with pytest.raises(UserError, match=r"there is no file .*missing"):
        read_pairs(there, tmp_path / "missing")
    with pytest.raises(UserError, match="is a directory"):
        read_pairs(tmp_path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="this user may read everything")
def test_a_file_without_permission_is_reported(tmp_path):
    file = write(tmp_path / "a.tsv", "a\tb\n")
    file.chmod(0)
    with pytest.raises(UserError, match="permission denied"):
        read_pairs(file)


sentences = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\t\ufeff"), max_size=12)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(sentences, sentences), min_size=1))
def test_three_formats_hold_the_same_pairs(tmp_path_factory, pairs):
    folder = tmp_path_factory.mktemp("corpus")
    sources = write(folder / "a", "".join(source + "\n" for source, _ in pairs))
    targets = write(folder / "b", gzip.compress("".join(target + "\n" for _, target in pairs).encode()))
    tabs = write(folder / "c.tsv", "\r\n".join(f"{source}\t{target}" for source, target in pairs) + "\n")
    lines = write(
        folder / "d.jsonl", "\n".join(json.dumps({"source": source, "target": target}) for source, target in pairs)
    )
    whole = [(normalise(source), normalise(target)) for source, target in pairs]
    expected = [pair for pair in whole if all(pair)]
    for files in ((sources, targets), (tabs,), (lines,)):
        report = Report()
        if expected:
            assert list(read_pairs(*files, report=report)) == expected
            assert (report.read, report.kept) == (len(pairs), len(expected))
        else:
            with pytest.raises(UserError, match="no pair"):
                list(read_pairs(*files))


def test_a_line_of_any_length_is_read_in_little_memory_and_the_next_lines_are_kept():
    bad: dict[int, str] = {}
    stream = io.BytesIO(b"first\n" + b"x" * 30_000_000 + b"\n\xff\nlast")
    tracemalloc.start()
    assert list(decoded_lines(stream, "stdin", bad)) == ["first", "", "", "last"]
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()
    assert bad == {1: "stdin, line 2: longer than 100,000 characters", 2: "stdin, line 3: byte 0xff is not UTF-8"}
