"""CTranslate2, which nobody here wrote, computes what torch computes; and nothing is kept that does not."""

import itertools
import json
import subprocess
import sys

import ctranslate2
import pytest
import torch

from saccade.data.text.pairs import as_line
from saccade.errors import ConfigError, UserError
from saccade.export import export
from saccade.tasks.translation.export import ctranslate2 as to_ctranslate2
from saccade.tasks.translation.export.ctranslate2 import export_ctranslate2
from saccade.tasks.translation.export.search import CTranslate2Search

from .readme import program_of

NORMS, POSITIONS, ACTIVATIONS = ("pre", "post"), ("sinusoidal", "learned", "rotary"), ("relu", "gelu", "gated")


def log_probs_in_torch(run, source, target):
    """One step at a time, as a decoder runs."""
    vocabularies, model = run.task.vocabularies, run.task.model
    words = torch.tensor([[*vocabularies.source.encode(source), 2]])
    given = [*vocabularies.target.encode(target), 2]
    values, before = [], 1
    with torch.no_grad():
        state = model.start(model.encode(words, torch.tensor([words.shape[1]])))
        for token in given:
            logits, state = model.step(torch.tensor([before]), state)
            values.append(float(logits.log_softmax(-1)[0, token]))
            before = token
    return values


def log_probs_in_ctranslate2(run, directory, pairs):
    translator = ctranslate2.Translator(str(directory), intra_threads=1)
    names = run.task.vocabularies.source.vocabulary, run.task.vocabularies.target.vocabulary
    sources = [[names[0][token] for token in run.task.vocabularies.source.encode(source)] for source, _ in pairs]
    targets = [[names[1][token] for token in run.task.vocabularies.target.encode(target)] for _, target in pairs]
    return [scored.log_probs for scored in translator.score_batch(sources, targets)]


def check_equal(run, directory, pairs=(("1 2 3 4 5 6 7 8", "8 7"), ("5", "1 2 3 4 5 6 7 8 9 0"))):
    for pair, found in zip(pairs, log_probs_in_ctranslate2(run, directory, pairs), strict=True):
        assert found == pytest.approx(log_probs_in_torch(run, *pair), abs=1e-5)


@pytest.mark.parametrize(
    ("norm", "positions", "activation"),
    [
        ("pre", "sinusoidal", "gelu"),
        ("post", "learned", "relu"),
        ("pre", "rotary", "gated"),
        *(pytest.param(*kinds, marks=pytest.mark.slow) for kinds in itertools.product(NORMS, POSITIONS, ACTIVATIONS)),
    ],
)
def test_every_transformer_gives_torchs_log_probabilities(random_run, tmp_path, norm, positions, activation):
    run = random_run(f"model.norm={norm}", f"model.positions={positions}", f"model.activation={activation}")
    exported = export_ctranslate2(run.task, tmp_path / "model")
    assert exported.difference < 1e-5
    check_equal(run, tmp_path / "model")


@pytest.mark.parametrize(
    "changes",
    [
        ["model.tied=false"],
        ["model.shared=true"],
        ["model.shared=true", "model.tied=false"],
        ["model.layers=3", "model.heads=4"],
        ["model.heads=1"],
        ["data.tokenizer=characters"],
    ],
    ids=" ".join,
)
def test_weights_shared_or_not_and_any_sizes(random_run, tmp_path, changes):
    run = random_run(*changes)
    export_ctranslate2(run.task, tmp_path / "model")
    check_equal(run, tmp_path / "model")


def test_two_vocabularies_stay_two(random_run, tmp_path):
    lines = {"my.en": "the dog sees a cat", "my.de": "der hund sieht hier eine kleine katze"}
    for name, line in lines.items():
        (tmp_path / name).write_text("".join(f"{line}{' !' * number}\n" for number in range(30)), encoding="utf-8")
    files = [
        f"data.source={tmp_path / 'my.en'}",
        f"data.target={tmp_path / 'my.de'}",
        "data.corpus=files",
        "data.examples=30000",
    ]
    run = random_run(*files, "data.joint=false")
    assert len(run.task.vocabularies.source) != len(run.task.vocabularies.target)
    export_ctranslate2(run.task, tmp_path / "model")
    check_equal(run, tmp_path / "model", [("a cat sees the dog", "hier sieht der hund"), ("dog", "katze katze !")])


def test_nothing_is_cut_however_long(random_run, tmp_path):
    run = random_run("data.max_length=1300", "model.layers=1")
    export_ctranslate2(run.task, tmp_path / "model")
    source, target = "1 2 3 4 5 " * 250, "1 2"
    vocabulary = run.task.vocabularies.source
    translator = ctranslate2.Translator(str(tmp_path / "model"), intra_threads=1)
    names = [vocabulary.vocabulary[token] for token in vocabulary.encode(source)]
    whole = translator.score_batch([names], [["1", "2"]], max_input_length=0)[0].log_probs
    assert whole == pytest.approx(log_probs_in_torch(run, source, target), abs=1e-4)


