"""Random requests over a few slots, from one printed seed: all end, and none is wrong (case C6)."""

import random
from collections.abc import Sequence as Series
from dataclasses import dataclass
from typing import Any

import pytest

from surefoot.decoding import Draft, Drafter, Sampling, Sequence
from surefoot.drafting.chain import Chain
from surefoot.drafting.ngram_mod import NgramMod
from surefoot.drafting.ngram_simple import NgramSimple
from surefoot.engine import Delta, Engine, Generation, GenerationState, Request
from surefoot.engine.cache import CacheSettings
from surefoot.runtime.simulated import SimulatedTokenizer
from tests.engine.playing import VOCABULARY, knowing, oracle_of, runtime_of
from tests.support.kinds import KINDS
from tests.support.oracle import Oracle
from tests.support.planned_drafters import PlanlessDrafter, RandomDrafter

CONTEXT = 96
SLOTS = 4
REQUESTS = 200
END_RATE = 1 / 60
TOKENIZER = SimulatedTokenizer(VOCABULARY)


@dataclass
class Case:
    """A request, and what becomes of it.

    Attributes:
        request: what is asked for.
        text: what the model says, to the context's end.
        arrives: the step in front of which it is submitted.
        cancelled: steps later it is cancelled; None for never.
        told: tokens that its listener was told of.
        ends: how often it was told that it is over.
    """

    request: Request
    text: list[int]
    arrives: int
    cancelled: int | None
    generation: Generation | None = None
    told: int = 0
    ends: int = 0

    def hear(self, delta: Delta) -> None:
        self.told += len(delta.tokens)
        self.ends += delta.state.over

    @property
    def expected(self) -> tuple[list[int], str]:
        """The right tokens and the finish reason, by a plain walk over the model's text."""
        request = self.request
        said = b""
        for count, token in enumerate(self.text, 1):
            if token in TOKENIZER.end_of_generation or token in request.stop_tokens:
                return self.text[:count], "stop"
            said += TOKENIZER.piece(token)
            if any(stop.encode() in said for stop in request.stops):
                return self.text[:count], "stop"
            if count in (request.max_tokens, CONTEXT - len(request.prompt)):
                return self.text[:count], "length"
        raise AssertionError("the oracle's text is too short")

    def judge(self) -> None:
        """Raise AssertionError if something is wrong with what became of it."""
        generation = self.generation
        assert generation is not None
        tokens, reason = self.expected
        assert self.ends == 1
        assert self.told == len(generation.tokens)
        if generation.state is GenerationState.CANCELLED:
            assert self.cancelled is not None
            assert generation.tokens == tokens[: len(generation.tokens)]
            return
        assert generation.state is GenerationState.FINISHED, generation.error
        assert generation.tokens == tokens
        assert generation.finish is not None
        assert generation.finish.reason == reason
        counts = generation.summary.counts
        assert counts.rounds + counts.accepted - len(tokens) in (0, 1)
        assert generation.summary.passes == counts.rounds
        assert generation.text == self.shown(tokens)

    def shown(self, tokens: list[int]) -> str:
        if tokens[-1] in self.request.stop_tokens:
            tokens = tokens[:-1]
        said = b"".join(map(TOKENIZER.piece, tokens))
        starts = [at for s in self.request.stops if (at := said.find(s.encode())) >= 0]
        return said[: min(starts, default=len(said))].decode(errors="replace")


class Moody(PlanlessDrafter):
    """Lets one drafter or another draft, as chance has it, and fails now and then."""

    def __init__(self, draws: random.Random, drafters: Series[Drafter]) -> None:
        self._draws = draws
        self._drafters = drafters

    def propose(self, wanted: Series[tuple[Sequence, int]]) -> list[Draft]:
        if self._draws.random() < 0.01:
            raise ValueError("in no mood")
        return self._draws.choice(self._drafters).propose(wanted)

    def forget(self, sequence: Sequence) -> None:
        for drafter in self._drafters:
            drafter.forget(sequence)


