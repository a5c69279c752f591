"""What a text must look like: grammars, JSON schemas, tool calls, thinking budgets.

`ControlSpec` says it as plain data. llguidance does the work.
"""

from surefoot.constraints.spec import Calls, ControlSpec, Grammar, GrammarKind, Reasoning

__all__ = ["Calls", "ControlSpec", "Grammar", "GrammarKind", "Reasoning"]
