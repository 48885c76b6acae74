"""A trained run: `saccade.load(path)`, then predict, evaluate, look."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from saccade import config as configs
from saccade.data.corpus import SplitName
from saccade.decoding import Hypothesis
from saccade.explain.maps import AttentionMap
from saccade.explain.replay import alignment_error, look
from saccade.tasks.scores import TranslationScores
from saccade.training.checkpoint import load_model
from saccade.training.start import check_is_run, task_class


class Run:
    """What `saccade train` left in a directory, ready to use."""

    def __init__(self, path: str | Path):
        directory = check_is_run(Path(path))
        self.path = directory.path
        self.recipe = configs.load(directory.config, check_files=False)
        self.task: Any = task_class(self.recipe).reopen(self.recipe, directory.path)
        load_model(self.task.model, directory.model)
        self.task.model.eval()

    def predict(self, inputs: Sequence[str], **decode: Any) -> list[Any]:
        """Predictions in the order of the inputs; keywords replace settings of the `decode` section."""
        return self.task.predict(inputs, **decode)

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Hypothesis]:
        """How probable given outputs are: log P(target | source) of each pair, in all and per token."""
        scored: list[Hypothesis] = self.task.score(pairs)
        return scored

    def evaluate(self, split: SplitName = "test", **decode: Any) -> TranslationScores:
        """The task's metrics on held-out examples, and the alignment error rate where gold alignments are known."""
        scores: TranslationScores = self.task.evaluate(split, **decode)
        if not self.task.corpus.has_alignments:
            return scores
        error = alignment_error(self.task, self.task.corpus.held_out(split), choose_on=self.task.corpus.valid)
        return replace(scores, alignment_error_rate=error)

    def look(self, source: str, target: str | None = None, words: bool = True, only: str = "*") -> list[AttentionMap]:
        """What each word of the translation (the model's own unless given) looked at, for every attention whose name matches."""
        return look(self.task, source, target, words, only)
