"""`saccade demo`, with trainings of a few steps."""

from saccade import demo
from saccade.metrics.bleu import score_translations

TINY = [
    "train.steps=6",
    "train.threads=1",
    "train.validate_every=6",
    "train.checkpoint_every=6",
    "data.examples=200",
    "model.hidden=8",
    "model.embedding=8",
    "decode.valid_sentences=2",
    "decode.max_length=20",
]


def test_it_compares_translates_and_draws_and_says_when_the_time_was_too_short(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo, "ALIKE", TINY)
    scores = score_translations(["a", "b"], ["a", "c"], sources=["x", "x y"]).with_perplexity(2.0)
    monkeypatch.setattr(demo, "_evaluated", lambda run: scores.to_dict())
    demo.demo(tmp_path / "demo", minutes=1)
    said = capsys.readouterr().out
    assert "without attention" in said
    assert "Only 6 of 1,100 steps of training fitted into the time" in said
    assert f"saccade demo --minutes 190 --out {tmp_path}/demo-longer" in said
    assert "The agreement on the European Economic Area was signed in August 1992." in said
    for ending in (".png", ".html"):
        assert (tmp_path / "demo" / f"alignment{ending}").stat().st_size > 1000
    monkeypatch.setattr(demo, "STEPS", 6)
    demo.demo(tmp_path / "demo", minutes=1)  # both are there already
    assert "fitted into the time" not in capsys.readouterr().out
