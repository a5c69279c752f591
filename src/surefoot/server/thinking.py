"""Other servers' words for whether and how much to think, in terms of what there is here.

What there is: variables of the model's own chat template, and the budget.
"""

from typing import Any

from surefoot.server.errors import ApiError, invalid
from surefoot.server.schemas import ChatBody
from surefoot.server.service import Service

SWITCHES = ("enable_thinking", "thinking")
"""Variables by which chat templates let thinking be turned on and off."""

USUAL_EFFORT = "medium"
"""What clients mean who want nothing special."""


def with_thinking(service: Service, body: ChatBody) -> ChatBody:
    """A body in which `thinking`, `reasoning` and `reasoning_effort` have become what they mean.

    Raises:
        ApiError: two fields contradict each other, or the model can't be told.
    """
    body = _with_effort(service, body)
    if body.thinking is None:
        return body
    if body.thinking.type == "disabled":
        return _switched(service, body, "thinking", on=False)
    body = _switched(service, body, "thinking", on=True)
    if body.thinking is not None and body.thinking.budget_tokens is not None:
        body = _with_budget(body, "thinking", body.thinking.budget_tokens)
    return body


def _with_effort(service: Service, body: ChatBody) -> ChatBody:
    field, effort = "reasoning_effort", body.reasoning_effort
    if body.reasoning is not None and body.reasoning.effort is not None:
        if effort not in (None, body.reasoning.effort):
            raise invalid(
                "reasoning", f"its effort contradicts reasoning_effort, which is {effort}"
            )
        field, effort = "reasoning", body.reasoning.effort
    if effort is None:
        return body
    if "reasoning_effort" in service.template.variables:
        return body.model_copy(update={"reasoning_effort": effort})
    if effort == "none":
        body = _switched(service, body, field, on=False)
    elif effort != USUAL_EFFORT:
        raise _no_equivalent(field, "does not use reasoning_effort; leave it out")
    return body.model_copy(update={"reasoning_effort": None})


def _switched(service: Service, body: ChatBody, field: str, *, on: bool) -> ChatBody:
    """Thinking turned on or off, by a variable of the template if it has one, else by the budget.

    A model that does not reason needs not be turned off.
    """
    variables = dict(body.chat_template_kwargs or {})
    switch = next((name for name in SWITCHES if name in service.template.variables), None)
    if switch is None and on and not service.thinks:
        raise _no_equivalent(field, "has no reasoning")
    if switch is not None:
        given = variables.get(switch, body.enable_thinking)
        if given not in (None, on):
            raise invalid(field, f"contradicts {switch}, which is {given}")
        return body.model_copy(update={"chat_template_kwargs": {**variables, switch: on}})
    return body if on or not service.thinks else _with_budget(body, field, 0)


def _with_budget(body: ChatBody, field: str, budget: int) -> ChatBody:
    given = body.thinking_budget_tokens
    if given not in (None, budget):
        name = body.written("thinking_budget_tokens")
        raise invalid(field, f"contradicts {name}, which is {given}")
    update: dict[str, Any] = {"thinking_budget_tokens": budget}
    return body.model_copy(update=update)


def _no_equivalent(field: str, why: str) -> ApiError:
    return invalid(
        field, f"is not supported here: the model's chat template {why}", code="unsupported_field"
    )
