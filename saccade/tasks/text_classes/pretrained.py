"""A text classifier in the format of Hugging Face as a task of ours, so that its folder can be used wherever a run can."""

from pathlib import Path

from saccade.config import recipe as configs
from saccade.data.text.existing import ExistingTokenizer
from saccade.data.text.labelled.dataset import Texts
from saccade.data.text.labelled.windows import Reading
from saccade.models import hugging_face
from saccade.tasks.text_classes.task import TextClassTask, most_tokens


def open_pretrained(directory: Path) -> TextClassTask | None:
    """None where the folder is none of theirs, or its model names no classes of texts."""
    if not hugging_face.is_hugging_face(directory):
        return None
    theirs = hugging_face.read(directory)
    if theirs.shapes.image is not None or not theirs.labels:
        return None
    recipe = configs.from_values(
        {
            "description": f"{directory.name}, in the format of Hugging Face",
            "task": "text_classes",
            "model": {"name": theirs.name, **theirs.config.model_dump(mode="json")},
        },
        str(directory),
    )
    tokenizer = ExistingTokenizer.from_folder(directory)
    texts = Texts(directory, tokenizer, theirs.labels, [], [], Reading(most_tokens(recipe), "windows"))
    task = TextClassTask(recipe, texts, theirs.labels)
    theirs.fill(task.model)
    return task
