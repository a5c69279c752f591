"""A simulated runtime: a toy model with real memory semantics, for tests and study.

Everything follows from one seed. Logits are computed from what the simulated memory holds, never
from the true list of tokens, so a wrong roll-back gives wrong logits. No weights, no library.
"""

from surefoot.runtime.simulated.faults import FaultPlan
from surefoot.runtime.simulated.memory import MemoryKind, MisuseError
from surefoot.runtime.simulated.nudges import NearTie
from surefoot.runtime.simulated.runtime import SimulatedRuntime
from surefoot.runtime.simulated.tokenizer import SimulatedTokenizer

__all__ = [
    "FaultPlan",
    "MemoryKind",
    "MisuseError",
    "NearTie",
    "SimulatedRuntime",
    "SimulatedTokenizer",
]
