"""Muon: a matrix inside the model moves by its momentum made orthogonal (Jordan 2024); everything else is AdamW's.

    M ← μ M + G        O = U Vᵀ of  G + μ M = U S Vᵀ        W ← (1 - rate · decay) W - rate · 0.2 √(larger side) · O

Every direction of a matrix's update is equally long, so what gradients say rarely is learned as fast as what they say always. The factor
0.2 √(larger side) makes an update's root mean square that of AdamW (Liu 2025), so one rate serves both. Word embeddings, output layers,
recurrent weights, depthwise convolutions, biases, norms, positions and what an attention score learns are AdamW's.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

# Of the quintic x ← a x + b x³ + c x⁵, which drives singular values between 0.01 and 1 near 1 in five rounds (Jordan 2024).
_QUINTIC = (3.4445, -4.7750, 2.0315)
_ROUNDS = 5


class Muon(torch.optim.AdamW):
    """`groups` as AdamW takes them; a parameter that is among `matrices` too (see `inner_matrices`) is not AdamW's."""

    def __init__(self, groups: list[dict[str, Any]], matrices: Sequence[Tensor], momentum: float = 0.95, **adamw: Any):
        super().__init__(groups, **adamw)
        self._matrices, self._momentum = set(matrices), momentum

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            self._step_matrices(group)
        super().step()  # passes over what has no gradient any more

    def _step_matrices(self, group: dict[str, Any]) -> None:
        alike: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for matrix in group["params"]:
            if matrix in self._matrices and matrix.grad is not None:
                alike[tuple(matrix.shape)].append((matrix, self._direction(matrix)))
                matrix.grad = None
        for pairs in alike.values():
            matrices, directions = zip(*pairs, strict=True)
            together = torch.stack(directions)
            length = 0.2 * max(together.shape[1:]) ** 0.5
            torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
            for matrix, update in zip(matrices, orthogonal(together), strict=True):
                matrix.add_(update.view_as(matrix), alpha=-group["lr"] * length)

    def _direction(self, matrix: Tensor) -> Tensor:
        """Gradient and momentum, one look ahead (Nesterov), as a matrix: a convolution's filters are rows."""
        gradient, state = matrix.grad, self.state[matrix]
        assert gradient is not None
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(gradient)
        state["momentum"].mul_(self._momentum).add_(gradient)
        return gradient.add(state["momentum"], alpha=self._momentum).flatten(1)


def orthogonal(matrices: Tensor) -> Tensor:
    """U Vᵀ of each matrix U S Vᵀ, nearly: singular values between 0.7 and 1.2, where they were not tiny. (N, rows, columns)."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-7)[:, None, None]
    a, b, c = _QUINTIC
    for _ in range(_ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def inner_matrices(model: nn.Module) -> list[Tensor]:
    """Weights of the linear and convolutional layers, but for what is an embedding too and for the model's output: its `output`, or its
    `output_layers()` where there are several."""
    outside = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    several: Callable[[], list[nn.Linear]] | None = getattr(model, "output_layers", None)
    outside |= {
        module.weight for module in (several() if several else [getattr(model, "output", None)]) if module is not None
    }
    dense = [
        module
        for module in model.modules()
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and module.groups == 1)
    ]
    return [module.weight for module in dense if module.weight not in outside]
