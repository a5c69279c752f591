"""The format of a record, and requests as plain data and back."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from surefoot.constraints import ControlSpec
from surefoot.constraints.spec import Calls, Grammar, Reasoning
from surefoot.decoding import DraftWishes, Sampling, ScoreWish, SurefootError
from surefoot.engine.request import Request

FORMAT = "surefoot-record"
VERSION = 1
"""Goes up when a reader of the version before would misread a file."""


class RecordError(SurefootError):
    """A record can't be read, or can't be run again; the text says why."""


@dataclass(frozen=True, slots=True)
class RecordedRound:
    """What a round did for the request.

    Attributes:
        at: the position of the first token committed.
        pending: committed tokens that the pass absorbed.
        draft: the draft tokens that were verified.
        fillers: tokens that only padded the pass.
        accepted: how many draft tokens were committed.
        tokens: the tokens committed.
        gaps: between the two largest logits, for each token that the model was asked for; None
            where they were no numbers.
        near_ties: positions at which the choice was a near tie.
        shape: of all sequences in the pass: pending tokens, draft tokens, fillers.
        drafter: who drafted; empty if nobody did.
    """

    at: int
    pending: int
    draft: list[int]
    fillers: int
    accepted: int
    tokens: list[int]
    gaps: list[float | None]
    near_ties: list[int]
    shape: list[list[int]]
    drafter: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """A request, and what became of it.

    Attributes:
        facts: what the recorder was told about model, libraries and options.
        request: what was asked.
        begun: tokens that were committed before the first round.
        rounds: the rounds, in order.
        events: what else happened: lost memories, what the watchdog did.
        end: how it ended; None if the record breaks off.
    """

    facts: Mapping[str, Any]
    request: Request
    begun: list[int] = field(default_factory=list)
    rounds: list[RecordedRound] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    end: Mapping[str, Any] | None = None

    @property
    def tokens(self) -> list[int]:
        """The tokens generated."""
        return [*self.begun, *(token for each in self.rounds for token in each.tokens)]

    @property
    def gaps(self) -> dict[int, float | None]:
        """The gap at each position at which the model was asked."""
        return {each.at + index: gap for each in self.rounds for index, gap in enumerate(each.gaps)}

    @property
    def near_ties(self) -> frozenset[int]:
        """The positions at which the choice was a near tie."""
        return frozenset(at for each in self.rounds for at in each.near_ties)


def plain(value: object) -> Any:
    """What orjson can't write by itself, as something that it can; a bias of -inf becomes null."""
    if isinstance(value, (frozenset, set)):
        return sorted(value)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no plain form")


def request_of(fields: Mapping[str, Any]) -> Request:
    """The request in a header.

    Raises:
        KeyError, TypeError, ValueError, InvalidParameterError: it is none.
    """
    given = dict(fields)
    sampling = dict(given["sampling"])
    for name in ("samplers", "dry_sequence_breakers"):
        sampling[name] = tuple(sampling[name])
    sampling["logit_bias"] = tuple(
        (token, -math.inf if bias is None else bias) for token, bias in sampling["logit_bias"]
    )
    wishes = dict(given["wishes"])
    if wishes["types"] is not None:
        wishes["types"] = frozenset(wishes["types"])
    wish = given["wish"]
    return Request(
        **given
        | {
            "prompt": tuple(given["prompt"]),
            "sampling": Sampling(**sampling),
            "stops": tuple(given["stops"]),
            "stop_tokens": frozenset(given["stop_tokens"]),
            "wishes": DraftWishes(**wishes),
            "control": _control(given["control"]),
            "wish": None if wish is None else ScoreWish(**wish),
            "markup": frozenset(given["markup"]),
            "message_starts": tuple(given["message_starts"]),
            # What a former engine has decided is told as `begun`; where it was does not matter.
            "resumed": None,
            "slot": None,
        }
    )


def _control(given: Mapping[str, Any] | None) -> ControlSpec | None:
    if given is None:
        return None
    grammar, reasoning, calls = given["grammar"], given["reasoning"], given["calls"]
    return ControlSpec(
        grammar=None if grammar is None else Grammar(**grammar),
        reasoning=None if reasoning is None else Reasoning(**reasoning),
        calls=None
        if calls is None
        else Calls(
            **calls | {"triggers": tuple(calls["triggers"]), "grammar": Grammar(**calls["grammar"])}
        ),
    )
