"""Models in Hugging Face's format as models of ours: config.json and model.safetensors in a local folder.

    saccade.load("vit-base-patch16-224").predict(["photo.jpg"])      with everything that a run of ours can do
    saccade train text --set start.from=minilm                       its weights and its vocabulary, to be fine-tuned
    model, labels = from_hugging_face("vit-base-patch16-224")        the bare model

Each family is a file of `families`, named as its `model_type` in config.json. The numbers are the same (see the tests).
"""

import importlib
import pkgutil
from pathlib import Path

from torch import nn

from saccade.errors import UserError
from saccade.models.hugging_face import families
from saccade.models.hugging_face.folder import FOREIGN, Pretrained, does_not_fit, read_settings, read_tensors

__all__ = ["Pretrained", "from_hugging_face", "is_hugging_face", "read"]


def is_hugging_face(directory: Path) -> bool:
    """Whether this is a folder of theirs, and no run of ours."""
    return (directory / "config.json").is_file() and not (directory / "config.yaml").exists()


def from_hugging_face(directory: str | Path) -> tuple[nn.Module, tuple[str, ...]]:
    """The model, ready to predict, and the names of its classes in order (none where it names none)."""
    theirs = read(Path(directory))
    model: nn.Module = importlib.import_module(f"saccade.models.{theirs.name}").build(theirs.config, theirs.shapes)
    theirs.fill(model)
    return model.eval(), theirs.labels


def read(directory: Path) -> Pretrained:
    settings = read_settings(directory / "config.json")
    kind = settings.get("model_type")
    known = [module.name for module in pkgutil.iter_modules(families.__path__)]
    if kind not in known:
        raise UserError(
            f"{directory} is no run of `saccade train`, and its config.json describes a model of type {kind!r}: "
            f"of Hugging Face's, only {', '.join(known[:-1])} and {known[-1]} can be read"
        )
    tensors = read_tensors(directory / "model.safetensors")
    family = importlib.import_module(f"{families.__name__}.{kind}")
    try:
        pretrained: Pretrained = family.read(directory, settings, tensors)
    except FOREIGN as error:
        raise does_not_fit(directory, error) from None
    return pretrained
