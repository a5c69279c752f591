"""A request that goes on from its journal ends with the text of an undisturbed run."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from surefoot.constraints import Calls, ControlSpec, Grammar, Reasoning
from surefoot.decoding import Sampling, ScoreWish
from surefoot.engine import Delta, Engine, GenerationState, Journal, Progress, Request
from surefoot.runtime.simulated import SimulatedRuntime
from tests.engine.playing import knowing

SEED = 20261201


class Told:
    """A client that writes down what it is told."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []

    def __call__(self, delta: Delta) -> None:
        self.deltas.append(delta)

    @property
    def tokens(self) -> list[int]:
        return [token for delta in self.deltas for token in delta.tokens]

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def entries(self) -> list[Any]:
        return [entry for delta in self.deltas for entry in delta.entries]


def runtime_of(kind: str, end_rate: float) -> SimulatedRuntime:
    return SimulatedRuntime(
        kind,  # type: ignore[arg-type]
        vocabulary_size=512,
        slots=2,
        context_length=160,
        end_rate=end_rate,
    )


def lives(engines: Iterator[Engine], request: Request, cuts: list[int]) -> tuple[Journal, Told]:
    """Play a request in one engine after another, each lost after so many tellings."""
    told = Told()
    engine = next(engines)
    journal = Journal(request, told, engine.runtime.tokenizer)
    for cut in [*cuts, 10_000]:
        heard = 0
        [generation] = engine.accept([journal.resumption()], [lambda _: None])

        def outlet(progress: Progress, cut: int = cut) -> None:
            nonlocal heard
            if heard < cut:
                journal.hear(progress)
            heard += 1

        generation.outlet = outlet
        if cut:
            engine.enqueue(generation)
        while heard < cut and not engine.idle:
            engine.step()
        if journal.state.over:
            break
        engine = next(engines)
    return journal, told


def random_request(dice: random.Random, prompt: tuple[int, ...], texts: list[str]) -> Request:
    """A request with a bit of everything."""
    sampling: dict[str, Any] = {
        "seed": dice.randrange(1 << 40),
        "temperature": dice.choice([0.0, 0.7, 1.5]),
        "top_k": dice.choice([0, 5, 40]),
        "repeat_penalty": dice.choice([1.0, 1.3]),
        "presence_penalty": dice.choice([0.0, 0.5]),
        "repeat_last_n": dice.choice([8, 64, -1]),
        "dry_multiplier": dice.choice([0.0, 0.8]),
        "mirostat": dice.choice([0, 0, 1, 2]),
        "min_tokens": dice.choice([0, 12]),
    }
    control = dice.choice(
        [
            None,
            None,
            ControlSpec(Grammar("regex", "[a-z ]{1,60}")),
            ControlSpec(Grammar("json_schema", SCHEMA)),
            ControlSpec(
                reasoning=Reasoning("<t>", "</t>", opened=True, budget=5, message="enough")
            ),
            ControlSpec(
                Grammar("regex", "[0-9]{3,9}"), Reasoning("<t>", "</t>", opened=True, budget=7)
            ),
            ControlSpec(calls=Calls(("{",), Grammar("json_schema", SCHEMA), required=True)),
        ]
    )
    wish = dice.choice([None, None, ScoreWish(2), ScoreWish(1, post_sampling=True)])
    stop = dice.choice(texts) if texts and dice.random() < 0.5 else None
    return Request(
        prompt,
        Sampling(**sampling),
        max_tokens=dice.choice([24, 40, None]),
        stops=() if stop is None else (stop,),
        max_draft=dice.choice([None, 0, 2]),
        control=control,
        wish=wish,
        score_prompt=wish is not None and dice.random() < 0.5,
    )


SCHEMA = '{"type": "object", "properties": {"name": {"const": "abcdef"}, "n": {"type": "integer"}},\
 "required": ["name", "n"], "additionalProperties": false}'


@pytest.mark.parametrize("number", range(24))
def test_a_resumed_text_is_the_undisturbed_one_wherever_it_is_cut(number: int) -> None:
    dice = random.Random(SEED + number)
    print(f"seed {SEED + number}")
    kind = dice.choice(["attention", "hybrid", "recurrent"])
    end_rate = dice.choice([1 / 30, 1 / 1000])
    prompt = tuple(dice.randrange(300, 500) for _ in range(dice.randrange(1, 12)))

    def engines(known: list[list[int]]) -> Iterator[Engine]:
        while True:
            yield Engine(runtime_of(kind, end_rate), knowing(known), max_draft=4)

    _, told = lives(engines([]), Request(prompt, max_tokens=40), [])
    words = [told.text[at : at + 3] for at in range(6, len(told.text) - 3, 5)]
    request = random_request(dice, prompt, words)
    expected, undisturbed = lives(engines([]), request, [])
    assert expected.state is GenerationState.FINISHED, expected.error
    known = [[*prompt, *expected.tokens]]
    for cut in range(len(undisturbed.deltas) + 1):
        # Drafts come in, so that tokens arrive several at a time, and a second life may be cut.
        second = dice.randrange(4)
        journal, heard = lives(engines(known), request, [cut, second])
        assert heard.tokens == journal.tokens == expected.tokens, (cut, second)
        assert heard.text == journal.text == expected.text
        assert journal.finish == expected.finish
        assert heard.entries == undisturbed.entries
        assert journal.prompt_entries == expected.prompt_entries
        assert [delta.state.over for delta in heard.deltas].count(True) == 1
        summary = journal.summary
        assert summary.generated_tokens == len(expected.tokens)
        assert summary.reasoning_tokens == expected.summary.reasoning_tokens
        near = summary.counts.near_tie_positions
        assert near == expected.summary.counts.near_tie_positions


def test_penalties_and_limits_count_the_tokens_of_the_first_life() -> None:
    prompt = (300, 301)
    request = Request(prompt, Sampling(temperature=0.0), max_tokens=10)

    def engines() -> Iterator[Engine]:
        while True:
            yield Engine(runtime_of("hybrid", 1 / 1000))

    journal, _ = lives(engines(), request, [4, 3])
    assert len(journal.tokens) == 10
    assert journal.finish is not None
    assert journal.finish.cause == "max tokens"
    assert journal.summary.recoveries == 2
    assert journal.resumption().resumed is not None
