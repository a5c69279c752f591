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

MAX_STOPS = 32
"""Most stop strings in a request. OpenAI allows 4; each is looked for at every token."""

LONGEST_STOP = 1000
"""Most characters in a stop string; nobody waits for more."""

MAX_PROMPTS = 128
"""Most prompts in a request; they would keep others waiting."""


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


class GenerationBody(BaseModel):
    """What both endpoints read."""

    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())

    model: str | None = Field(None, description="Any name; the server has one model.")
    max_tokens: int | None = Field(None, description="Null: to the end of the context.")
    max_completion_tokens: int | None = Field(None, description="Newer name of max_tokens.")
    n_predict: int | None = Field(None, description="llama-server's name of it; -1: no limit.")
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
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

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def limits(self) -> dict[str, int]:
        """The limits on generated tokens that were given, by field."""
        n_predict = None if self.n_predict == -1 else self.n_predict
        given = {
            "max_tokens": self.max_tokens,
            "max_completion_tokens": self.max_completion_tokens,
            "n_predict": n_predict,
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
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage figures."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def foreign(self) -> dict[str, Any]:
        """The fields that are not declared here."""
        return self.model_extra or {}


class ChatBody(GenerationBody):
    """Body of `POST /v1/chat/completions`."""

    messages: list[Message] = Field(min_length=1)
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description='Variables for the chat template, such as {"enable_thinking": false}.'
    )
    reasoning_effort: str | None = Field(None, description="A variable for the chat template.")


class CompletionBody(GenerationBody):
    """Body of `POST /v1/completions`."""

    prompt: Annotated[
        str | list[int] | list[str] | list[list[int]],
        must_be("a string, a list of strings, a list of token ids, or a list of such lists"),
    ]

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
