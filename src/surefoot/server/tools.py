"""The tools of a chat: which may be called, whether one must, and the rules for a call."""

from dataclasses import dataclass
from typing import Any

from surefoot.chat.formats import Format
from surefoot.chat.formats.base import SpecialToken
from surefoot.constraints import Calls, Grammar
from surefoot.server.errors import invalid
from surefoot.server.schemas import AllowedToolsChoice, ChatBody, ToolChoice


@dataclass(frozen=True, slots=True)
class Tools:
    """What a chat may call.

    Attributes:
        functions: the functions that may be called; none if calls are not told apart.
        required: whether one of them must be.
        parallel: whether several may be.
        shown: the tools that the template is told of; None for none.
    """

    functions: list[dict[str, Any]]
    required: bool = False
    parallel: bool = True
    shown: list[dict[str, Any]] | None = None


def tools_of(body: ChatBody) -> Tools:
    """The tools of a body.

    Raises:
        ApiError: two have one name, or one that may or must be called is not there.
    """
    functions = {
        tool.function.name: tool.function.model_dump(exclude_unset=True)
        for tool in body.tools or []
    }
    if len(functions) < len(body.tools or []):
        raise invalid("tools", "two functions have the same name")
    required, names = _choice(body)
    unknown = [name for name in names or [] if name not in functions]
    if unknown:
        raise invalid("tool_choice", f"there is no tool called {unknown[0]!r}")
    if not functions:
        if required:
            raise invalid("tool_choice", "required needs tools")
        return Tools([])
    if body.tool_choice == "none":
        return Tools([])
    return Tools(
        [function for name, function in functions.items() if names is None or name in names],
        required=required,
        parallel=body.parallel_tool_calls is not False,
        shown=[tool.model_dump(exclude_unset=True) for tool in body.tools or []],
    )


def _choice(body: ChatBody) -> tuple[bool, list[str] | None]:
    """Whether a call must come, and of which functions; None for any."""
    match body.tool_choice:
        case ToolChoice(function=function):
            return True, [function.name]
        case AllowedToolsChoice(allowed_tools=allowed):
            return allowed.mode == "required", [tool.function.name for tool in allowed.tools]
        case choice:
            return choice == "required", None


def calls_of(tools: Tools, form: Format, special: SpecialToken) -> tuple[Calls | None, list[str]]:
    """The rules for calls in a model's format, and warnings where there can be none.

    Raises:
        ApiError: a call must come, and the format has no rules for calls.
    """
    if not tools.functions:
        return None, []
    rules = form.rules(tools.functions, special)
    if rules is not None:
        grammar = Grammar("lark", rules.grammar)
        return Calls(rules.triggers, grammar, tools.required, tools.parallel), []
    if tools.required:
        raise invalid("tool_choice", f"a call can't be required in the format {form.name}")
    return None, [f"tools: calls are not held to their schemas in the format {form.name}"]
