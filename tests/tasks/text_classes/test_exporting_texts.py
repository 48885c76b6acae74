"""Text classifiers for other engines: transformers and onnxruntime answer what predict answers."""

import subprocess
import sys

import pytest
import torch

import saccade as library
from saccade.errors import UserError
from saccade.runs.train import train

TEXTS = ["We sat upstairs. I thought the service was not friendly at all.", "The food was lovely!", "İstanbul xyzzy"]


def exported(run, engine, directory):
    return run.task.exports()[engine].write(directory, None)


@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_transformers_answers_what_we_answer(bert_run, tiny_bert, tmp_path, kind):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    path = bert_run
    if kind == "bpe":
        path = train("reviews-lstm", [*tiny_bert, "data.tokenizer=bpe", "data.vocab_size=400"], tmp_path / "run")
    run = library.load(path)
    assert "BertForSequenceClassification" in exported(run, "huggingface", tmp_path / "theirs")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "theirs").eval()
    assert model.config.id2label == {0: "bad", 1: "good"}
    with torch.no_grad():
        theirs = model(**tokenizer(TEXTS[:2], padding=True, return_tensors="pt")).logits
    ours = run.task.model(*run.task.padded(run.task.tokenizer.encode_batch(TEXTS[:2])))
    torch.testing.assert_close(theirs, ours, atol=1e-4, rtol=0)


def test_what_was_exported_can_be_started_from_and_used_like_a_run(bert_run, tmp_path):
    run = library.load(bert_run)
    exported(run, "huggingface", tmp_path / "theirs")
    again = library.load(tmp_path / "theirs")
    for one, other in zip(run.predict(TEXTS), again.predict(TEXTS), strict=True):
        assert (one.text, one.probability) == (other.text, pytest.approx(other.probability, abs=1e-5))


def test_onnxruntime_answers_what_we_answer(bert_run, tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install 'saccade[export]')")
    run = library.load(bert_run)
    assert "differ from torch's by at most" in exported(run, "onnx", tmp_path / "graph")
    program = (tmp_path / "graph" / "README.txt").read_text().partition("    import json")[2]
    code = "import json" + "\n".join(line.removeprefix("    ") for line in program.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "graph", input="\n".join(TEXTS), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for line, answer in zip(done.stdout.splitlines(), run.predict(TEXTS), strict=True):
        name, share = line.split("\t")
        assert (name, float(share)) == (answer.text, pytest.approx(answer.probability, abs=2e-4))


def test_what_cannot_be_exported_says_why(text_run, bert_run, tiny_bert, tmp_path):
    for engine in ("onnx", "huggingface"):
        with pytest.raises(UserError, match="takes its steps in a loop as long as the text"):
            exported(library.load(text_run), engine, tmp_path / engine)
    run = library.load(train("reviews-lstm", [*tiny_bert, "model.pooling=mean"], tmp_path / "run"))
    with pytest.raises(UserError, match=r"transformers' BERT has .*and this model has pooling mean"):
        exported(run, "huggingface", tmp_path / "theirs")
    assert not (tmp_path / "theirs").exists()
