import gzip

import pytest

from saccade.data.text.vectors import read_vectors
from saccade.errors import UserError


def test_gloves_and_word2vecs_text_files_are_read(tmp_path):
    (tmp_path / "v.gz").write_bytes(gzip.compress(b"2 3\nthe 1 2 3\n. -1 0.5 2e-1\n"))
    vectors = read_vectors(tmp_path / "v.gz")
    assert (vectors.words, vectors.size) == (("the", "."), 3)
    assert vectors.matrix[1].tolist() == pytest.approx([-1, 0.5, 0.2])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("the 1 2\nof 1\n", "line 2, has 1 numbers and the lines before 2"),
        ("the 1 2\nof one two\n", "line 2, is not a word and numbers"),
        ("3 4\n", "holds no word vectors"),
    ],
)
def test_other_files_are_refused(tmp_path, content, said):
    (tmp_path / "v.txt").write_text(content)
    with pytest.raises(UserError, match=said):
        read_vectors(tmp_path / "v.txt")
