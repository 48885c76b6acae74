"""Translating with CTranslate2 in place of torch: `CTranslate2Engine(task).answers(sources, options)`.

The model is exported on first use and kept in the run directory, under engines/. Its name holds a fingerprint of the weights and of all
that shapes the export, so a run that is trained further is exported anew. Looking inside stays on torch.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from saccade.errors import UserError
from saccade.tasks.translation.export.ctranslate2 import (
    Exported,
    Quantization,
    export_ctranslate2,
    is_quantised,
    require_exportable,
)
from saccade.tasks.translation.export.search import CTranslate2Search
from saccade.tasks.translation.options import TranslationOptions

if TYPE_CHECKING:
    from saccade.tasks.translation.task import Translation, TranslationTask

LAYOUT = 2  # raised when an export of the same run would be written differently


class CTranslate2Engine:
    """`exported` says how a new export compared with torch; None where one was there already."""

    def __init__(self, task: "TranslationTask", quantization: Quantization | None = "int8", threads: int | None = None):
        require_exportable(task)
        self.task = task
        self.path, self.exported = _ready(task, quantization)
        hasty = is_quantised(quantization)
        self._search = CTranslate2Search(self.path, task.vocabularies, threads, hasty=hasty)

    def answers(self, sources: Sequence[str], options: TranslationOptions) -> "Iterator[Translation]":
        """Translations in the order of the sources, as they are found."""
        if options.prefix:
            raise UserError("CTranslate2 does not score a given prefix: leave it out, or translate with engine torch")
        return self._search.translate(self.task, sources, options.decode(self.task.recipe.decode))


def fingerprint(task: "TranslationTask") -> str:
    """Of the weights as they are in memory, the vocabularies, and the settings that an export depends on."""
    digest = hashlib.blake2b(digest_size=8)
    recipe = task.recipe.to_dict()
    settings = [LAYOUT, recipe["model"], recipe["data"]["max_length"], recipe["decode"]]
    vocabularies = [task.vocabularies.source.to_json(), task.vocabularies.target.to_json()]
    digest.update(json.dumps([settings, vocabularies], sort_keys=True).encode())
    for name, tensor in sorted(task.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _ready(task: "TranslationTask", quantization: Quantization | None) -> tuple[Path, Exported | None]:
    """The directory of the export, which is made if it is not there; exports of other weights go."""
    kind = f"ctranslate2-{quantization or 'float32'}-"
    path = task.corpus.directory / "engines" / f"{kind}{fingerprint(task)}"
    if path.exists():
        return path, None
    try:
        exported = export_ctranslate2(task, path, quantization)
    except UserError:
        if not path.exists():  # else another process was faster
            raise
        return path, None
    for other in path.parent.glob(f"{kind}*"):
        if other != path:
            shutil.rmtree(other, ignore_errors=True)
    return path, exported
