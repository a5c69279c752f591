"""What the endpoints read of a request's body; types are taken strictly.

Fields that are not here are looked at in `foreign_fields.py`.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic import ValidationError as PydanticValidationError
from pydantic_core import PydanticCustomError

from surefoot.decoding import DraftWishes
from surefoot.server.errors import invalid

MAX_STOPS = 32
"""Most stop strings in a request. OpenAI allows 4; each is looked for at every token."""

LONGEST_STOP = 1000
"""Most characters in a stop string; nobody waits for more."""

MAX_PROMPTS = 128
"""Most prompts in a request; they would keep others waiting."""

ALIASES = {
    "repetition_penalty": "repeat_penalty",
    "typ_p": "typical_p",
    "guided_json": "json_schema",
    "guided_grammar": "grammar",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "return_tokens": "return_token_ids",
    "reasoning_budget": "thinking_budget_tokens",
}
"""Other servers' names of some fields."""


def must_be(what: str) -> WrapValidator:
    """One message for a field of several types, in place of one for each type."""

    def check(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except PydanticValidationError:
            raise PydanticCustomError("type", "must be {what}", {"what": what}) from None

    return WrapValidator(check)


class Part(BaseModel):
    """A part of a message's content; text is all there is so far."""

    model_config = ConfigDict(strict=True)

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """A message. What else it carries (`name`, `tool_calls`, ...) is passed to the template."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        str | list[Part] | None,
        must_be("text or a list of text parts; images and audio are not supported"),
    ] = None

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        if self.content is None and self.role != "assistant":
            raise PydanticCustomError("content", "a {role} message needs content", self.__dict__)
        return self


class StreamOptions(BaseModel):
    """How to stream."""

    model_config = ConfigDict(strict=True)

    include_usage: bool = False


class SpeculativeOptions(BaseModel):
    """How to speculate, for one request."""

    model_config = ConfigDict(strict=True, extra="forbid")

    types: Annotated[list[str] | None, must_be("a list of names of drafters")] = Field(
        None, description="Which of the server's drafters may draft; none of them: no speculation."
    )
    n_max: int | None = Field(
        None, ge=0, description="Most draft tokens a round; the server's limit holds too."
    )
    n_min: int | None = Field(
        None, ge=0, description="Shorter drafts are not used, of drafters that run a model."
    )
    p_min: float | None = Field(
        None, ge=0, le=1, description="Such drafts end before the first less probable token."
    )


class Function(BaseModel):
    """A function that the model may call."""

    model_config = ConfigDict(strict=True, extra="allow")

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.\-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = Field(
        None, description="A JSON schema of an object; left out: there are none."
    )

    @model_validator(mode="after")
    def _takes_an_object(self) -> Self:
        kind = (self.parameters or {}).get("type", "object")
        if kind != "object":
            raise PydanticCustomError(
                "parameters", "parameters must describe an object, not {kind}", {"kind": str(kind)}
            )
        return self


class Tool(BaseModel):
    """A tool; functions are all that there are."""

    model_config = ConfigDict(strict=True, extra="allow")

    type: Literal["function"]
    function: Function


class NamedFunction(BaseModel):
    """A function's name."""

    model_config = ConfigDict(strict=True)

    name: str


class ToolChoice(BaseModel):
    """The one tool that must be called."""

    model_config = ConfigDict(strict=True)

    type: Literal["function"]
    function: NamedFunction


class AllowedTools(BaseModel):
    """Some of the tools, and whether one of them must be called."""

    model_config = ConfigDict(strict=True)

    mode: Literal["auto", "required"]
    tools: list[ToolChoice] = Field(min_length=1)


class AllowedToolsChoice(BaseModel):
    """The tools that may be called."""

    model_config = ConfigDict(strict=True)

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


class GenerationBody(BaseModel):
    """What both endpoints read."""

    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())

    model: str | None = Field(None, description="Any name; the server has one model.")
    max_tokens: int | None = Field(None, description="-1: to the end of the context.")
    max_completion_tokens: int | None = Field(None, description="Newer name of max_tokens.")
    n_predict: int | None = Field(None, description="llama-server's name of it.")
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    typical_p: float | None = None
    typ_p: float | None = Field(None, description="Another name of typical_p.")
    top_n_sigma: float | None = None
    min_keep: int | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    repeat_last_n: int | None = None
    repeat_penalty: float | None = None
    repetition_penalty: float | None = Field(None, description="vLLM's name of repeat_penalty.")
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: list[str] | None = Field(None, max_length=64)
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    samplers: Annotated[
        str | list[str] | None, must_be("a list of samplers' names, or a text of their letters")
    ] = None
    logit_bias: Annotated[
        dict[str, float | bool] | list[list[Any]] | None,
        must_be("an object of biases by token id, or a list of [token id or text, bias or false]"),
    ] = None
    min_tokens: int | None = Field(None, description="No end of generation before so many.")
    ignore_eos: bool | None = None
    n: int | None = Field(None, ge=1, description="Choices for each prompt, with seeds in a row.")
    n_probs: int | None = Field(None, ge=0, description="llama-server's name of top_logprobs.")
    post_sampling_probs: bool | None = Field(
        None, description="Probabilities after all sampling parameters, in the place of raw ones."
    )
    return_token_ids: bool | None = Field(None, description="Tell the ids of the tokens, too.")
    return_tokens: bool | None = Field(None, description="llama-server's name of it.")
    response_format: dict[str, Any] | None = None
    json_schema: Annotated[
        dict[str, Any] | str | None, must_be("a JSON schema, as an object or in a text")
    ] = None
    grammar: str | None = Field(None, description="GBNF, or Lark if it begins with %llguidance.")
    regex: str | None = None
    choice: list[str] | None = None
    guided_json: Annotated[
        dict[str, Any] | str | None, must_be("a JSON schema, as an object or in a text")
    ] = None
    guided_grammar: str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    structured_outputs: dict[str, Any] | None = None
    exact: Literal["fast", "strict"] | None = Field(
        None, description="strict: the text hangs on the request alone; null: the server's choice."
    )
    strict: bool | None = Field(None, description="True is exact: strict, false exact: fast.")
    verify: Literal["coupled", "rejection"] | None = Field(
        None, description="How drafts are verified; null: the server's choice."
    )
    seed: int | None = Field(None, description="-1: a new one. Null: the server's, else a new one.")
    stop: Annotated[str | list[str] | None, must_be("a string or a list of strings")] = None
    stop_token_ids: Annotated[list[int] | None, must_be("a list of token ids")] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    speculative: Annotated[
        bool | SpeculativeOptions | None,
        must_be(
            "true, false or an object with any of types (names of drafters), n_max and n_min "
            "(whole numbers, 0 or more) and p_min (0 to 1)"
        ),
    ] = Field(None, description="False turns speculation off for this request.")
    cache_prompt: bool | None = Field(None, description="True is what always holds.")
    priority: int | None = Field(
        None, ge=-100, le=100, description="Who has more goes first where requests wait."
    )
    queue_timeout: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="Seconds to wait for a slot, at most."
    )
    deadline_seconds: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="After so long it ends with what it has."
    )
    id_slot: int | None = Field(None, description="The slot to wait for; -1: any.")
    context_shift: bool | None = Field(
        None, description="Go on where the context is full, and forget the middle of the text."
    )
    n_keep: int | None = Field(
        None, ge=-1, description="Tokens of the prompt that stay then; -1: all."
    )
    n_discard: int | None = Field(
        None, ge=0, description="Tokens that are forgotten then; 0: half of the others."
    )
    t_max_predict_ms: int | None = Field(
        None, description="The same from the first token on, behind a line; 0 or less: no limit."
    )

    @model_validator(mode="before")
    @classmethod
    def _gather_speculative(cls, body: dict[str, Any]) -> dict[str, Any]:
        """Read `speculative.n_max` and the like, as llama-server spells them, as parts of one."""
        prefix = "speculative."
        dotted = {name[len(prefix) :]: body[name] for name in body if name.startswith(prefix)}
        if not dotted:
            return body
        whole = body.get("speculative")
        if whole in (None, True):
            whole = {}
        if not isinstance(whole, dict):
            raise PydanticCustomError(
                "speculative", "speculative is {whole}, and has parts beside it", {"whole": whole}
            )
        rest = {name: value for name, value in body.items() if not name.startswith(prefix)}
        return rest | {"speculative": whole | dotted}

    @model_validator(mode="after")
    def _resolve_aliases(self) -> Self:
        """Give what came under another name its own, and refuse to choose between two values."""
        for alias, name in self._aliases():
            value = getattr(self, alias)
            if value is None:
                continue
            if getattr(self, name) not in (None, value):
                raise invalid(alias, f"is another name of {name}; give one of them")
            setattr(self, name, value)
        if self.strict is not None:
            level: Literal["fast", "strict"] = "strict" if self.strict else "fast"
            if self.exact not in (None, level):
                raise invalid("strict", f"{self.strict} contradicts exact, which is {self.exact}")
            self.exact = level
        return self

    def written(self, name: str) -> str:
        """What a field is called in this body."""
        names = [alias for alias, other in self._aliases() if other == name]
        return next((alias for alias in names if getattr(self, alias) is not None), name)

    @classmethod
    def _aliases(cls) -> list[tuple[str, str]]:
        return [item for item in ALIASES.items() if item[0] in cls.model_fields]

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def limits(self) -> dict[str, int]:
        """The limits on generated tokens that were given, by field; -1 asks for none."""
        given = {
            "max_tokens": self.max_tokens,
            "max_completion_tokens": self.max_completion_tokens,
            "n_predict": self.n_predict,
        }
        return {name: limit for name, limit in given.items() if limit is not None}

    @property
    def max_draft(self) -> int | None:
        """Most draft tokens a round; None if that is left to the server."""
        if isinstance(self.speculative, SpeculativeOptions):
            return 0 if self.speculative.types == [] else self.speculative.n_max
        return 0 if self.speculative is False else None

    @property
    def wishes(self) -> DraftWishes:
        """What is wanted of drafts, beyond their length."""
        options = self.speculative
        if not isinstance(options, SpeculativeOptions):
            return DraftWishes()
        types = None if options.types is None else frozenset(options.types)
        return DraftWishes(types, options.n_min, options.p_min)

    @property
    def top(self) -> tuple[str, int] | None:
        """How many other tokens' log-probabilities to tell with each token's own, and the field
        that says so; None for none at all."""
        return ("n_probs", self.n_probs) if self.n_probs else None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage figures."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def foreign(self) -> dict[str, Any]:
        """The fields that are not declared here."""
        return self.model_extra or {}


