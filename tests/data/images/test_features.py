"""Features of a frozen encoder are computed once, gone on with after an interruption, and never mixed up."""

import multiprocessing

import numpy as np
import pytest
import torch
from torch import nn

from saccade.data.images.features import cache_directory, features
from saccade.errors import UserError


class Squares(nn.Module):
    """Each of 2 × 3 cells has the mean of its pixels and its square. Counts the images it saw."""

    size, grid, frozen = 2, (2, 3), True

    def __init__(self, mark="one", break_after=10**9):
        super().__init__()
        self.mark, self.seen, self.break_after = mark, 0, break_after

    def forward(self, images):
        self.seen += len(images)
        if self.seen > self.break_after:
            raise KeyboardInterrupt
        means = nn.functional.adaptive_avg_pool2d(images.float() / 255, self.grid).mean(1).flatten(1)
        return torch.stack((means, means**2), -1)

    def fingerprint(self):
        return self.mark


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (30, 3, 8, 12), dtype=np.uint8)


def expected(pixels):
    means = pixels.reshape(30, 3, 2, 4, 3, 4).mean((1, 3, 5)).reshape(30, 6) / 255
    return np.stack((means, means**2), -1)


def test_features_are_those_of_the_encoder(pixels, tmp_path):
    said = []
    found = features(Squares(), pixels, tmp_path, said.append)
    assert found.shape == (30, 6, 2)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, expected(pixels), atol=1e-3)
    assert said == ["computing features of 30 images", "features of 30 images of 6 cells × 2 are ready"]


def test_they_are_computed_once(pixels, tmp_path):
    first = features(Squares(), pixels, tmp_path, print)
    encoder, said = Squares(), []
    again = features(encoder, pixels.copy(), tmp_path, said.append)
    assert encoder.seen == 0
    assert said == []
    np.testing.assert_array_equal(first, again)


def test_another_encoder_or_other_pixels_have_features_of_their_own(pixels, tmp_path):
    features(Squares(), pixels, tmp_path, print)
    other, more = Squares("other"), Squares()
    features(other, pixels, tmp_path, print)
    assert other.seen == 30
    changed = pixels.copy()
    changed[29, 2, 7, 11] ^= 1
    features(more, changed, tmp_path, print)
    assert more.seen == 30
    assert len(list(tmp_path.rglob("*.npy"))) == 3
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("cut", [0, 5])
def test_work_that_was_stopped_goes_on_where_it_was(pixels, tmp_path, cut):
    with pytest.raises(KeyboardInterrupt):
        features(Squares(break_after=16), pixels, tmp_path, print)
    (partial,) = tmp_path.rglob("*.partial")
    assert not list(tmp_path.rglob("*.npy"))
    if cut:  # the last image was only half written
        partial.write_bytes(partial.read_bytes()[:-cut])
    encoder, said = Squares(), []
    found = features(encoder, pixels, tmp_path, said.append)
    there = 15 if cut else 16
    assert encoder.seen == 30 - there
    assert said[0] == f"computing features of {30 - there} images ({there} are cached)"
    np.testing.assert_allclose(found, expected(pixels), atol=1e-3)


def _in_a_process(directory, pixels, answers):
    encoder = Squares()
    found = features(encoder, pixels, directory, lambda said: None)
    answers.put((encoder.seen, float(found.sum(dtype=np.float64))))


def test_of_two_processes_one_computes_and_both_have_the_same(pixels, tmp_path):
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    processes = [context.Process(target=_in_a_process, args=(tmp_path, pixels, answers)) for _ in range(2)]
    for process in processes:
        process.start()
    found = sorted(answers.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    assert [seen for seen, _ in found] == [0, 30]
    assert found[0][1] == found[1][1]
    assert not list(tmp_path.rglob("*.partial"))


def test_an_encoder_that_learns_has_no_lasting_features(pixels, tmp_path):
    encoder = Squares()
    encoder.frozen = False
    with pytest.raises(ValueError, match="freeze it first"):
        features(encoder, pixels, tmp_path, print)


def test_numbers_that_do_not_fit_are_refused(pixels, tmp_path):
    class Huge(Squares):
        def forward(self, images):
            return super().forward(images) * 1e6

    with pytest.raises(UserError, match="not finite 16-bit numbers"):
        features(Huge(), pixels, tmp_path, print)


def test_a_damaged_file_is_named(pixels, tmp_path):
    features(Squares(), pixels, tmp_path, print)
    (file,) = tmp_path.rglob("*.npy")
    file.write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"is damaged .*delete it"):
        features(Squares(), pixels, tmp_path, print)


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "here"))
    assert cache_directory() == tmp_path / "here"
    monkeypatch.delenv("SACCADE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "saccade"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_directory() == tmp_path / ".cache" / "saccade"
