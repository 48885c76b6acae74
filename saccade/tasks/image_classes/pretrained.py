"""A ViT or Swin in the format of Hugging Face as a task of ours, so that its folder can be used wherever a run can."""

from dataclasses import replace
from pathlib import Path

from saccade.config import recipe as configs
from saccade.data.images.dataset import Images
from saccade.data.images.preprocessor import read_resampling, read_standardisation
from saccade.models import hugging_face
from saccade.tasks.image_classes.task import ImageClassTask


def open_pretrained(directory: Path) -> ImageClassTask | None:
    """None where the folder is none of theirs, or holds a model that reads no images."""
    if not hugging_face.is_hugging_face(directory):
        return None
    theirs = hugging_face.read(directory)
    if theirs.shapes.image is None:
        return None
    pixels = read_standardisation(directory, theirs.shapes.image.channels)
    recipe = configs.from_values(
        {
            "description": f"{directory.name}, in the format of Hugging Face",
            "task": "image_classes",
            "model": {"name": theirs.name, **theirs.config.model_dump(mode="json")},
        },
        str(directory),
    )
    shape = replace(theirs.shapes.image, stretched=True, resampling=read_resampling(directory))
    task = ImageClassTask(recipe, Images(directory, theirs.labels, shape, pixels.mean, pixels.deviation))
    theirs.fill(task.model)
    return task
