"""Commands about image models: pictures say what they show, and messages what was given."""

import io
import json
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

import saccade as library
from saccade import cli
from saccade.runs.train import train


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    settings = ["model.layers=1", "train.steps=2", "train.threads=1"]
    return train("digits-vit", settings, tmp_path_factory.mktemp("runs") / "digits")


@pytest.fixture(scope="module")
def glimpses(tmp_path_factory) -> Path:
    settings = ["model.hidden=16", "train.steps=2", "train.threads=1"]
    return train("digits-glimpse", settings, tmp_path_factory.mktemp("runs") / "glimpses")


@pytest.fixture
def said(monkeypatch, capsys):
    """What a command prints, and what it says beside."""

    def run(*arguments: object) -> tuple[str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["saccade", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO()))
        with pytest.raises(SystemExit):
            cli.main()
        return capsys.readouterr()

    return run


def test_every_kind_of_image_model_writes_the_same_data_of_a_held_out_picture(said, digits, glimpses, tmp_path):
    for run in (digits, glimpses):
        out = tmp_path / f"{run.name}.json"
        printed, beside = said("look", run, "test:0", "--out", out)
        values = json.loads(out.read_text("utf-8"))
        truth = library.load(run).task.held_out("test")[0].truth
        assert values["title"].startswith(f"{values['answer']['classes'][0]['class']} (probability ")
        assert (values["answer"]["source"], values["truth"]) == ("test:0", truth)
        assert (values["picture"]["rows"], values["picture"]["columns"]) == (8, 8)
        assert printed == f"{out}\n"
        assert f"reference: {truth}" in beside


def test_letters_that_no_font_has_are_spoken_of(said, digits, tmp_path, monkeypatch):
    from matplotlib.font_manager import fontManager

    from saccade.views import lettering

    monkeypatch.setattr(fontManager, "ttflist", [each for each in fontManager.ttflist if "mpl-data" in each.fname])
    lettering._fonts.cache_clear()
    Image.new("L", (8, 8)).save(tmp_path / "猫.png")
    out = tmp_path / "where.png"
    _, beside = said("look", digits, tmp_path / "猫.png", "--out", out)
    lettering._fonts.cache_clear()
    assert f"no font here has 猫: boxes stand for them in {out}; --out {tmp_path / 'where.html'} shows them" in beside
    _, beside = said("look", digits, tmp_path / "猫.png", "--out", tmp_path / "where.html")
    assert "no font" not in beside


def test_what_a_picture_of_many_layers_leaves_out_is_said_beside_it(said, tmp_path, tiny_run, monkeypatch):
    loaded = library.load(tiny_run)
    view = replace(loaded.look("1 2 3"), hint="shows little")
    monkeypatch.setattr(type(loaded.task), "look", lambda *_: view)
    for ending, hint in (
        ("png", f"{tmp_path / 'a.png'} shows little\n"),
        ("pdf", f"{tmp_path / 'a.pdf'} shows little\n"),
        ("html", ""),
    ):
        assert said("look", tiny_run, "1 2 3", "--out", tmp_path / f"a.{ending}")[1] == f"1 2 3: {view.text}\n{hint}"


def test_files_of_a_folder_that_are_no_images_are_counted(said, digits, tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    for name in ("notes.txt", "sum.xlsx"):
        (tmp_path / name).write_text("x")
    printed, beside = said("predict", digits, tmp_path)
    assert printed.startswith(f"{tmp_path / 'a.png'}\t")
    assert f"{tmp_path} contains 2 other files, which were not read" in beside


def test_a_zip_is_no_picture_to_predict(said, digits, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("cat/1.png", b"")
    printed, beside = said("predict", digits, tmp_path / "a.zip")
    assert printed == ""
    assert "is not an image, and images or folders of them are read here: unpack it and give the folder" in beside
    assert f"or evaluate with `--data {tmp_path / 'a.zip'}`" in beside


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["predict", "RUN", "test:0", "--beam", "2"], "--beam is not an option of predict for RUN: it takes --best"),
        (
            ["evaluate", "RUN", "--length-penalty=1"],
            "--length-penalty is not an option of evaluate for RUN: it takes --data, --skip-bad, --confusion, --mistakes",
        ),
        (
            ["look", "RUN", "test:0", "--samples", "3"],
            "--samples is not an option of look for RUN: it takes --pixel, --only",
        ),
    ],
)
def test_an_option_that_a_run_does_not_take_is_refused_with_those_it_takes(said, digits, arguments, told):
    _, beside = said(*(digits if word == "RUN" else word for word in arguments))
    assert beside == f"error: {told.replace('RUN', str(digits))}\n"


def test_help_lists_the_options_of_this_very_run_with_their_meanings(said, digits, glimpses, tiny_run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    images, sentences = said("predict", digits, "--help")[0], said("predict", tiny_run, "--help")[0]
    assert "how many of the likeliest classes, a line each (1 unless given)" in images.lower().replace("  ", " ")
    assert "--beam" not in images
    assert "width of the beam" in sentences.lower()
    assert "--samples" in said("evaluate", glimpses, "--help")[0]
    assert "--samples" not in said("evaluate", digits, "--help")[0]


def test_an_option_of_zero_is_given_too(said, tiny_run):
    plain, without = (
        said("predict", tiny_run, "1 2 3 4 5", "--json"),
        said("predict", tiny_run, "1 2 3 4 5", "--length-penalty", "0", "--json"),
    )
    scores = [json.loads(printed)[0]["translations"][0] for printed, _ in (plain, without)]
    assert scores[0]["score"] != scores[0]["log_prob"]
    assert scores[1]["score"] == pytest.approx(scores[1]["log_prob"])


def test_a_run_that_is_not_there_is_named_before_its_options(said):
    assert "error: nowhere does not exist; give the directory that" in said("predict", "nowhere", "x", "--beam", "2")[1]