def make_cases(draws: random.Random, oracle: Oracle) -> list[Case]:
    """Requests of all sorts; a third of them go on from what an earlier one said."""
    cases: list[Case] = []
    while len(cases) < REQUESTS:
        prompt = [draws.randrange(256, VOCABULARY - 2) for _ in range(draws.randint(1, 30))]
        if cases and draws.random() < 0.35:
            earlier = draws.choice(cases[-10:])
            history = [*earlier.request.prompt, *earlier.expected[0]]
            kept = draws.choice([len(history), draws.randint(1, len(history))])
            prompt = [*history[:kept], *prompt][: CONTEXT - 1]
        sampling = Sampling(
            seed=draws.randrange(1 << 32),
            temperature=draws.choice([0.0, 0.0, 0.7, 1.5]),
            top_k=draws.choice([0, 5, 40]),
            top_p=draws.choice([1.0, 0.9]),
        )
        text = oracle.text(prompt, CONTEXT - len(prompt), sampling)
        words = b"".join(map(TOKENIZER.piece, text)).decode(errors="ignore")
        start = draws.randrange(max(1, len(words)))
        request = Request(
            prompt=tuple(prompt),
            sampling=sampling,
            max_tokens=draws.choice([None, 1, 2, draws.randint(1, 60)]),
            stops=(words[start : start + 4],) if words and draws.random() < 0.3 else (),
            stop_tokens=frozenset(draws.sample(text, 1) if draws.random() < 0.2 else ()),
            max_draft=draws.choice([None, None, 0, 1, 3]),
        )
        cancelled = draws.randint(0, 15) if draws.random() < 0.2 else None
        cases.append(Case(request, text, len(cases) * 3 + draws.randint(0, 9), cancelled))
    return cases


def play_through(engine: Engine, cases: Series[Case]) -> None:
    """Submit and cancel at the planned steps, until all is over."""
    for step in range(cases[-1].arrives + 100 * CONTEXT):
        for case in cases:
            if case.arrives == step:
                case.generation = engine.submit(case.request, case.hear)
            if case.generation and case.cancelled is not None:
                case.generation.cancelled |= step >= case.arrives + case.cancelled
        if engine.idle and step > cases[-1].arrives + 10:
            return
        engine.step()
    raise AssertionError("requests never end")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("failing", [0.0, 0.02], ids=["", "with failing passes"])
def test_200_random_requests_all_end_and_none_is_wrong(kind: str, failing: float) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    soak(kind, seed, failing)


def soak(
    kind: str,
    seed: int,
    failing: float,
    cache: CacheSettings | None = None,
    **settings: Any,
) -> Engine:
    """Play 200 requests.

    Args:
        kind: kind of memory.
        seed: what everything follows from.
        failing: share of passes that fail, though never so soon again that a request is given up.
        cache: the prompt cache's budgets.
        settings: more settings of the runtime.

    Returns:
        The engine, for a look at what is left.
    """
    draws = random.Random(seed)
    cases = make_cases(draws, oracle_of(kind, end_rate=END_RATE))
    known = knowing(
        ([*case.request.prompt, *case.text] for case in cases),
        right=lambda _: draws.random() < 0.8,
    )
    drafter = Moody(
        draws,
        [
            known,
            NgramSimple(size_n=2),
            RandomDrafter(seed, VOCABULARY),
            Chain([NgramMod(n_match=2, n_min=1, n_max=8), known]),
        ],
    )
    failed = [-30]

    def fails(number: int) -> bool:
        if number < failed[-1] + 30 or draws.random() >= failing:
            return False
        failed.append(number)
        return True

    runtime = runtime_of(
        kind,
        end_rate=END_RATE,
        slots=SLOTS,
        context_length=CONTEXT,
        batch_size=128,
        fail_decode=fails,
        **settings,
    )
    engine = Engine(runtime, drafter, max_draft=8, cache=cache)
    play_through(engine, cases)
    for number, case in enumerate(cases):
        try:
            case.judge()
        except AssertionError as error:
            raise AssertionError(f"request {number} of seed {seed}: {error}") from error
    states = [case.generation.state for case in cases if case.generation]
    assert states.count(GenerationState.FINISHED) > REQUESTS / 2
    assert states.count(GenerationState.CANCELLED) > 0
    summaries = [case.generation.summary for case in cases if case.generation]
    assert sum(summary.counts.accepted for summary in summaries) > 0
    assert sum(summary.cached_tokens for summary in summaries) > 0
    assert (sum(summary.recoveries for summary in summaries) > 0) == (failing > 0)
    return engine
