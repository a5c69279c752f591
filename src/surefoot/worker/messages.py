"""What the two processes say to each other, typed; msgspec writes it as MessagePack."""

import msgspec

from surefoot.engine import Facts, Figures, Health, Progress, Request, SlotDone, SlotOrder
from surefoot.engine.slot_actions import Problem


class Age(msgspec.Struct, array_like=True, frozen=True):
    """How long ago something was.

    Attributes:
        submitted: seconds since a request came.
        first_token: seconds since its first token was there; None if there is none.
    """

    submitted: float
    first_token: float | None = None


class Submit(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Queue requests of one prompt.

    Attributes:
        ids: what the supervisor calls them.
        requests: what is asked for.
        ages: what is known of their time so far.
    """

    ids: list[int]
    requests: list[Request]
    ages: list[Age]


class Cancel(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """End a request within one round."""

    id: int


class DoSlot(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """Save, restore or erase a slot.

    Attributes:
        id: what the supervisor calls the order.
        order: what is to be done.
    """

    id: int
    order: SlotOrder


class DidSlot(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """What came of an order for a slot.

    Attributes:
        id: the order's.
        done: what was done; None if that was not possible.
        problem: the kind of problem, if so; see `SlotError`.
        text: what was wrong, in words.
    """

    id: int
    done: SlotDone | None
    problem: Problem = "unusable"
    text: str = ""


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


class Sign(msgspec.Struct, array_like=True, frozen=True):
    """A sign of life: how the engine is.

    Attributes:
        figures: what it has counted.
        health: whether its slots move.
    """

    figures: Figures
    health: Health


class Told(msgspec.Struct, tag=True, array_like=True, frozen=True):
    """What a step has done, for all requests in it; also a sign of life.

    Attributes:
        progress: of each request by its id, in order.
        sign: how the engine is, at times.
    """

    progress: list[tuple[int, Progress]]
    sign: Sign | None = None


Message = Submit | Cancel | DoSlot | DidSlot | Stop | Ready | Failed | Begun | Told

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Message).decode
