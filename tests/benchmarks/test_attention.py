"""The routes that the attention benchmark measures are those that can compute what they are given."""

import pytest

from benchmarks.attention import forward, is_measured, route_input, route_layer
from saccade.attention import Route


@pytest.mark.parametrize("window", [0, 64])
@pytest.mark.parametrize("length", [64, 256])
def test_what_is_to_be_measured_can_be_computed(length, window):
    measured = [route for route in (*Route, None) if is_measured(length, "scaled-dot", window, route)]
    assert {Route.EXPLICIT, Route.FUSED, None} <= {*measured}
    for route in measured:
        forward(route_layer(length, "scaled-dot", window, route), route_input(length))
