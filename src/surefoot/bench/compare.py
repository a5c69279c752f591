"""Plain against speculative decoding of the same prompts, pairwise in one run.

A pair is one plain and one speculative run of one prompt, one right after the other, in alternating
order, so that a machine whose speed drifts treats both alike. Ratios are of a pair; what is
reported is their median and range.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import groupby
from statistics import median
from typing import Any, Literal

from surefoot.bench.prompts import Prompt
from surefoot.decoding import Sampling
from surefoot.engine import Engine, Generation, Request

Equality = Literal["equal", "near tie", "different"]


@dataclass(frozen=True, slots=True)
class Pair:
    """One plain and one speculative generation of the same prompt."""

    kind: str
    plain: Generation
    speculative: Generation

    @property
    def ratio(self) -> float:
        """Speed of speculative decoding, in units of plain decoding's."""
        plain, speculative = self.plain.summary, self.speculative.summary
        return (speculative.decode_tokens_per_s or 0.0) / (plain.decode_tokens_per_s or 1.0)

    @property
    def equality(self) -> Equality:
        """Whether the tokens are equal, or part at a near tie, or part elsewhere."""
        first, second = self.plain.tokens, self.speculative.tokens
        if first == second:
            return "equal"
        alike = (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
        at = len(self.plain.request.prompt) + next(alike, min(len(first), len(second)))
        ties = (g.summary.counts.near_tie_positions for g in (self.plain, self.speculative))
        return "near tie" if any(at in positions for positions in ties) else "different"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: all pairs of one kind of prompt.

    Attributes:
        prompts: kind of prompt.
        pairs: how many pairs were run.
        drafter: name of the drafter.
        server: who generated.
        tokens_per_s: median speed of speculative decoding.
        plain_tokens_per_s: median speed of plain decoding.
        ratio, ratio_min, ratio_max: median and range of the pairs' ratios.
        acceptance: share of draft tokens accepted; None if nothing was drafted.
        mean_length: mean tokens committed in a round.
        tokens_per_pass: generated tokens / forward passes after prefill.
        ttft_ms: median time to the first token, in milliseconds.
        equal: pairs with equal tokens, parting at a near tie, and parting elsewhere. A speed
            with anything in the last place is not to be trusted.
    """

    prompts: str
    pairs: int
    drafter: str
    server: str
    tokens_per_s: float
    plain_tokens_per_s: float
    ratio: float
    ratio_min: float
    ratio_max: float
    acceptance: float | None
    mean_length: float
    tokens_per_pass: float
    ttft_ms: float
    equal: dict[Equality, int]

    def as_json(self) -> dict[str, Any]:
        """The row as a plain dictionary."""
        return asdict(self)


def compare(
    engine: Engine,
    prompts: Iterable[Prompt],
    encode: Callable[[str], list[int]],
    *,
    sampling: Sampling,
    max_tokens: int,
    repeats: int,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Pair]:
    """Run all pairs.

    Args:
        engine: an idle engine with a drafter.
        prompts: what to ask.
        encode: turns a user's message into tokens.
        sampling: how to choose tokens; both runs of a pair use the same seed.
        max_tokens: most tokens to generate in a run.
        repeats: pairs of each prompt; one more is run first, to warm up, and not counted.
        progress: told what is being run.
    """
    pairs = []
    for prompt in prompts:
        tokens = tuple(encode(prompt.text))
        plain = Request(tokens, sampling, max_tokens, max_draft=0)
        speculative = Request(tokens, sampling, max_tokens)
        for repeat in range(repeats + 1):
            progress(f"{prompt.kind}: pair {repeat} of {repeats}" if repeat else "warm-up")
            order = [plain, speculative] if repeat % 2 else [speculative, plain]
            runs = {request: _fresh_run(engine, request) for request in order}
            if repeat:
                pairs.append(Pair(prompt.kind, runs[plain], runs[speculative]))
    return pairs


def _fresh_run(engine: Engine, request: Request) -> Generation:
    engine.forget()
    return engine.run(request)


def rows(pairs: Iterable[Pair], drafter: str) -> list[Row]:
    """Sum pairs up by kind of prompt, in the order of their first appearance."""
    grouped = [(kind, list(group)) for kind, group in groupby(pairs, key=lambda pair: pair.kind)]
    return [_row(kind, group, drafter) for kind, group in grouped]


def _row(kind: str, pairs: list[Pair], drafter: str) -> Row:
    speculative = [pair.speculative.summary for pair in pairs]
    ratios = [pair.ratio for pair in pairs]
    drafted = sum(summary.counts.drafted for summary in speculative)
    accepted = sum(summary.counts.accepted for summary in speculative)
    rounds = sum(summary.counts.rounds for summary in speculative)
    equality = [pair.equality for pair in pairs]
    return Row(
        prompts=kind,
        pairs=len(pairs),
        drafter=drafter,
        server="surefoot",
        tokens_per_s=median(summary.decode_tokens_per_s or 0.0 for summary in speculative),
        plain_tokens_per_s=median(pair.plain.summary.decode_tokens_per_s or 0.0 for pair in pairs),
        ratio=median(ratios),
        ratio_min=min(ratios),
        ratio_max=max(ratios),
        acceptance=accepted / drafted if drafted else None,
        mean_length=1 + accepted / rounds,
        tokens_per_pass=sum(summary.generated_tokens for summary in speculative)
        / sum(summary.passes for summary in speculative),
        ttft_ms=1000 * median(summary.first_token_seconds for summary in speculative),
        equal={name: equality.count(name) for name in ("equal", "near tie", "different")},
    )