class Thinking(BaseModel):
    """Whether to think, as Anthropic spells it."""

    model_config = ConfigDict(strict=True, extra="forbid")

    type: Literal["enabled", "disabled"]
    budget_tokens: int | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _has_a_budget_only_if_it_thinks(self) -> Self:
        if self.type == "disabled" and self.budget_tokens:
            raise PydanticCustomError("budget", "disabled can't have budget_tokens")
        return self


class ReasoningOptions(BaseModel):
    """How much to think, as an object."""

    model_config = ConfigDict(strict=True, extra="forbid")

    effort: str | None = None


class ChatBody(GenerationBody):
    """Body of `POST /v1/chat/completions`."""

    messages: list[Message] = Field(min_length=1)
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description='Variables for the chat template, such as {"enable_thinking": false}.'
    )
    reasoning_effort: str | None = Field(
        None, description="A variable for the chat template; none: no reasoning."
    )
    reasoning: ReasoningOptions | None = Field(None, description="Its effort is reasoning_effort.")
    thinking: Thinking | None = Field(
        None, description="Whether to reason, and for how many tokens at most."
    )
    enable_thinking: bool | None = Field(None, description="A variable for the chat template.")
    add_generation_prompt: bool | None = Field(
        None, description="False does not open the assistant's turn."
    )
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: list[Tool] | None = None
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | ToolChoice | AllowedToolsChoice | None,
        must_be('"none", "auto", "required" or {"type": "function", "function": {"name": ...}}'),
    ] = None
    parallel_tool_calls: bool | None = None
    reasoning_format: Literal["auto", "none", "deepseek"] | None = None
    thinking_budget_tokens: int | None = Field(
        None, ge=-1, description="Most tokens of reasoning; -1 for no limit."
    )
    reasoning_budget: int | None = Field(None, ge=-1, description="Another name of it.")
    reasoning_budget_message: str | None = Field(
        None, max_length=4000, description="Text in front of an end of reasoning that is forced."
    )

    @property
    def top(self) -> tuple[str, int] | None:
        """As `GenerationBody`."""
        if self.top_logprobs and not self.logprobs:
            raise invalid("top_logprobs", "needs logprobs to be true")
        if self.n_probs or not self.logprobs:
            return super().top
        return "top_logprobs", self.top_logprobs or 0

    @property
    def template_variables(self) -> dict[str, Any]:
        """What the chat template is told beside messages and tools.

        Raises:
            ApiError: one is set that has a field which is no variable.
        """
        given = dict(self.chat_template_kwargs or {})
        for name in ("messages", "tools"):
            if name in given:
                raise invalid("chat_template_kwargs", f"{name} is not a variable to be set here")
        for name in ("reasoning_effort", "enable_thinking", "add_generation_prompt"):
            if (value := getattr(self, name)) is not None:
                given.setdefault(name, value)
        return given


