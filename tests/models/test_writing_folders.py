"""Folders for transformers: both kinds of tokenizer give a text back as it was, each with the special tokens of its kind."""

import json

import pytest
import torch

from saccade.data.text.tokenizer import Tokenizer
from saccade.models.hugging_face.writing import write_causal, write_tokenizer

TEXT = "the cat , the mat ."


@pytest.fixture(scope="module")
def ours():
    return Tokenizer.train([TEXT] * 5, "bpe", 280)


def read(directory):
    transformers = pytest.importorskip("transformers")
    return transformers.PreTrainedTokenizerFast.from_pretrained(directory)


def test_an_encoders_has_special_tokens_around_a_text_and_a_mask(ours, tmp_path):
    write_tokenizer(tmp_path, ours.to_engine(), ours.special, 16)
    theirs = read(tmp_path)
    assert theirs(TEXT).input_ids == ours.around(ours.encode(TEXT)).ids
    assert (theirs.cls_token_id, theirs.sep_token_id) == (ours.special.first, ours.special.last)
    assert (theirs.mask_token_id, theirs.model_max_length) == (ours.special.mask, 16)
    written = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert written["clean_up_tokenization_spaces"] is False  # not every reader's default
    assert theirs.decode(theirs(TEXT).input_ids, skip_special_tokens=True) == TEXT


def test_a_causal_models_has_a_beginning_and_an_end_and_no_mask(ours, tmp_path):
    write_causal(tmp_path, {"vocab_size": 280}, {"x": torch.zeros(2, 3).T}, ours, 16)
    theirs = read(tmp_path)
    assert theirs(TEXT).input_ids == ours.encode(TEXT)
    assert (theirs.bos_token_id, theirs.eos_token_id) == (ours.special.first, ours.special.last)
    assert (theirs.mask_token, theirs.cls_token) == (None, None)
    assert theirs.decode(theirs(TEXT).input_ids) == TEXT
