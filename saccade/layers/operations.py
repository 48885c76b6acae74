"""How many floating-point operations a model takes for one example."""

from copy import deepcopy
from typing import TypeVar

from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from saccade.attention import Attend, LocalSelfAttention2d, Route

Model = TypeVar("Model", bound=nn.Module)


def by_definition(model: Model) -> Model:
    """A copy on the CPU that attends by the explicit route; the model in use keeps its own."""
    copied = deepcopy(model).cpu().float().eval().requires_grad_(False)
    for module in copied.modules():
        if isinstance(module, Attend):
            module.route = Route.EXPLICIT
    return copied


def operations(model: nn.Module, example: Tensor) -> float:
    """Floating-point operations of one forward pass over one example, those of attention itself included.

    Attention is written out, because a fused kernel's products are not counted, and neighbourhoods are counted by their formula.
    """
    model, near = by_definition(model), [0.0]

    def count(module: nn.Module, inputs: object, output: Tensor) -> None:
        assert isinstance(module, LocalSelfAttention2d)
        near[0] += 2 * 2 * module.kernel_size**2 * output.numel()  # a product and a sum for each score and each value

    for module in model.modules():
        if isinstance(module, LocalSelfAttention2d):
            module.register_forward_hook(count)
    with FlopCounterMode(display=False) as counter:
        model(example.cpu())
    return float(counter.get_total_flops()) + near[0]
