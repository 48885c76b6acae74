"""Translating with CTranslate2 in place of torch: `CTranslate2Engine(run).predict([...])`, as `run.predict([...])`.

The model is exported on first use and kept in the run directory, under engines/. Its name holds a fingerprint of the weights and of all
that shapes the export, so a run that is trained further is exported anew. Looking inside stays on torch.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from saccade.errors import UserError
from saccade.export.ctranslate2_search import CTranslate2Search
from saccade.export.to_ctranslate2 import (
    Exported,
    Quantization,
    export_ctranslate2,
    is_quantised,
    require_exportable,
)
from saccade.runs.run import Run
from saccade.tasks.translation.task import Translation
from saccade.training.weights import own_tensors

LAYOUT = 1  # raised when an export of the same run would be written differently


class CTranslate2Engine:
    """`exported` says how a new export compared with torch; None where one was there already."""

    def __init__(self, run: Run, quantization: Quantization | None = "int8", threads: int | None = None):
        require_exportable(run)
        self.run = run
        self.path, self.exported = _ready(run, quantization)
        hasty = is_quantised(quantization)
        self._search = CTranslate2Search(self.path, run.task.vocabularies, threads, hasty=hasty)

    def predict(
        self, sources: Sequence[str], prefixes: Sequence[str] | None = None, **decode: Any
    ) -> list[Translation]:
        """Translations in the order given. Keywords replace settings of the recipe's `decode` section."""
        return list(self.answers(sources, prefixes, **decode))

    def answers(
        self, sources: Sequence[str], prefixes: Sequence[str] | None = None, **decode: Any
    ) -> Iterator[Translation]:
        """The same, as they are found."""
        if prefixes is not None:
            raise UserError(
                "CTranslate2 does not score a beginning that is given: leave it out, or translate with torch"
            )
        return self._search.translate(self.run.task, sources, self.run.recipe.decode.with_changes(decode))


def fingerprint(run: Run) -> str:
    """Of the weights as they are in memory, the vocabularies, and the settings that an export depends on."""
    digest = hashlib.blake2b(digest_size=8)
    recipe = run.recipe.to_dict()
    settings = [LAYOUT, recipe["model"], recipe["data"]["max_length"], recipe["decode"]]
    vocabularies = [run.task.vocabularies.source.to_json(), run.task.vocabularies.target.to_json()]
    digest.update(json.dumps([settings, vocabularies], sort_keys=True).encode())
    for name, tensor in sorted(own_tensors(run.task.model).items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _ready(run: Run, quantization: Quantization | None) -> tuple[Path, Exported | None]:
    """The directory of the export, which is made if it is not there; exports of other weights go."""
    kind = f"ctranslate2-{quantization or 'float32'}-"
    path = run.path / "engines" / f"{kind}{fingerprint(run)}"
    if path.exists():
        return path, None
    try:
        exported = export_ctranslate2(run, path, quantization)
    except UserError:
        if not path.exists():  # else another process was faster
            raise
        return path, None
    for other in path.parent.glob(f"{kind}*"):
        if other != path:
            shutil.rmtree(other, ignore_errors=True)
    return path, exported
