"""A task is a folder, and nothing outside it knows its name: a toy task of one file gets everything without a line in saccade/."""

import ast
import json
import re
from pathlib import Path

import pytest

import saccade as library
from saccade.config.discovery import task_names

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "saccade"
RECIPE = TESTS / "toys" / "how-many.yaml"


@pytest.fixture(scope="module")
def toy_run(tmp_path_factory) -> Path:
    from saccade.runs.train import train

    return train(RECIPE, [], tmp_path_factory.mktemp("toys") / "how-many")


@pytest.fixture
def command(saccade):
    def run(*words, status=0):
        done = saccade(*words)
        assert done.returncode == status, done.stderr
        return done

    return run


def test_a_toy_task_trains_and_predicts_by_the_command_line(command, tmp_path):
    run = tmp_path / "run"
    command("train", RECIPE, "--out", run, "--set", "train.steps=20", "--set", "data.texts=50")
    assert float(command("predict", run, "abaca").stdout) < 10
    assert json.loads(command("predict", run, "abaca", "--rounded", "--json").stdout)[0]["number"] % 1 == 0
    assert "whole number" in command("predict", run, "--help").stdout
    refused = command("predict", run, "abaca", "--beam", "3", status=2).stderr
    assert "--beam is not an option of predict" in refused
    assert "it takes --rounded" in refused
    assert "mean absolute error" in command("evaluate", run).stdout
    for ending in ("png", "svg", "pdf", "html", "json"):
        command("look", run, "test:0", "--out", tmp_path / f"view.{ending}")
        assert (tmp_path / f"view.{ending}").stat().st_size > 500


def test_it_learns_and_its_attention_can_be_looked_at(toy_run):
    run = library.load(toy_run)
    assert run.evaluate("test").error < 0.7
    view = run.look("abcabc")
    assert [len(axis) for axis in (view.maps[0].queries, view.maps[0].keys)] == [1, 6]
    assert "how-many" in repr(run)


def test_it_is_served_with_its_own_options_and_questions(toy_run):
    pytest.importorskip("fastapi", reason="fastapi is not installed (pip install 'saccade[serve]')")
    from fastapi.testclient import TestClient

    from saccade.serve.app import create_app
    from saccade.serve.limits import Limits
    from saccade.serve.served import open_runs

    limits = Limits()
    with TestClient(create_app(open_runs([toy_run], limits), limits), base_url="http://127.0.0.1") as client:
        (info,) = client.get("/api/runs").json()["runs"]
        assert (info["reads"], info["attends"]) == ("text", True)
        assert "share" in info["asks"]
        assert client.post("/api/predict", json={"text": "abca", "rounded": True}).json()["number"] % 1 == 0
        assert client.post("/api/look", json={"text": "abca"}).json()["maps"][0]["keys"]["labels"] == list("abca")
        assert client.post("/api/share", json={"text": "abca", "letter": "b"}).json()["share"] == 0.25
        assert client.post("/api/figure", json={"text": "abca"}).content.startswith(b"\x89PNG")
        wrong = client.post("/api/predict", json={"texts": "abca"})
        assert (wrong.status_code, "did you mean `text`?" in wrong.json()["error"]) == (422, True)
        body = client.get("/openapi.json").json()["paths"]["/api/predict"]["post"]["requestBody"]
        assert "whole number" in json.dumps(body)


def test_it_is_compared(command, tmp_path):
    table = command(
        *("compare", RECIPE, "--vary", "model.width=2,4", "--set", "train.steps=10", "--out", tmp_path / "compared")
    ).stdout
    assert "negative error" in table
    assert (tmp_path / "compared" / "compare.png").exists()


# Who knows a task


def sources(*folders: str) -> dict[Path, ast.Module]:
    files = [file for folder in folders for file in sorted((PACKAGE / folder).rglob("*.py"))]
    return {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}


OUTSIDE = (
    "attention",
    "kernels",
    "layers",
    "models",
    "decoding",
    "views",
    "training",
    "runs",
    "config",
    "cli",
    "serve",
)


def test_no_task_is_named_outside_its_folder():
    """Neither as a value, nor as a module, nor by its class."""
    names = set(task_names())
    classes = {
        node.name
        for name in names
        for tree in sources(f"tasks/{name}").values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name.endswith("Task")
    }
    assert len(names) >= 3
    assert len(classes) >= 3
    for file, tree in sources(*OUTSIDE, "export").items():
        for node in ast.walk(tree):
            place = f"{file.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Constant):
                assert node.value not in names, place
            if isinstance(node, ast.Name | ast.Attribute):
                assert (node.id if isinstance(node, ast.Name) else node.attr) not in classes, place
            if isinstance(node, ast.ImportFrom):
                assert not re.match(rf"saccade\.tasks\.({'|'.join(names)})\b", node.module or ""), place


def test_the_page_names_no_task_outside_the_tasks():
    names = "|".join(task_names())
    for file in [*(PACKAGE / "serve" / "static").glob("*.js"), *(PACKAGE / "views" / "page").glob("*.js")]:
        assert not re.search(rf"""["'`]({names})["'`]""", file.read_text(encoding="utf-8")), file.name


def test_those_who_use_tasks_know_the_contract_alone():
    for file, tree in sources("cli", "serve", "export", "runs", "training").items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("saccade.tasks"):
                assert node.module == "saccade.tasks.task", file
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("hasattr", "isinstance")
            ):
                asked = ast.unparse(node.args[0])
                assert not re.search(r"(^|\.)(task|model)$", asked), f"{file}: {ast.unparse(node)}"
