"""From the command line to files and back, as a person would use it."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import saccade as library
from saccade.config.recipe import find_recipe, load, recipes
from saccade.errors import ConfigError, UserError
from saccade.runs.train import train

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]


def settings(values):
    return [argument for value in values for argument in ("--set", value)]


def made_up_corpus(folder, pairs=60):
    chance = random.Random(1)
    words = ["dog", "cat", "sees", "runs", "the", "a", "red", "small"]
    lines = [" ".join(chance.choices(words, k=chance.randint(2, 7))) for _ in range(pairs)]
    (folder / "my.en").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "my.xx").write_text("".join(" ".join(reversed(line.split())) + "\n" for line in lines), encoding="utf-8")


def test_a_persons_own_files_in_one_command(tmp_path, saccade, saccade_process):
    made_up_corpus(tmp_path)
    small = [
        "data.source=my.en",
        "data.target=my.xx",
        "model.layers=1",
        "model.width=16",
        "model.heads=2",
        "train.steps=4",
        "data.vocab_size=300",
    ]
    done = saccade_process("train", "translation", *settings(small), "--out", "my-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "my-run"
    assert "to validate" in done.stderr
    assert "model.size tiny, chosen for" in done.stderr
    assert "% of a batch is padding" in done.stderr
    told = saccade("predict", "my-run", "the dog", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert len(told.stdout.splitlines()) == 1
    (tmp_path / "my.en").unlink()  # a run needs its files no more
    (tmp_path / "my-run").rename(tmp_path / "moved")
    drawn = saccade("look", "moved", "the small dog", "--out", "x.png", cwd=tmp_path)
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_lines_of_stdin_come_back_as_lines(tiny_run, saccade, saccade_process):
    done = saccade_process("predict", tiny_run, stdin="1 2 3\n\n4 5\n")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split("\n")) == 4
    assert json.loads(saccade("predict", tiny_run, "--json", stdin="1 2 3\n\n4 5\n").stdout)[2]["source"] == "4 5"


@pytest.mark.parametrize("command", ["predict", "look"])
def test_words_that_were_not_seen_in_training_are_named(saccade, tiny_run, tmp_path, command):
    done = saccade(command, tiny_run, "1 xyzzy 2 plugh xyzzy", cwd=tmp_path)
    assert "not seen in training, so all read as <unk>: xyzzy, plugh\n" in done.stderr
    assert "not seen" not in saccade(command, tiny_run, "1 2 3", cwd=tmp_path).stderr


def test_stdin_is_read_as_files_are(tiny_run, saccade):
    """UTF-8 with a BOM, lines that end at \\n alone, and a bad byte is told with its line."""
    done = saccade("predict", tiny_run, "--json", stdin="\ufeff1 2\r\n3\x0b4 \r 5\n")
    assert [answer["source"] for answer in json.loads(done.stdout)] == ["1 2", "3\x0b4 \r 5"]
    bad = saccade("predict", tiny_run, "--json", stdin=b"1\n\xff\n")
    assert bad.returncode == 1
    assert bad.stderr == "error: standard input, line 2: byte 0xff is not UTF-8; save the file as UTF-8\n"


def test_every_input_has_as_many_lines(tiny_run, saccade):
    done = saccade("predict", tiny_run, "1 2 3", "", "4", "--best", "3")
    assert len(done.stdout.split("\n")) == 10
    assert done.stdout.split("\n")[3:6] == ["", "", ""]


def test_another_model_is_one_line_away(tmp_path):
    own = tmp_path / "x.txt"
    own.touch()
    recipe = load("translation", [f"data.source={own}", "model.name=seq2seq", "model.attention=general"])
    assert recipe.model.attention == "general"


def test_nothing_in_gives_nothing_out(tiny_run):
    assert [answer.text for answer in library.load(tiny_run).predict(["", "  "])] == ["", ""]


def test_n_best_as_json(tiny_run, saccade):
    done = saccade("predict", tiny_run, "1 2 3", "--best", "3", "--json")
    answers = json.loads(done.stdout)[0]["translations"]
    assert len(answers) == 3
    assert [answer["score"] for answer in answers] == sorted((answer["score"] for answer in answers), reverse=True)


def test_evaluate_tells_the_signature_and_the_alignment_error(tiny_run, saccade):
    done = saccade("evaluate", tiny_run, "--json", "--search", "greedy")
    scores = json.loads(done.stdout)
    assert scores["signature"].startswith("nrefs:1")
    assert 0 <= scores["alignment_error_rate"] <= 1
    assert scores["sentences"] == 1000


@pytest.mark.parametrize("ending", [".png", ".svg", ".html", ".json"])
def test_look_writes_by_the_ending(tiny_run, tmp_path, ending):
    view = library.load(tiny_run).look("1 2 3 4")
    assert [attention.name for attention in view.maps] == ["decoder.attention"]
    assert list(view.maps[0].keys.words) == ["1", "2", "3", "4", "<end>"]
    view.save(tmp_path / f"map{ending}")
    assert (tmp_path / f"map{ending}").stat().st_size > 200


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["predict", "nowhere", "x"], 1, "nowhere does not exist"),
        (["look", "RUN", "1 2", "--out", "x.gif"], 1, ".png, .svg, .pdf, .html or .json"),
        (["look", "RUN", " "], 1, "empty sentence"),
        (["look", "RUN", "1 2", "--only", "encoder*"], 1, "decoder.attention"),
        (["train", "digits-rnn", "--out", "RUN"], 2, "--resume"),
        (["train", "digits-rnn", "--out", "RUN", "--resume", "--set", "model.hidden=32"], 2, "model.hidden=32"),
        (["train", "translation"], 2, "data.source"),
        (["train", "digits-rnn", "--set", "train.lr=0.1"], 2, "did you mean train.learning_rate?"),
        (["train", "digits-rnn", "--set", "train.schedule=noam"], 2, "did you mean inverse-square-root?"),
        (["train", "digits-rnn", "--out", "nothing", "--resume"], 2, "no run to resume"),
        (["train", "digits-rnn", "--out", "/proc/x"], 1, "/proc/x cannot be created"),
        (["train", "digit-rnn"], 2, "digits-rnn"),
        (["compare", "digits-rnn", "--vary", "model.attention"], 2, "PLACE=VALUE"),
        (["compare", "digits-rnn"], 2, "nothing to compare"),
        (["compare", "digits-rnn", "--vary", "model.attention=dot,dott"], 2, "dott"),
        (
            ["train", "digits-rnn", "--set", "model.attention=location", "--set", "model.max_length=3"],
            2,
            "model.max_length",
        ),
        (["train", "digits-rnn", "--out", "RUN", "--resume", "--set", "train.seed=2"], 2, "train.seed=2"),
        (["evaluate", "RUN", "--split", "train"], 2, "train"),
        (["evaluate", "RUN", "--mistakes", "list.tsv"], 2, "--mistakes is not an option of evaluate for"),
        (["predict", "RUN", "1", "--search", "greedy", "--best", "2"], 2, "greedy search has one"),
        (["predict", "RUN", "1", "--search", "beam", "--top-k", "2"], 2, "top_k is for search sample"),
        (["predict", "RUN", "1", "--length-penalty", "1000"], 2, "length_penalty = 1000"),
        (["predict", "RUN", "1", "--prefix", "1 zebra"], 1, "no word 'zebra'"),
        (["predict", "RUN", "1", "--prefix", "1 " * 300], 1, "300 tokens"),
        (["look", "RUN", "1", "--target", "1 " * 300], 1, "300 tokens"),
        (["look", "RUN", "1 " * 300, "--target", "1"], 1, "300 tokens"),
    ],
)
def test_a_mistake_is_one_sentence_and_no_traceback(tiny_run, saccade, arguments, code, words, tmp_path):
    done = saccade(*(str(tiny_run) if argument == "RUN" else argument for argument in arguments), cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_image_run_lists_its_mistakes_and_draws_who_is_taken_for_whom(tmp_path, saccade):
    done = saccade("train", "digits-vit", *settings(["train.steps=3", "train.threads=1"]), "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = saccade("evaluate", "run", "--mistakes", "list.tsv", "--confusion", "matrix.png", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)
    headings, *mistakes = (line.split("\t") for line in (tmp_path / "list.tsv").read_text("utf-8").splitlines())
    assert headings[:4] == ["number", "file", "truth", "taken for"]
    assert len(mistakes) == sum(map(sum, scores["confusion"])) - sum(
        row[n] for n, row in enumerate(scores["confusion"])
    )
    assert [float(each[4]) for each in mistakes] == sorted((float(each[4]) for each in mistakes), reverse=True)
    assert (tmp_path / "matrix.png").read_bytes().startswith(b"\x89PNG")
    number, taken_for = mistakes[0][0], mistakes[0][3]
    assert saccade("predict", "run", f"test:{number}", cwd=tmp_path).stdout.startswith(taken_for)


def test_killed_again_and_again_it_resumes_to_the_same_bits(tmp_path, tiny_settings, saccade):
    more = ["train.steps=60", "train.checkpoint_every=5", "train.validate_every=20", "train.average=3"]
    steps = [*tiny_settings, *more, "model.dropout=0.3"]
    whole = saccade("train", "digits-rnn", *settings(steps), "--out", "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    train = [sys.executable, "-m", "saccade", "train", "digits-rnn", "--out", "killed"]
    start, newest = [*train, *settings(steps)], ""
    for moment in (0.0, 0.007, 0.02):  # seconds after a state was written: in the middle of other work each time
        process = subprocess.Popen(start, cwd=tmp_path, stderr=subprocess.DEVNULL, env=ONE_THREAD)
        while (now := newest_state(tmp_path / "killed")) == newest and process.poll() is None:
            time.sleep(0.002)
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        process.wait()
        start, newest = [*train, "--resume"], now
    again = saccade("train", "digits-rnn", "--out", "killed", "--resume", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    first, second = (load_file(sorted((tmp_path / name / "state").glob("*"))[-1]) for name in ("whole", "killed"))
    assert first.keys() == second.keys()
    assert all(first[name].equal(second[name]) for name in first)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "killed")]
    assert models[0] == models[1]


def newest_state(run: Path) -> str:
    return max((path.name for path in (run / "state").glob("*.safetensors")), default="")


def test_check_explains_every_setting_and_stays_a_recipe(tmp_path, saccade):
    done = saccade("check", "digits-rnn", "--set", "train.learning_rate=0.5")
    assert "steps: " in done.stdout
    assert "# stop after this many updates (a whole number, at least 1)" in done.stdout
    assert "rate: 0.5" in done.stdout
    (tmp_path / "mine.yaml").write_text(done.stdout)
    assert load(tmp_path / "mine.yaml") == load("digits-rnn", ["train.learning_rate=0.5"])


def test_a_directory_with_other_files_is_left_alone(tmp_path, tiny_settings, saccade):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "tokenizer.json").write_text("precious")
    done = saccade("train", "digits-rnn", *settings(tiny_settings), "--out", "mine", cwd=tmp_path)
    assert done.returncode == 2
    assert "mine holds files that no training wrote" in done.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["tokenizer.json"]
    assert (tmp_path / "mine" / "tokenizer.json").read_text() == "precious"


def test_a_run_that_was_killed_while_its_data_were_prepared_starts_again(tmp_path, tiny_settings, saccade):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".unready").write_text("")
    (tmp_path / "run" / "tokenizer.json").write_text("half")
    done = saccade("train", "digits-rnn", *settings(tiny_settings), "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "run" / ".unready").exists()


@pytest.mark.parametrize("before", ["nothing", "empty", "killed"])
def test_of_a_run_that_cannot_begin_nothing_stays(tmp_path, before):
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.fr").write_text("un\n")
    run = tmp_path / "run"
    if before != "nothing":
        run.mkdir()
    if before == "killed":
        (run / ".unready").write_text("")
        (run / "notes.txt").write_text("precious")
    files = [f"data.source={tmp_path}/a.en", f"data.target={tmp_path}/a.fr"]
    with pytest.raises(UserError):
        train("translation", files, run)
    assert run.exists() == (before != "nothing")
    kept = sorted(path.name for path in run.iterdir()) if run.exists() else []
    assert kept == ([".unready", "notes.txt"] if before == "killed" else [])


def test_what_a_run_was_started_with_may_be_said_again_at_resume(tmp_path, tiny_settings):
    path = train("digits-rnn", tiny_settings, tmp_path / "run")
    train("digits-rnn", [*tiny_settings, "train.steps=8"], path, resume=True)
    fixed = next(setting for setting in tiny_settings if setting.startswith("model."))
    for change in (f"{fixed.split('=')[0]}=48", "train.optimizer=muon"):  # whose moments are saved beside the weights
        with pytest.raises(ConfigError, match="would change a run that has begun"):
            train("digits-rnn", [change], path, resume=True)


def test_of_two_processes_one_says_what_is_wrong_with_the_data(tmp_path):
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.fr").write_text("un\n")
    command = [*TORCHRUN, "-m", "saccade", "train", "translation", *settings(["data.source=a.en", "data.target=a.fr"])]
    done = subprocess.run(command, cwd=tmp_path, env=ONE_THREAD, capture_output=True, text=True, timeout=300)
    assert done.returncode
    assert done.stderr.count("error: ") == 1
    assert "Connection closed" not in done.stderr


@pytest.mark.parametrize("optimizer", ["adamw", pytest.param("muon", marks=pytest.mark.slow)])
def test_two_processes_train_as_one(tmp_path, tiny_settings, optimizer):
    steps = [*tiny_settings, "model.dropout=0.0", "train.log_every=1", f"train.optimizer={optimizer}"]
    train("digits-rnn", steps, tmp_path / "one")
    command = [*TORCHRUN, "-m", "saccade", "train", "digits-rnn", *settings(steps), "--out", "two"]
    done = subprocess.run(command, cwd=tmp_path, env=ONE_THREAD, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    losses = {}
    for name in ("one", "two"):
        lines = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        losses[name] = [line["loss"] for line in lines if "loss" in line]
    assert len(losses["one"]) == 6
    assert losses["two"] == pytest.approx(losses["one"], rel=1e-5)


def test_compare_makes_a_table_and_trains_nothing_twice(tmp_path, tiny_settings, saccade):
    command = ["compare", "digits-rnn", "--vary", "model.attention=none,dot", *settings(tiny_settings), "--out", "c"]
    done = saccade(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert rows[0][0] == "model.attention"
    assert [row[0] for row in rows[1:]] == ["none", "dot"]
    assert (tmp_path / "c" / "compare.png").exists()
    assert (tmp_path / "c" / "compare.tsv").read_text() == done.stdout
    weights = (tmp_path / "c" / "model.attention=none" / "model.safetensors").stat().st_mtime_ns
    again = saccade(*command, cwd=tmp_path)
    assert again.stdout == done.stdout
    assert (tmp_path / "c" / "model.attention=none" / "model.safetensors").stat().st_mtime_ns == weights


def test_compare_puts_the_seeds_of_a_setting_into_one_row(tmp_path, tiny_settings, saccade):
    vary = ["--vary", "model.hidden=8,16", "--vary", "train.seed=1,2", "--against", "parameters"]
    alike = [setting for setting in tiny_settings if not setting.startswith("model.hidden=")]
    done = saccade("compare", "digits-rnn", *vary, *settings(alike), "--out", "c", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = [line.split("\t") for line in done.stdout.splitlines()]
    assert table[0][:3] == ["model.hidden", "seeds", "parameters"]
    assert [row[:2] for row in table[1:]] == [["8", "2"], ["16", "2"]]
    results = [json.loads((path / "result.json").read_text()) for path in sorted((tmp_path / "c").glob("*=8,*"))]
    values = [result["scores"]["perplexity"] for result in results]
    shown = table[1][table[0].index("perplexity")]
    assert shown == f"{sum(values) / 2:.1f} ± {abs(values[0] - values[1]) / 2:.1f}"


def test_compare_never_shows_another_experiments_results(tmp_path, tiny_settings, saccade):
    first = saccade(
        "compare", "digits-rnn", "--vary", "train.seed=1", *settings(tiny_settings), "--out", "c", cwd=tmp_path
    )
    assert first.returncode == 0, first.stderr
    changed = [*tiny_settings, "model.hidden=32"]
    other = saccade("compare", "digits-rnn", "--vary", "train.seed=1", *settings(changed), "--out", "c", cwd=tmp_path)
    assert other.returncode == 2
    assert "other settings" in other.stderr


def test_settings_changed_at_resume_are_kept(tmp_path, tiny_settings):
    path = train("digits-rnn", tiny_settings, tmp_path / "run")
    train("digits-rnn", ["train.steps=8"], path, resume=True)
    assert load(path / "config.yaml").train.steps == 8


def test_another_vocabulary_than_the_weights_were_trained_with_is_refused(tmp_path, tiny_settings):
    path, other = (
        train(
            "phrasebook-rnn", [*tiny_settings, "data.vocab_size=300", f"data.examples={count}"], tmp_path / str(count)
        )
        for count in (200, 300)
    )
    assert library.load(path).predict(["One."])
    shutil.copy(other / "tokenizer.json", path / "tokenizer.json")
    with pytest.raises(UserError, match=r"tokenizer\.json is not as the training wrote it"):
        library.load(path)


def test_a_run_predicts_without_its_training_tokens(tmp_path, tiny_settings):
    path = train("digits-rnn", tiny_settings, tmp_path / "run")
    shutil.rmtree(path / "tokens")
    before = torch.random.get_rng_state()
    assert len(library.load(path).predict(["1 2 3"])) == 1
    assert torch.equal(torch.random.get_rng_state(), before)  # loading draws no numbers from the caller's generator


def test_held_out_sentences_that_are_too_long_are_left_out_and_said(tmp_path, saccade):
    made_up_corpus(tmp_path)
    long = " ".join(["dog"] * 60)
    for name in ("valid.en", "valid.xx"):
        (tmp_path / name).write_text(f"the dog\n{long}\n\n")
    files = ["data.source=my.en", "data.target=my.xx", "data.valid_source=valid.en", "data.valid_target=valid.xx"]
    files += ["data.test_source=valid.en", "data.test_target=valid.xx", "data.max_length=30", "data.vocab_size=300"]
    small = ["model.layers=1", "model.width=16", "model.heads=2", "train.steps=2"]
    done = saccade("train", "translation", *settings([*files, *small]), "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "longer than 30 tokens: 1 and 1" in done.stderr
    assert done.stderr.count("valid.en: kept 2 of 3 pairs; left out 1 empty") == 2


def test_a_size_is_chosen_from_the_number_of_pairs():
    from saccade.models.transformer import Config

    sizes = {pairs: Config(size="auto").fitted(pairs).size for pairs in (50, 100_000, 100_001, 5_000_000, 50_000_000)}
    assert list(sizes.values()) == ["tiny", "tiny", "small", "base", "big"]
    assert Config(size="big").fitted(50).size == "big"
    with pytest.raises(ValueError, match="multiple"):
        Config(size="auto", width=100)


def test_given_pairs_are_scored_a_line_each(tiny_run, saccade, tmp_path):
    (tmp_path / "pairs.tsv").write_text("1 2 3\t3 2 1\n\n4\t4\n")
    done = saccade("score", str(tiny_run), "pairs.tsv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[1:] for row in rows] == [["1 2 3", "3 2 1"], ["", ""], ["4", "4"]]
    assert all(float(row[0]) < 0 for row in rows)
    as_json = json.loads(saccade("score", str(tiny_run), "pairs.tsv", "--json", cwd=tmp_path).stdout)
    assert [row["tokens"] for row in as_json] == [4, 1, 2]
    for name, text in (("a", "1\t2\n"), ("b", "2 1\n")):
        (tmp_path / name).write_text(text)
    assert saccade("score", str(tiny_run), "a", "b", cwd=tmp_path).stdout.split("\t")[1:] == ["1 2", "2 1\n"]


def test_sampling_is_asked_for_on_the_command_line(tiny_run, saccade):
    def sampled(*options):
        return saccade("predict", str(tiny_run), "1 2 3 4 5", "--best", "4", *options).stdout

    assert sampled("--temperature", "3", "--seed", "1") == sampled("--temperature", "3", "--seed", "1")
    assert sampled("--temperature", "3", "--seed", "1") != sampled("--temperature", "3", "--seed", "2")
    assert sampled("--top-k", "1", "--seed", "1") == sampled("--top-k", "1", "--seed", "2")
    assert all(line.startswith("7 7") for line in sampled("--prefix", "7 7").splitlines())
    wrong = saccade("predict", str(tiny_run), "1 2", "--top-p", "1.5")
    assert wrong.returncode == 2
    assert "top_p = 1.5" in wrong.stderr


def test_what_is_no_part_of_the_held_out_examples_is_refused(tiny_run):
    with pytest.raises(UserError, match="'train' is not a part of the held-out examples: choose valid or test"):
        library.load(tiny_run).evaluate("train")


def test_a_single_sentence_is_not_taken_for_a_list_of_letters(tiny_run):
    with pytest.raises(UserError, match="'1 2' is one input: give a list of inputs"):
        library.load(tiny_run).predict("1 2")


@pytest.mark.parametrize("wrong", [{"beem": 3}, {"search": "bogus"}, {"beam": 0}])
def test_a_wrong_setting_of_the_search_is_a_sentence(tiny_run, wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        library.load(tiny_run).predict(["1 2"], **wrong)


def test_shared_embeddings_need_a_joint_vocabulary(tmp_path):
    own = tmp_path / "x.txt"
    own.touch()
    with pytest.raises(ConfigError, match=r"data\.joint"):
        load("translation", [f"data.source={own}", "model.shared=true", "data.joint=false"])


def test_every_recipe_is_checked_whole(monkeypatch, tmp_path):
    """Recipes that need files are given empty ones under the same names."""
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path))
    for name, _ in recipes():
        for needed in re.findall(r"\$\{SACCADE_DATA\}/(\S+)", find_recipe(name).read_text(encoding="utf-8")):
            (tmp_path / needed).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / needed).touch()
    own = tmp_path / "x.txt"
    own.touch()
    files = {
        **{name: [f"data.source={own}"] for name in ("translation", "summarise")},
        **{name: [f"data.train={own}"] for name in ("images", "text", "question-answering", "forecast", "nowcast")},
        "captions": [f"data.images={own}", f"data.captions={own}"],
    }
    for name, description in recipes():
        recipe = load(name, files.get(name, []))
        assert recipe.description == description
        assert load(_written(tmp_path, recipe)).to_dict() == recipe.to_dict()


def _written(folder, recipe):
    path = folder / "again.yaml"
    path.write_text(recipe.to_yaml(), encoding="utf-8")
    return path


def test_a_runs_own_examples_have_names(tmp_path, tiny_settings, saccade):
    path = train("digits-rnn", tiny_settings, tmp_path / "run")
    first = library.load(path).task.corpus.test[0].source
    named, given = saccade("predict", str(path), "test:0"), saccade("predict", str(path), first)
    assert named.stdout == given.stdout
    assert named.returncode == 0
    shown = saccade("look", str(path), "test:0", cwd=tmp_path)
    assert f"; reference: {first[::-1]}" in shown.stderr  # digits, reversed
    far = saccade("look", str(path), "valid:99999", cwd=tmp_path)
    assert far.returncode == 1
    assert "valid:99999 was asked for: this run has valid:0 to valid:" in far.stderr


@pytest.mark.parametrize("kind", ["captions", "classes"])
def test_a_runs_own_pictures_have_names(kind, tmp_path):
    shapes = [
        "data.examples=20",
        "model.encoder.width=24",
        "model.hidden=8",
        "train.steps=2",
        "decode.valid_sentences=2",
    ]
    digits = ["model.layers=1", "train.steps=2"]
    recipe, changes = ("shapes-soft", shapes) if kind == "captions" else ("digits-vit", digits)
    run = library.load(train(recipe, changes, tmp_path / "run"))
    split = run.task.captions.test if kind == "captions" else run.task.images.test
    example, photo = run.example("test:3"), run.example("photo.png")
    assert (example.content == split.pixels[3].transpose(1, 2, 0)).all()
    assert example.truth == (" / ".join(split.captions[3]) if kind == "captions" else run.task.classes[split.labels[3]])
    assert (photo.content, photo.name, photo.truth) == ("photo.png", "photo.png", None)
    assert len(run.predict(["test:3"])) == 1


def test_a_folder_of_pictures_is_answered_with_paths(tmp_path, saccade):
    from PIL import Image

    path = train("digits-vit", ["model.layers=1", "train.steps=2"], tmp_path / "run")
    pictures = [tmp_path / "new" / name for name in ("a.png", "deep/b.png")]
    for number, picture in enumerate(pictures):
        picture.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(library.load(path).task.images.test.pixels[number, 0]).save(picture)
    done = saccade("predict", str(path), str(tmp_path / "new"), "--best", "2")
    assert done.returncode == 0, done.stderr
    answers = library.load(path).predict(pictures, best=2)
    named = [(picture, line) for picture, answer in zip(pictures, answers, strict=True) for line in answer.lines()]
    assert done.stdout.splitlines() == [f"{picture}\t{line}" for picture, line in named]
    assert saccade("predict", str(path), *map(str, pictures), "--best", "2").stdout == done.stdout
    alone = saccade("predict", str(path), str(pictures[0]), "--best", "2")
    assert alone.stdout.splitlines() == answers[0].lines()
    (tmp_path / "new" / "torn.png").write_bytes(b"no picture")
    torn = saccade("predict", str(path), str(tmp_path / "new"), "--best", "2")
    assert torn.returncode == 1
    assert "torn.png is not a picture" in torn.stderr
    assert "--skip-bad" in torn.stderr
    rest = saccade("predict", str(path), str(tmp_path / "new"), "--best", "2", "--skip-bad")
    assert (rest.returncode, rest.stdout) == (0, done.stdout)
    assert "left out 1 of 3 images:\n  " in rest.stderr
    several = saccade("predict", str(path), *map(str, pictures), str(tmp_path / "new" / "torn.png"), "--skip-bad")
    assert [line.split("\t")[0] for line in several.stdout.splitlines()] == [str(picture) for picture in pictures]
    mistyped = saccade("predict", str(path), str(tmp_path / "nwe.png"), "--skip-bad")
    assert (mistyped.returncode, mistyped.stdout) == (1, "")
    assert "nwe.png is not an image: check the path" in mistyped.stderr
    assert len(saccade("predict", str(path), str(pictures[0]), "--best", "30").stdout.splitlines()) == 10
    empty = saccade("predict", str(path), stdin="\n")
    assert empty.returncode == 1
    assert "an empty line is not an image: give the path of one" in empty.stderr
    torn = saccade("predict", str(path), "--skip-bad", stdin=b"\xff.png\n")
    assert torn.returncode == 1
    assert "line 1: byte 0xff is not UTF-8" in torn.stderr


@pytest.mark.parametrize(("warmup", "hinted"), [(5, True), (1, False)])
def test_a_rate_that_never_stopped_rising_is_spoken_of(tmp_path, capsys, warmup, hinted):
    train("digits-vit", ["model.layers=1", "train.steps=2", f"train.warmup_steps={warmup}"], tmp_path / "run")
    said = capsys.readouterr()
    assert ("train.warmup_steps is 5 of 2 steps" in said.out + said.err) == hinted


def test_lines_that_cannot_be_translated_stay_empty_if_asked_for(tiny_run, saccade):
    lines = b"1 2 3\n" + b"4 " * 3000 + b"\n\xff\n5 6\n"
    refused = saccade("predict", tiny_run, stdin=lines)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "line 3: byte 0xff is not UTF-8; save the file as UTF-8" in refused.stderr
    skipped = saccade("predict", tiny_run, "--skip-bad", stdin=lines)
    assert skipped.returncode == 0
    plain = [translation.text for translation in library.load(tiny_run).predict(["1 2 3", "", "", "5 6"])]
    assert skipped.stdout == "".join(f"{line}\n" for line in plain)
    said = " ".join(skipped.stderr.split())
    assert re.search(
        r"left 2 of 4 lines empty: sentence 2 of 4 has 3000 tokens .* standard input, line 3: byte 0xff", said
    )


def test_where_no_line_can_be_translated_it_is_an_error(tiny_run, saccade):
    refused = saccade("predict", tiny_run, "--skip-bad", stdin=b"\xff\n")
    assert refused.returncode == 1
    assert "none of the 1 lines can be read" in " ".join(refused.stderr.split())


def test_a_sentence_that_is_too_long_is_refused_with_a_way_round(tiny_run, saccade):
    refused = saccade("predict", tiny_run, "1 2", "4 " * 3000)
    assert refused.returncode == 1
    said = " ".join(refused.stderr.split())
    assert "sentence 2 of 2 has 3000 tokens" in said
    assert "split it into shorter sentences (--skip-bad leaves its line empty)" in said


def test_other_sentences_are_evaluated_from_files(tiny_run, saccade, tmp_path):
    run = library.load(tiny_run)
    phrases = run.task.corpus.test[:20]
    (tmp_path / "other.en").write_text("".join(f"{phrase.source}\n" for phrase in phrases))
    (tmp_path / "other.fr").write_text("".join(f"{phrase.target}\n" for phrase in phrases))
    (tmp_path / "both.tsv").write_text("".join(f"{phrase.source}\t{phrase.target}\n" for phrase in phrases))
    done = saccade("evaluate", tiny_run, "--data", "other.en", "--reference", "other.fr", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)
    assert scores["sentences"] == 20
    assert scores == run.evaluate(data=tmp_path / "both.tsv").to_dict()
    for options, told in (
        (["--data", "other.en"], "name their translations with --reference"),
        (["--reference", "other.fr"], "reference needs data: name the sentences that were translated"),
        (["--data", "both.tsv", "--split", "valid"], "leave one of them out"),
    ):
        refused = saccade("evaluate", tiny_run, *options, cwd=tmp_path)
        assert refused.returncode in (1, 2)
        assert told in refused.stderr


def test_one_file_to_score_is_told_what_is_missing(tiny_run, saccade, tmp_path):
    (tmp_path / "a.txt").write_text("1 2 3\n")
    done = saccade("score", tiny_run, "a.txt", cwd=tmp_path)
    assert done.returncode == 1
    assert (
        "a.txt is one text file and pairs of sentences are needed: name their translations with --reference"
        in done.stderr
    )
    assert "or give one TSV or JSON lines file with both sides" in done.stderr


def test_a_run_can_be_held_and_shown(tiny_run):
    run = library.load(tiny_run)
    assert run.model is run.task.model
    assert repr(run) == f"Run('{tiny_run}': translation, seq2seq, {run.recipe.description})"
    assert f"<caption>{tiny_run}</caption>" in run._repr_html_()
    assert "<th>model</th><td>seq2seq</td>" in run._repr_html_()


def test_a_list_is_not_one_input_to_look_at(tiny_run):
    with pytest.raises(UserError, match=r"^\['1 2'\] is a list: look at one input, for example look\('1 2'\)$"):
        library.load(tiny_run).look(["1 2"])


def test_training_from_python_gives_the_run(tmp_path, tiny_settings):
    settings = dict(change.split("=") for change in tiny_settings)
    run = library.train(
        "digits-rnn",
        {**settings, "train.steps": 2, "train.betas": [0.9, 0.95], "model.dropout": 0.25},
        out=tmp_path / "run",
    )
    assert run.path == tmp_path / "run"
    assert (run.recipe.train.steps, list(run.recipe.train.betas), run.recipe.model.dropout) == (2, [0.9, 0.95], 0.25)
    assert len(run.predict(["1 2 3"])) == 1
    with pytest.raises(ConfigError, match="holds a run already"):
        library.train("digits-rnn", out=tmp_path / "run")
