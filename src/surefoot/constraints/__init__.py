"""What a text must look like: grammars, JSON schemas, tool calls, thinking budgets.

`ControlSpec` says it as plain data, and `Controls` makes controls of it. llguidance does the work.
"""

from surefoot.constraints.errors import GrammarError
from surefoot.constraints.factory import Controls
from surefoot.constraints.spec import Calls, ControlSpec, Grammar, GrammarKind, Reasoning

__all__ = [
    "Calls",
    "ControlSpec",
    "Controls",
    "Grammar",
    "GrammarError",
    "GrammarKind",
    "Reasoning",
]
