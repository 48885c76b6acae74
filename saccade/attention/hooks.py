"""Hooked modules must be called as modules."""

from torch import nn


def is_hooked(part: nn.Module) -> bool:
    """Whether a hook would not run if this part were not called."""
    everywhere = nn.modules.module
    hooks = (
        part._forward_hooks,
        part._forward_pre_hooks,
        part._backward_hooks,
        part._backward_pre_hooks,
        everywhere._global_forward_hooks,
        everywhere._global_forward_pre_hooks,
        everywhere._global_backward_hooks,
        everywhere._global_backward_pre_hooks,
    )
    return any(hooks)
