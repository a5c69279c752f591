"""How answers are made and read where a request says nothing else."""

from dataclasses import dataclass

from surefoot.decoding import RuleName
from surefoot.engine import Exactness


@dataclass(frozen=True, slots=True)
class AnswerSettings:
    """Defaults of the server.

    Attributes:
        exact: the level of exactness.
        rule: how drafts are verified.
        tool_format: name of the format of reasoning and tool calls; "auto" goes by the template.
        reasoning_format: "none" leaves reasoning in the content, "auto" and "deepseek" tell it
            apart.
        reasoning_budget: most tokens of reasoning; -1 for no limit.
    """

    exact: Exactness = "fast"
    rule: RuleName = "coupled"
    tool_format: str = "auto"
    reasoning_format: str = "auto"
    reasoning_budget: int = -1
