"""The kinds of simulated memory that tests go over."""

from typing import Any

from surefoot.runtime.simulated import SimulatedRuntime

KINDS: dict[str, dict[str, Any]] = {
    "attention": {"memory": "attention"},
    "windowed": {"memory": "windowed", "window": 8, "window_reserve": 48},
    "recurrent": {"memory": "recurrent"},
    "hybrid": {"memory": "hybrid"},
    "recurrent-snapshots": {"memory": "recurrent", "snapshots": 4},
    "hybrid-snapshots": {"memory": "hybrid", "snapshots": 2},
}
"""Memory on which speculation works; the settings of a `SimulatedRuntime`."""

RIGID: dict[str, Any] = {"memory": "recurrent", "can_fork": False}
"""Memory that can't go back at all."""


def simulated(kind: str, **settings: Any) -> SimulatedRuntime:
    """A simulated runtime of a kind, "rigid" included."""
    base = RIGID if kind == "rigid" else KINDS[kind]
    return SimulatedRuntime(**{**base, **settings})
