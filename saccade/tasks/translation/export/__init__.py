"""A trained translator for other engines: CTranslate2 and ONNX."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from saccade.config.recipe import Config
from saccade.tasks.task import Export
from saccade.tasks.translation.export.ctranslate2 import Quantization, export_ctranslate2
from saccade.tasks.translation.export.onnx import export_onnx

if TYPE_CHECKING:
    from saccade.tasks.translation.task import TranslationTask


class CTranslate2Fields(Config):
    quantization: Quantization | None = Field(None, description="of the weights; single precision unless given")


class OnnxFields(Config):
    pass


def exports(task: "TranslationTask") -> Mapping[str, Export]:
    def to_ctranslate2(directory: Path, fields: CTranslate2Fields) -> str:
        return str(export_ctranslate2(task, directory, fields.quantization))

    def to_onnx(directory: Path, fields: OnnxFields) -> str:
        return str(export_onnx(task, directory))

    return {
        "ctranslate2": Export("an engine for CPUs", CTranslate2Fields, to_ctranslate2),
        "onnx": Export("graphs for onnxruntime and others", OnnxFields, to_onnx),
    }
