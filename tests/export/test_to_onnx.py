"""onnxruntime, which nobody here wrote, computes what torch computes, at every batch size and length."""

import subprocess
import sys

import onnx
import onnxruntime
import pytest
import torch

from saccade import load
from saccade.attention import Attend
from saccade.errors import UserError
from saccade.tasks.translation.export import onnx as to_onnx
from saccade.tasks.translation.export.onnx import export_onnx

from .readme import program_of


@pytest.fixture(scope="module")
def exported(random_run, tmp_path_factory):
    run = random_run("model.layers=1", "data.max_length=90")
    return run, export_onnx(run.task, tmp_path_factory.mktemp("onnx") / "model")


def log_probs_by_steps(run, source, lengths, target):
    """Row by row without padding, one step at a time."""
    model, rows = run.task.model, []
    with torch.no_grad():
        for words, length, given in zip(source, lengths, target, strict=True):
            state = model.start(model.encode(words[None, :length], length[None]))
            steps = []
            for token in given:
                logits, state = model.step(token[None], state)
                steps.append(logits.log_softmax(-1))
            rows.append(torch.stack(steps, 1))
    return torch.cat(rows)


def check_equal(run, path, rows, source_length, target_length):
    torch.manual_seed(rows)
    size = len(run.task.vocabularies.source)
    lengths = torch.randint(1, source_length + 1, (rows,))
    lengths[0] = source_length
    source = torch.randint(3, size, (rows, source_length)).masked_fill(
        torch.arange(source_length) >= lengths[:, None], 0
    )
    target = torch.randint(3, size, (rows, target_length))
    read, write = (onnxruntime.InferenceSession(path / f"{half}.onnx") for half in ("encoder", "decoder"))
    (annotations,) = read.run(None, {"source": source.numpy(), "lengths": lengths.numpy()})
    inputs = {"annotations": annotations, "lengths": lengths.numpy(), "target": target.numpy()}
    (logits,) = write.run(None, inputs)
    found = torch.from_numpy(logits).log_softmax(-1)
    torch.testing.assert_close(found, log_probs_by_steps(run, source, lengths, target), atol=1e-4, rtol=0)


@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 1, 5), (2, 91, 40), (9, 20, 12)], ids=str)
def test_it_is_right_at_every_batch_size_and_length(exported, shape):
    run, graphs = exported
    check_equal(run, graphs.path, *shape)


def test_the_axes_that_are_free_have_names(exported):
    model = onnx.load(exported[1].path / "decoder.onnx")
    onnx.checker.check_model(model, full_check=True)
    axes = {
        each.name: [axis.dim_param or axis.dim_value for axis in each.type.tensor_type.shape.dim]
        for each in [*model.graph.input, *model.graph.output]
    }
    size = len(exported[0].task.vocabularies.target)
    assert axes == {
        "annotations": ["batch", "source_length", 16],
        "lengths": ["batch"],
        "target": ["batch", "target_length"],
        "logits": ["batch", "target_length", size],
    }


def test_the_model_in_use_keeps_its_routes(exported):
    assert all(module.route is None for module in exported[0].task.model.modules() if isinstance(module, Attend))


def test_the_program_in_the_readme_translates_without_saccade(exported):
    run, graphs = exported
    program = program_of((graphs.path / "README.txt").read_text(encoding="utf-8"))
    assert "saccade" not in program
    lines = ["1 2 3", " 4 5 6 7 "]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=graphs.path, input="\n".join(lines), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [answer.text for answer in run.predict(lines, search="greedy")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        ["positions=learned", "score=additive", "norm=post", "activation=gated", "max_length=60"],
        ["positions=rotary", "score=cosine", "activation=gelu"],
        ["positions=learned", "score=location", "max_length=60", "shared=true"],
        ["positions=rotary", "score=perceptron"],
        ["score=general", "tied=false"],
        ["score=concat"],
        ["score=dot", "layers=2"],
    ],
    ids=" ".join,
)
def test_every_score_and_position_becomes_a_graph(random_run, tmp_path, changes):
    run = random_run("model.layers=1", "data.max_length=59", *(f"model.{change}" for change in changes))
    assert export_onnx(run.task, tmp_path / "model").difference < 1e-4
    for shape in ((1, 1, 1), (3, 60, 30)):
        check_equal(run, tmp_path / "model", *shape)


def test_what_computes_something_else_is_not_kept(exported, random_run, tmp_path, monkeypatch):
    def wrong(half, example, path, *names, **axes):
        path.write_bytes((exported[1].path / path.name).read_bytes())

    monkeypatch.setattr(to_onnx, "write_graph", wrong)
    other = random_run("model.layers=1", "data.max_length=90", ending=0.01)
    with pytest.raises(UserError, match="does not compute what torch computes"):
        export_onnx(other.task, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_recurrent_model_is_refused_and_why(tiny_run, tmp_path):
    with pytest.raises(UserError, match=r"is seq2seq, .* recurrent .* loop"):
        export_onnx(load(tiny_run).task, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["onnxscript", "onnxruntime"])
def test_a_missing_package_is_one_sentence(random_run, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"{package}, .*pip install 'saccade\[export\]'"):
        export_onnx(random_run().task, tmp_path / "model")
