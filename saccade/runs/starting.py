"""Starting from another run: `start: {from: runs/bert, weights: "encoder.*"}` takes its weights where names match and shapes fit.

The other run is one of ours or a folder in Hugging Face's format. Its vocabulary is taken where the data are prepared
(saccade/data/text/starting.py). A model of the same kind follows the other one's settings, but for those that the recipe names.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch import Tensor, nn

from saccade.config import recipe as configs
from saccade.config.recipe import Config, Recipe, StartConfig
from saccade.errors import ConfigError
from saccade.layers.sketch import own_tensors
from saccade.models import hugging_face
from saccade.training.checkpoint import RunDirectory, read_weights


class StartingWeights:
    """The weights of the run that a recipe starts from, for `task.restore`."""

    def __init__(self, directory: Path, pattern: str, say: Callable[[str], None]):
        """Reads them, so that a run that cannot be read is an error before any data are prepared."""
        self.directory = directory
        self.pattern = pattern
        self._say = say
        self._tensors = _read(directory, say)

    @torch.no_grad()
    def load_into(self, model: nn.Module) -> None:
        """Copies what matches; a tensor of another shape is an error, and so is a pattern that matches nothing."""
        own = own_tensors(model)
        taken = [name for name in self._tensors if name in own and _matches(name, self.pattern)]
        where = f"start.from = {self.directory}"
        if not taken:
            raise ConfigError(
                f"{where} has no tensor that matches start.weights = {self.pattern} and is in this model: "
                f"it has {_summary(self._tensors)}, and this model has {_summary(own)}"
            )
        wrong = [name for name in taken if own[name].shape != self._tensors[name].shape]
        if wrong:
            first = wrong[0]
            more = f" (and {len(wrong) - 1} more)" if wrong[1:] else ""
            raise ConfigError(
                f"{where}: {first} has the shape {_shape(self._tensors[first])} there and {_shape(own[first])} here{more}: "
                f"leave it out, for example with start.weights=-{first.partition('.')[0]}.*, or use the sizes in that run's config.yaml"
            )
        for name in taken:
            own[name].copy_(self._tensors[name])
        left = [name for name in self._tensors if name not in taken]
        new = [name for name in own if name not in taken]
        self._say(f"taken from {self.directory}: {len(taken)} of its {len(self._tensors)} tensors ({_summary(taken)})")
        self._say(f"not taken: {_summary(left)}; trained from scratch: {_summary(new)}")


def following(recipe: Recipe, say: Callable[[str], None]) -> Recipe:
    """The recipe with the model of the run it starts from, where that is one for its task: its settings, but for those that the recipe has
    itself. Another model than the recipe's is only taken as a whole (start.weights = *)."""
    directory = recipe.start.run
    if directory is None:
        return recipe
    name, theirs = _model_of(directory)
    if theirs is None or recipe.task_module.Config.model_kind not in getattr(theirs, "serves", ()):
        return recipe
    is_other = name != recipe.model_name
    if is_other and recipe.start.weights != "*":
        return recipe
    own = {} if is_other else {setting: getattr(recipe.model, setting) for setting in recipe.model.model_fields_set}
    values = theirs.model_dump(mode="json")
    taken = {setting: value for setting, value in values.items() if setting not in own}
    followed = configs.with_model(recipe, name, {**values, **recipe.model.model_dump(mode="json", include=set(own))})
    if is_other or followed.model != recipe.model:
        kept = f"; set in the recipe: {', '.join(sorted(own))}" if own else ""
        shown = ", ".join(f"{setting} {value}" for setting, value in taken.items() if isinstance(value, int | str))
        say(f"the model is {name} as in {directory} ({shown}{kept})")
    return followed


def _model_of(directory: Path) -> tuple[str, Config | None]:
    if hugging_face.is_hugging_face(directory):
        theirs = hugging_face.read(directory)
        return theirs.name, theirs.config
    config = RunDirectory(directory).config
    if not config.exists():
        return "", None
    other = configs.load(config, check_files=False)
    return other.model_name, other.model


def starting_weights(start: StartConfig, say: Callable[[str], None]) -> StartingWeights | None:
    return None if start.run is None else StartingWeights(start.run, start.weights, say)


def _read(directory: Path, say: Callable[[str], None]) -> dict[str, Tensor]:
    if hugging_face.is_hugging_face(directory):
        return hugging_face.read(directory).tensors
    if not RunDirectory(directory).config.exists():
        raise ConfigError(
            f"start.from = {directory} is neither a run (it has no config.yaml) nor a folder in Hugging Face's format "
            "(it has no config.json): name the directory that `saccade train` wrote"
        )
    return read_weights(directory, say)


def _matches(name: str, patterns: str) -> bool:
    """Whether some pattern matches and none that begins with "-" does; where all begin so, everything else matches."""
    parts = [part.strip() for part in patterns.split(",")]
    wanted = [part for part in parts if not part.startswith("-")] or ["*"]
    unwanted = [part[1:] for part in parts if part.startswith("-")]
    return any(fnmatchcase(name, part) for part in wanted) and not any(fnmatchcase(name, part) for part in unwanted)


def _summary(names: Iterable[str]) -> str:
    """encoder.* (24), output.* (2): how many tensors each part has."""
    counts = Counter(f"{name.partition('.')[0]}.*" if "." in name else name for name in names)
    return ", ".join(f"{part} ({count})" for part, count in counts.items()) or "nothing"


def _shape(tensor: Tensor) -> str:
    return " × ".join(map(str, tensor.shape)) or "one number"
