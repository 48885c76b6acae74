"""What may be asked of a run that answers questions."""

from pathlib import Path

from pydantic import model_validator

from saccade.config.options import Options, option


class QuestionOptions(Options):
    question: str | None = option(None, "predict look", "the question; also in the place of INPUT", is_input=True)
    context: Path | None = option(None, "predict look", "the text file that answers it, of any length", is_input=True)
    best: int = option(1, "predict", "how many of the likeliest answers, a line each", ge=1, most_served=100)
    data: Path | None = option(None, "evaluate", "other questions instead: SQuAD's JSON, JSON lines, a CSV or bAbI")
    mistakes: Path | None = option(
        None, "evaluate", "also list every question that is answered wrongly, the surest first, tab-separated"
    )
    only: str | None = option(
        None,
        "look",
        "attention modules to show with all of their heads, by pattern such as '*to_context'; '*' is all",
        max_length=200,
    )

    @model_validator(mode="after")
    def _a_question_needs_its_context(self) -> "QuestionOptions":
        if self.question is not None and self.context is None:
            raise ValueError("question needs a context: name the text file that answers it with --context FILE")
        return self
