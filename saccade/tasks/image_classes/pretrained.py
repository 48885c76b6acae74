"""A ViT or Swin in Hugging Face's format as a task of ours, so that a folder of theirs can be used wherever a run can."""

from dataclasses import replace
from pathlib import Path

from saccade.config import recipe as configs
from saccade.data.images.dataset import Images
from saccade.data.images.preprocessor import read_resampling, read_standardisation
from saccade.models import hugging_face
from saccade.tasks.image_classes.task import ClassifyTask


def open_pretrained(directory: Path) -> ClassifyTask:
    found = hugging_face.read(directory)
    pixels = read_standardisation(directory, found.image.channels)
    recipe = configs.from_values(
        {
            "description": f"{directory.name}, in the format of Hugging Face",
            "task": "image_classes",
            "model": {"name": found.name, **found.config.model_dump(mode="json")},
        },
        str(directory),
    )
    shape = replace(found.image, stretched=True, resampling=read_resampling(directory))
    task = ClassifyTask(recipe, Images(directory, found.labels, shape, pixels.mean, pixels.deviation))
    found.fill(task.model)
    return task
