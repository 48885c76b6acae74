"""A trained run: `saccade.load(path)`, then predict, evaluate, look."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from saccade.config import recipe as configs
from saccade.decoding import Hypothesis
from saccade.errors import UserError
from saccade.models.hugging_face import is_hugging_face
from saccade.runs.looking import looked
from saccade.runs.train import check_is_run, task_class
from saccade.tasks.image_classes.pretrained import open_pretrained
from saccade.training.checkpoint import load_model
from saccade.views.maps import AttentionMap


class Run:
    """What `saccade train` left in a directory, or a ViT or Swin in Hugging Face's format, ready to use."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.task: Any = open_pretrained(self.path) if is_hugging_face(self.path) else _trained_here(self.path)
        self.recipe = self.task.recipe
        self.task.model.eval()

    def predict(self, inputs: Sequence[Any], best: int = 1, **decode: Any) -> list[Any]:
        """Predictions in the order of the inputs (sentences, images), the `best` likeliest of each; keywords replace `decode` settings."""
        return list(self.answers(inputs, best, **decode))

    def answers(self, inputs: Sequence[Any], best: int = 1, **decode: Any) -> Iterator[Any]:
        """The same one by one, as they are found: for more inputs than one wants to wait for. Until the last, weights must not change."""
        if isinstance(inputs, str):
            raise UserError(f"{inputs!r} is one input: give a list of inputs, for example [{inputs!r}]")
        answers: Iterator[Any] = self.task.answers(inputs, best=best, **self._fitting(decode))
        return answers

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[Hypothesis]:
        """How probable given outputs are: log P(target | source) of each pair, in all and per token."""
        if not hasattr(self.task, "score"):
            raise UserError(f"{self.path} is a run of the task {self.recipe.task}: only translations can be scored")
        scored: list[Hypothesis] = self.task.score(pairs)
        return scored

    def evaluate(
        self,
        split: Literal["valid", "test"] = "test",
        *,
        samples: int | None = None,
        data: str | Path | None = None,
        skip_bad: bool = False,
        **decode: Any,
    ) -> Any:
        """The task's metrics on held-out examples, and the alignment error rate where gold alignments are known.

        With `samples` a network that glimpses draws so many paths for each image and averages their probabilities. With `data` a
        classifier is judged by other images: a folder with a folder for each class, a zip of one, a CSV of path and label, or idx files;
        `skip_bad` leaves out those that cannot be read.
        """
        if split not in ("valid", "test"):
            raise UserError(f"{split!r} is not a part of the held-out examples: choose valid or test")
        if skip_bad and data is None:
            raise UserError(
                "skip_bad is for other images, named by data: the run's own were all read when it was trained"
            )
        if samples is not None or data is not None:
            return self._classifier().evaluate(
                split, samples=samples, data=data, skip_bad=skip_bad, **self._fitting(decode)
            )
        scores = self.task.evaluate(split, **self._fitting(decode))
        if self.recipe.task != "translation" or not self.task.corpus.has_alignments:
            return scores
        from saccade.tasks.translation.look import alignment_error

        error = alignment_error(self.task, self.task.corpus.held_out(split), choose_on=self.task.corpus.valid)
        return replace(scores, alignment_error_rate=error)

    def look(self, source: Any, target: str | None = None, **how: Any) -> list[AttentionMap]:
        """What was attended to, for every attention whose name matches `only`.

        Of a sentence: what each word of the translation (the model's own unless `target` is given) looked at, by whole words unless
        `words=False`. Of a picture: what the class, or the cell at `pixel`, looked at.
        """
        return list(looked(self.task, source, target=target, **how).rows())

    def draw(self, source: Any, path: str | Path, **how: Any) -> str:
        """The same as a file: .png, .svg, .pdf, .html or .json by the ending. Returns the model's answer."""
        view = looked(self.task, source, **how)
        view.save(path)
        return view.text

    def _classifier(self) -> Any:
        if self.recipe.task != "image_classes":
            raise UserError(
                f"{self.path} is a run of the task {self.recipe.task}, which names no classes: leave out samples or data"
            )
        return self.task

    def _fitting(self, decode: dict[str, Any]) -> dict[str, Any]:
        """Settings of a search are for tasks that search."""
        if decode and not hasattr(self.recipe, "decode"):
            given = ", ".join(decode)
            raise UserError(
                f"{self.path} is a run of the task {self.recipe.task}, which searches nothing: leave out {given}"
            )
        return decode


def _trained_here(path: Path) -> Any:
    directory = check_is_run(path)
    recipe = configs.load(directory.config, check_files=False)
    task = task_class(recipe).reopen(recipe, path)
    load_model(task.model, directory.model)
    return task
