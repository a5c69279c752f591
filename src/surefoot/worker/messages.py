"""What the two processes say to each other, typed; msgspec writes it as MessagePack."""

from typing import NamedTuple

import msgspec

from surefoot.engine import Agreement, Facts, Progress, Request


class Submit(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Queue requests of one prompt.

    Attributes:
        ids: what the supervisor calls them.
        requests: what is asked for.
    """

    ids: list[int]
    requests: list[Request]


class Cancel(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """End a request within one round."""

    id: int


class Stop(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Fail what is open and end."""


class Ready(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The model is loaded."""

    facts: Facts


class Failed(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """The engine could not be made.

    Attributes:
        text: why, in words.
        parameter: the option at fault; empty if it is none's.
    """

    text: str
    parameter: str = ""


class Begun(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """A request has got a slot. It is told before the first pass, which may be the last."""

    id: int


class Figures(NamedTuple):
    """How the engine is.

    Attributes:
        slots: how many slots there are.
        rounds: rounds played.
        passes: forward passes.
        agreement: how self-checks went; None if there are none.
    """

    slots: int = 0
    rounds: int = 0
    passes: int = 0
    agreement: Agreement | None = None


class Told(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """What a step has done, for all requests in it; also a sign of life.

    Attributes:
        progress: of each request by its id, in order.
        figures: how the engine is.
    """

    progress: list[tuple[int, Progress]]
    figures: Figures


Message = Submit | Cancel | Stop | Ready | Failed | Begun | Told

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Message).decode