class CompletionBody(GenerationBody):
    """Body of `POST /v1/completions`."""

    logprobs: Annotated[
        bool | int | None, must_be("a whole number of other tokens to tell with each, 0 or more")
    ] = None
    echo: bool | None = Field(None, description="Give the prompt back in front of the text.")
    best_of: int | None = Field(
        None, ge=1, description="So many texts are made; the n likeliest by token are given."
    )

    prompt: Annotated[
        str | list[int] | list[str] | list[list[int]],
        must_be("a string, a list of strings, a list of token ids, or a list of such lists"),
    ]

    @property
    def top(self) -> tuple[str, int] | None:
        """As `GenerationBody`; true stands for no others."""
        if self.n_probs or self.logprobs is None or self.logprobs is False:
            return super().top
        return "logprobs", int(self.logprobs) if self.logprobs is not True else 0

    @property
    def prompts(self) -> list[str | list[int]]:
        """The prompts, each a text or token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        ids = [item for item in self.prompt if isinstance(item, int)]
        return [ids] if ids else [item for item in self.prompt if not isinstance(item, int)]


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """What FastAPI needs to describe a body that it does not read itself."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    content = {"application/json": {"schema": _inlined(schema, definitions)}}
    return {"requestBody": {"required": True, "content": content}}


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """The schema with its references replaced by what they refer to."""
    if isinstance(schema, list):
        return [_inlined(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {name: _inlined(value, definitions) for name, value in schema.items()}
