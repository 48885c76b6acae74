"""How a text classifier is written for other engines."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from saccade.tasks.task import Export

if TYPE_CHECKING:
    from saccade.tasks.text_classes.task import TextClassTask


def exports(task: "TextClassTask") -> Mapping[str, Export]:
    return {}
