"""A module as an ONNX graph, written so that it is right for every size of its free axes."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade.errors import UserError
from saccade.packages import require

TOLERANCE = 1e-4  # of a log-probability
OPSET = 18
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def write_graph(
    module: nn.Module,
    example: tuple[Tensor, ...],
    path: Path,
    inputs: Sequence[str],
    outputs: Sequence[str],
    axes: Mapping[str, dict[int, str]],
) -> None:
    """`axes` names the free axes of each input."""
    with _quietly():
        torch.onnx.export(
            module,
            example,
            path,
            input_names=inputs,
            output_names=outputs,
            dynamic_shapes={name: axes[name] for name in inputs},
            custom_translation_table={torch.ops.aten.einsum.default: _einsum},
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def open_graph(path: Path) -> Any:
    return require("onnxruntime").InferenceSession(path, providers=["CPUExecutionProvider"])


def check(difference: float) -> float:
    """Nothing is kept that another engine computes differently."""
    if not difference <= TOLERANCE:
        raise UserError(
            f"onnxruntime does not compute what torch computes (log-probabilities differ by {difference:.1e}, allowed are "
            f"{TOLERANCE:.0e}), so nothing was written: try other versions of onnxruntime and onnxscript"
        )
    return difference


def _einsum(equation: str, tensors: Any, path: Any = None) -> Any:
    """The one sum of products in attention, vᵀ over the hidden layer: ONNX has it only for operands with equally many axes."""
    if equation != "...qka,...a->...qk":
        raise NotImplementedError(f"{equation} has no translation to ONNX")
    operators = getattr(require("onnxscript"), f"opset{OPSET}")
    hidden, v = tensors
    column = operators.Unsqueeze(v, operators.Constant(value_ints=[-3, -1]))  # (..., A) -> (..., 1, A, 1)
    scores = operators.MatMul(hidden, column)  # (..., Q, K, 1)
    return operators.Squeeze(scores, operators.Constant(value_ints=[-1]))


@contextmanager
def _quietly() -> Iterator[None]:
    """The exporter tells of packages that it could also use and of its own deprecated parts; nobody here can act on that."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
