"""Whatever a request asks for, speculation changes nothing but speed.

Random parameters, grammar, stops, limits, drafts right and wrong, on every kind of memory: the
speculative run equals the plain one token by token, and log-probabilities to 1e-3.
"""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.constraints import Calls, ControlSpec, Grammar, Reasoning
from surefoot.decoding import Drafter, Sampling, ScoreWish, Sequence, Widths
from surefoot.engine import Engine, Request
from tests.engine.playing import ALL_KINDS, VOCABULARY, play, runtime_of
from tests.support.opener import Opener
from tests.support.planned_drafters import FunctionDrafter

SAMPLINGS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32),
        "temperature": st.sampled_from([0.0, 0.5, 1.0, 1.5]),
    },
    optional={
        "top_k": st.integers(0, 60),
        "top_p": st.sampled_from([0.5, 0.9, 1.0]),
        "min_p": st.sampled_from([0.0, 0.05, 0.3]),
        "typical_p": st.sampled_from([0.5, 0.9]),
        "top_n_sigma": st.sampled_from([0.7, 2.0]),
        "xtc_probability": st.sampled_from([0.5, 1.0]),
        "repeat_penalty": st.sampled_from([0.8, 1.3]),
        "presence_penalty": st.sampled_from([-1.0, 2.0]),
        "frequency_penalty": st.sampled_from([0.5, 3.0]),
        "repeat_last_n": st.sampled_from([-1, 3, 64]),
        "dry_multiplier": st.sampled_from([0.8, 4.0]),
        "dynatemp_range": st.sampled_from([0.3, 0.9]),
        "mirostat": st.sampled_from([1, 2]),
        "min_tokens": st.integers(0, 20),
        "ignore_eos": st.booleans(),
        "logit_bias": st.sampled_from([((100, 3.0),), ((100, float("-inf")), (101, 5.0))]),
    },
)
SPECS = st.sampled_from(
    [
        None,
        None,
        ControlSpec(Grammar("regex", "[a-z ]{4,30}[.!]")),
        ControlSpec(Grammar("choice", '["ba be bi", "ba bo", "zu"]')),
        ControlSpec(Grammar("json_schema", '{"type": "array", "items": {"type": "integer"}}')),
        ControlSpec(Grammar("gbnf", 'root ::= ("b" [aeiou] " ")+ "!"')),
        ControlSpec(
            Grammar("regex", "[0-9]{2,9}"), Reasoning("a", "e", opened=True, budget=6, message=" ")
        ),
        ControlSpec(reasoning=Reasoning("b", "u", budget=3)),
        ControlSpec(calls=Calls(("e",), Grammar("lark", 'start: "e" /[0-9]{1,4}/ "."'))),
    ]
)


def often(seed: int, share: float, text: list[int]) -> FunctionDrafter:
    """Goes on with a known text, each token right with some probability."""

    def draft(sequence: Sequence, most: int) -> list[int]:
        start = len(sequence.committed)
        rng = random.Random(hash((seed, start)))
        following = text[start : start + rng.randint(0, most)]
        return [t if rng.random() < share else rng.randrange(VOCABULARY) for t in following]

    return FunctionDrafter(draft)


def run(engine: Engine, request: Request) -> Any:
    generation = engine.submit(request, lambda _: None)
    play(engine)
    return generation


@pytest.mark.parametrize("kind", ALL_KINDS)
@settings(max_examples=60, deadline=None)
@given(
    fields=SAMPLINGS,
    spec=SPECS,
    prompt=st.lists(st.integers(40, 200), min_size=1, max_size=12),
    stops=st.lists(st.sampled_from(["e", "bi", " b", "zz"]), max_size=2, unique=True),
    most=st.integers(1, 24),
    share=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    depth=st.integers(1, 6),
    scored=st.booleans(),
)
def test_a_speculative_run_equals_the_plain_one(
    kind: str,
    fields: dict[str, Any],
    spec: ControlSpec | None,
    prompt: list[int],
    stops: list[str],
    most: int,
    share: float,
    depth: int,
    scored: bool,
) -> None:
    request = Request(
        tuple(prompt),
        Sampling(**fields),
        max_tokens=most,
        stops=tuple(stops),
        control=spec,
        wish=ScoreWish(2) if scored else None,
    )
    plain = run(Engine(runtime_of(kind)), request)
    drafter = often(most, share, prompt + plain.tokens)
    fast = run(Engine(runtime_of(kind), drafter, depth), request)
    assert fast.tokens == plain.tokens
    assert (fast.text, fast.finish, fast.error) == (plain.text, plain.finish, plain.error)
    assert [e.token for e in fast.entries] == [e.token for e in plain.entries]
    for mine, theirs in zip(fast.entries, plain.entries, strict=True):
        if scored and theirs.scores is not None:
            assert mine.scores is not None
            assert mine.scores.logprob == pytest.approx(theirs.scores.logprob, abs=1e-3)
    counts = fast.summary.counts
    assert fast.summary.passes == counts.rounds
    assert fast.summary.reasoning_tokens == plain.summary.reasoning_tokens


@pytest.mark.parametrize("kind", ["hybrid", "recurrent", "attention", "snapshots"])
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    temperature=st.sampled_from([0.0, 1.0]),
    share=st.sampled_from([0.3, 0.9]),
    depth=st.integers(1, 6),
    widths=st.sampled_from([(2, 3, 4, 5, 6, 7), (4,), (8, 12, 16), (3, 5, 7), (1,)]),
    spec=SPECS,
)
def test_strict_text_is_the_same_where_every_width_is_a_class_of_its_own(
    kind: str,
    seed: int,
    temperature: float,
    share: float,
    depth: int,
    widths: tuple[int, ...],
    spec: ControlSpec | None,
) -> None:
    """Logits move with the width; a strict lane keeps to the widths that are one class.

    Memory layout moves none here: where one sequence is alone in a context, it does not on real
    backends (docs/exactness.md), and the simulated one is harsher than they are.
    """
    low = widths[0]
    starts = sorted({1, low, widths[-1] + 1})
    noisy = {"width_noise": 2.0, "seed": seed, "width_classes": starts}
    request = Request(
        tuple(range(60, 60 + seed % 30 + 1)),
        Sampling(seed=seed, temperature=temperature),
        max_tokens=20,
        control=spec,
        exact="strict",
    )
    if kind == "snapshots":
        noisy |= {"snapshots": 8}
    memory = "hybrid" if kind == "snapshots" else kind

    def answer(drafter: Drafter | None) -> Any:
        runtime = runtime_of(memory, **noisy)
        opener = Opener(runtime, Widths(widths), drafter)
        engine = Engine(runtime, drafter, depth, opener=opener)
        return run(engine, request)

    plain = answer(None)
    drafted = answer(often(seed, share, list(request.prompt) + plain.tokens))
    assert drafted.tokens == plain.tokens
    assert drafted.error == plain.error
