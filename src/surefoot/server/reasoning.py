"""The reasoning of a chat: whether it is told apart, how long it may be, and its rules."""

from dataclasses import dataclass, field

from surefoot.chat.formats import Tags
from surefoot.constraints import Reasoning
from surefoot.server.schemas import ChatBody
from surefoot.server.service import Service


@dataclass(frozen=True, slots=True)
class Thought:
    """What a chat wants of the reasoning.

    Attributes:
        tags: what stands around it; None if the model does not reason, as far as is known.
        opened: whether the prompt has begun it already.
        tells: whether it is told apart from the answer.
        budget: most tokens of it; None for no limit.
        message: text in front of an end that is forced.
        warnings: what of the request can't be honoured.
    """

    tags: Tags | None
    opened: bool
    tells: bool
    budget: int | None
    message: str
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, service: Service, body: ChatBody, *, opened: bool, tells: bool) -> "Thought":
        """What a body wants, or else the server."""
        own = body.thinking_budget_tokens
        budget = service.reasoning_budget if own is None else own
        tags = service.format.reasoning if opened or service.thinks else None
        warnings = []
        if own is not None and own >= 0 and tags is None:
            name = body.written("thinking_budget_tokens")
            warnings.append(f"{name}: the model's chat template has no reasoning")
        message = body.reasoning_budget_message or ""
        return cls(tags, opened, tells, None if budget < 0 else budget, message, warnings)

    def rules(self, *, bound: bool) -> Reasoning | None:
        """The rules; None for none.

        Args:
            bound: whether a grammar holds for the answer. Then reasoning that is not told apart
                would spoil it, and is let in only if the prompt has begun it.
        """
        if self.tags is None:
            return None
        if not (self.opened or self.tells or (self.budget is not None and not bound)):
            return None
        tags = self.tags
        return Reasoning(
            tags.start, tags.end, self.opened, self.budget, self.message, again=tags.again
        )
