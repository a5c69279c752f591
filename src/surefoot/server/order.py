"""An order: what a request's body asks of the engine, with nothing left open."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from surefoot.constraints import ControlSpec
from surefoot.decoding import DraftWishes, Sampling, ScoreWish
from surefoot.decoding.noise import SEED_LIMIT
from surefoot.engine import Request, Summary
from surefoot.server.errors import invalid
from surefoot.server.foreign_fields import check_foreign_fields
from surefoot.server.message_starts import MessageStarts
from surefoot.server.report import Report
from surefoot.server.sampling import sampling_of, wish_of
from surefoot.server.schemas import LONGEST_STOP, MAX_STOPS, GenerationBody
from surefoot.server.service import Service

_NO_STARTS = MessageStarts()


@dataclass(frozen=True, slots=True)
class Order:
    """Requests for the engine, and what their report will say.

    Attributes:
        groups: for each prompt its requests, which differ in their seeds alone.
        choices: how many of a group's texts are given, the likeliest by token.
        drafter: who may draft, as far as the request lets them; None if nobody may.
        max_draft: most draft tokens a round that those make.
        speculation_off: why there will be no drafts; None if there may be.
        warnings: what of the body is not honoured.
    """

    groups: list[list[Request]]
    choices: int
    drafter: str | None
    max_draft: int
    speculation_off: str | None
    warnings: list[str]

    def report(self, summary: Summary) -> Report:
        """The report on its generations, given their figures."""
        first = self.groups[0][0]
        return Report(
            summary,
            first.sampling.seed,
            self.drafter,
            self.max_draft,
            self.speculation_off,
            self.warnings,
            first.rule,
        )


def order(
    service: Service,
    body: GenerationBody,
    prompts: Iterable[list[int]],
    control: ControlSpec | None = None,
    markup: frozenset[int] = frozenset(),
    *,
    score_prompt: bool = False,
    best_of: int | None = None,
    starts: MessageStarts = _NO_STARTS,
) -> Order:
    """Make an order of a body and its prompts in tokens.

    Args:
        service: the server.
        body: the request.
        prompts: at least one.
        control: the rules for the text, which have been checked.
        markup: special tokens whose text is shown.
        score_prompt: whether log-probabilities of the prompt are wanted, too.
        best_of: of so many texts the likeliest are given; None for no more than n.
        starts: where messages begin in the prompt.

    Raises:
        ApiError: a field is out of range or asks for something that is not supported.
        InvalidParameterError: a sampling parameter is out of range.
    """
    warnings = check_foreign_fields(body.foreign)
    if body.cache_prompt is False:
        warnings.append("cache_prompt: false was ignored; what is cached is always used")
    most_drafts = service.facts.max_draft
    if body.max_draft is not None and body.max_draft > most_drafts > 0:
        warnings.append(f"speculative.n_max: {body.max_draft} is above the server's {most_drafts}")
    sampling = sampling_of(service, body)
    _check_rule(service, body, sampling)
    choices = body.n or 1
    count = best_of or choices
    if count > service.facts.slots:
        raise invalid(
            "n" if best_of is None else "best_of",
            f"must be at most {service.facts.slots}, the number of slots, and is {count}; "
            "start with more (-np)",
        )
    wish = wish_of(body)
    if count > choices and wish is None:
        wish = ScoreWish()
    first = Request(
        prompt=(0,),
        sampling=sampling,
        max_tokens=_max_tokens(service, body),
        stops=_stops(body),
        stop_tokens=frozenset(known_tokens(service, "stop_token_ids", body.stop_token_ids or [])),
        max_draft=body.max_draft,
        wishes=_wishes(service, body),
        exact=body.exact or service.exact,
        rule=body.verify or service.rule,
        control=control,
        wish=wish,
        score_prompt=score_prompt,
        markup=markup,
        message_starts=starts.positions,
        turn_start=starts.turn,
        slot=_slot(body),
        context_shift=body.context_shift,
        n_keep=body.n_keep or 0,
        n_discard=body.n_discard or 0,
        priority=body.priority or 0,
        queue_timeout=body.queue_timeout,
        deadline_seconds=body.deadline_seconds,
        max_predict_seconds=_seconds(body.t_max_predict_ms),
    )
    warnings += _shift_warnings(service, first)
    if first.slot is not None and first.exact == "strict":
        warnings.append("id_slot: was ignored; a strict request has memory of its own")
    groups = [
        [
            replace(
                first,
                prompt=tuple(prompt),
                sampling=replace(sampling, seed=(sampling.seed + number) % SEED_LIMIT),
            )
            for number in range(count)
        ]
        for prompt in prompts
    ]
    off = service.speculation_off(body.max_draft)
    depths = {} if off else _depths(service, body)
    max_draft = max(depths.values(), default=0)
    return Order(groups, choices, ",".join(depths) or None, max_draft, off, warnings)


def _check_rule(service: Service, body: GenerationBody, sampling: Sampling) -> None:
    """Refuse what rejection can't go together with, by the field that the client has sent.

    Raises:
        ApiError: it asks for strict decoding, or mirostat.
    """
    if (body.verify or service.rule) != "rejection":
        return
    strict = (body.exact or service.exact) == "strict"
    if not strict and not sampling.mirostat:
        return
    if body.verify is not None:
        other = "strict decoding" if strict else "mirostat"
        sent = body.exact if strict else body.mirostat
        where = "" if sent is not None else ", which is this server's default"
        raise invalid("verify", f"rejection can't be used with {other}{where}")
    field, value = "mirostat", str(sampling.mirostat)
    if strict:
        field, value = ("exact", "strict") if body.strict is None else ("strict", "true")
    raise invalid(
        field,
        f"{value} can't be used on this server unless the request has verify: coupled, too, since "
        f"it was started with --verify rejection",
    )


def _depths(service: Service, body: GenerationBody) -> dict[str, int]:
    """Who may draft for a request, and how many tokens."""
    types, most = body.wishes.types, body.max_draft
    return {
        name: depth if most is None else min(depth, most)
        for name, depth in service.facts.depths.items()
        if types is None or name in types
    }


def known_tokens(service: Service, field: str, tokens: list[int]) -> list[int]:
    """The tokens, all of which exist.

    Raises:
        ApiError: one doesn't.
    """
    size = service.facts.vocabulary_size
    unknown = next((token for token in tokens if not 0 <= token < size), None)
    if unknown is not None:
        raise invalid(field, f"there is no token {unknown}; ids go from 0 to {size - 1}")
    return tokens


def _wishes(service: Service, body: GenerationBody) -> DraftWishes:
    """What is wanted of drafts.

    Raises:
        ApiError: a drafter is not one of the server's.
    """
    unknown = sorted((body.wishes.types or frozenset()) - set(service.drafters))
    if unknown:
        there = ", ".join(service.drafters) or "none"
        raise invalid(
            "speculative.types", f"{', '.join(unknown)}: not running here; there is {there}"
        )
    return body.wishes


def _max_tokens(service: Service, body: GenerationBody) -> int | None:
    for name, limit in body.limits.items():
        if limit < 1 and limit != -1:
            raise invalid(name, f"must be at least 1, or -1 for no limit, and is {limit}")
    default = None if -1 in body.limits.values() else service.max_tokens
    return min((limit for limit in body.limits.values() if limit != -1), default=default)


def _slot(body: GenerationBody) -> int | None:
    """The slot that is asked for; None if any will do."""
    return None if body.id_slot == -1 else body.id_slot


def _shift_warnings(service: Service, request: Request) -> list[str]:
    """Warnings about wishes for a full context that have no effect."""
    on = service.facts.context_shift
    on = on if request.context_shift is None else request.context_shift
    if not on and (request.n_keep or request.n_discard):
        return ["n_keep, n_discard: without effect, since context_shift is off"]
    if request.context_shift and request.max_tokens is None:
        return ["context_shift: without effect, since there is no limit on the tokens (max_tokens)"]
    return []


def _stops(body: GenerationBody) -> tuple[str, ...]:
    if len(body.stops) > MAX_STOPS:
        raise invalid("stop", f"at most {MAX_STOPS} stop strings, and there are {len(body.stops)}")
    if any(len(stop) > LONGEST_STOP for stop in body.stops):
        raise invalid("stop", f"a stop string has at most {LONGEST_STOP} characters")
    return body.stops


def _seconds(milliseconds: int | None) -> float | None:
    """A time limit of llama-server's; 0 or less is none."""
    return milliseconds / 1000 if milliseconds and milliseconds > 0 else None