@pytest.mark.parametrize("quantization", ["int8", "bfloat16"])
def test_a_quantised_model_is_smaller_and_says_how_well_it_agrees(random_run, tmp_path, quantization):
    run = random_run(ending=1.5)
    whole, exported = (export_ctranslate2(run.task, tmp_path / str(kind), kind) for kind in (None, quantization))
    sizes = [path.joinpath("model.bin").stat().st_size for path in (exported.path, whole.path)]
    assert sizes[0] < 0.9 * sizes[1]
    assert whole.same == whole.sentences == 20
    sources = [phrase.source for phrase in run.task.corpus.valid[:20]]
    theirs = CTranslate2Search(exported.path, run.task.vocabularies, 1).translate(run.task, sources, run.recipe.decode)
    same = sum(one.text == other.text for one, other in zip(run.predict(sources), theirs, strict=True))
    assert exported.same == same > 0
    assert f"{quantization}, {same} of 20" in str(exported)
    facts = json.loads((exported.path / "saccade.json").read_text())
    assert (facts["quantization"], facts["same"], facts["sentences"]) == (quantization, same, 20)


def test_the_model_in_use_is_not_changed(random_run, tmp_path):
    run = random_run()
    before = {name: tensor.clone() for name, tensor in run.task.model.state_dict().items()}
    export_ctranslate2(run.task, tmp_path / "model", "int8")
    after = run.task.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_what_computes_something_else_is_not_kept(random_run, tmp_path, monkeypatch):
    build = to_ctranslate2.specification

    def wrong(*arguments):
        spec = build(*arguments)
        spec.decoder.layer[1].attention.linear[2].bias[0] += 0.01
        return spec

    monkeypatch.setattr(to_ctranslate2, "specification", wrong)
    with pytest.raises(UserError, match="does not compute what torch computes"):
        export_ctranslate2(random_run().task, tmp_path / "model", "int8")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("tokenizer", ["words", "bpe", "characters"])
def test_the_program_in_the_readme_translates_without_saccade(random_run, tmp_path, tokenizer):
    run = random_run(f"data.tokenizer={tokenizer}", "decode.beam=1")
    export_ctranslate2(run.task, tmp_path / "model")
    program = program_of((tmp_path / "model" / "README.txt").read_text(encoding="utf-8"))
    assert "saccade" not in program
    lines = ["1 2 3", " 4 5 6 7 "]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path / "model", input="\n".join(lines), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    written = [as_line(line) for line in done.stdout.removesuffix("\n").split("\n")]
    assert written == [answer.text for answer in run.predict(lines, search="greedy")]


def test_a_model_that_ctranslate2_has_not_is_refused_with_what_it_has(random_run, tiny_run, tmp_path):
    from saccade import load

    for run, name in ((load(tiny_run), "seq2seq"), (random_run("model.score=additive"), "additive")):
        with pytest.raises(UserError, match=rf"is {name}, and .*scaled-dot"):
            export_ctranslate2(run.task, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_quantization_that_does_not_exist_is_refused(random_run, tmp_path):
    run = random_run()
    with pytest.raises(ConfigError, match=r"there is no quantization 'int7'; choose one of int8"):
        export_ctranslate2(run.task, tmp_path / "model", "int7")
    with pytest.raises(
        ConfigError, match=r'^quantization = "int7" \(an option of the export to ctranslate2\) must be one of int8, '
    ):
        export(run, tmp_path / "model", "ctranslate2", {"quantization": "int7"})
    with pytest.raises(ConfigError, match=r"^--quantization is not an option of the export to onnx: leave it out"):
        export(run, tmp_path / "model", "onnx", {"quantization": "int8"})
    with pytest.raises(UserError, match="cannot be exported to tflite: choose ctranslate2 or onnx"):
        export(run, tmp_path / "model", "tflite")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_already_is_not_overwritten(random_run, tmp_path):
    (tmp_path / "model").mkdir()
    export_ctranslate2(random_run().task, tmp_path / "model")  # an empty directory is no loss
    before = (tmp_path / "model" / "model.bin").read_bytes()
    with pytest.raises(UserError, match="exists already: choose a new directory"):
        export_ctranslate2(random_run("model.layers=1").task, tmp_path / "model")
    assert (tmp_path / "model" / "model.bin").read_bytes() == before


def test_a_place_that_cannot_be_written_is_one_sentence(random_run, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot be written"):
        export_ctranslate2(random_run().task, tmp_path / "file" / "model")


def test_a_missing_package_is_one_sentence(random_run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    monkeypatch.delitem(sys.modules, "ctranslate2.specs", raising=False)
    with pytest.raises(UserError, match=r"pip install 'saccade\[export\]'"):
        export_ctranslate2(random_run().task, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
