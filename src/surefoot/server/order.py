"""An order: what a request's body asks of the engine, with nothing left open."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from surefoot.constraints import ControlSpec
from surefoot.decoding import DraftWishes, ScoreWish
from surefoot.decoding.noise import SEED_LIMIT
from surefoot.engine import Request, Summary
from surefoot.server.errors import invalid
from surefoot.server.foreign_fields import check_foreign_fields
from surefoot.server.report import Report
from surefoot.server.sampling import sampling_of, wish_of
from surefoot.server.schemas import LONGEST_STOP, MAX_STOPS, GenerationBody
from surefoot.server.service import Service


@dataclass(frozen=True, slots=True)
class Order:
    """Requests for the engine, and what their report will say.

    Attributes:
        groups: for each prompt its requests, which differ in their seeds alone.
        choices: how many of a group's texts are given, the likeliest by token.
        drafter: who drafts; None if there is nobody.
        max_draft: most draft tokens a round.
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
    choices = body.n or 1
    count = best_of or choices
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
    )
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
    max_draft = most_drafts if body.max_draft is None else min(body.max_draft, most_drafts)
    return Order(groups, choices, service.drafter, max_draft, off, warnings)


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
        if limit < 1:
            raise invalid(name, f"must be at least 1, and is {limit}; leave it out for no limit")
    default = None if body.n_predict == -1 else service.max_tokens
    return min(body.limits.values(), default=default)


def _stops(body: GenerationBody) -> tuple[str, ...]:
    if len(body.stops) > MAX_STOPS:
        raise invalid("stop", f"at most {MAX_STOPS} stop strings, and there are {len(body.stops)}")
    if any(len(stop) > LONGEST_STOP for stop in body.stops):
        raise invalid("stop", f"a stop string has at most {LONGEST_STOP} characters")
    return body.stops
