#!/usr/bin/env python3
"""Count the tokens at which strict texts differ between drafters, memories and neighbours.

usage: check_strict.py MODEL [--prompts N] [--tokens N] [--threads N] [--only NAME;NAME]

Every drafter, with forks and with snapshots, alone and beside three other requests, at temperatures
0 and 1, is compared with plain strict decoding alone. Fast decoding is compared, too: there texts
may part, but only at near ties.
"""

from __future__ import annotations

import argparse
from itertools import zip_longest

from surefoot import models
from surefoot.cli import parser
from surefoot.commands.plan import EnginePlan
from surefoot.decoding import GREEDY, Sampling
from surefoot.engine import Engine, Exactness, Generation, Request

TASKS = (
    "Write a Python function `{}` and explain it.",
    "Give me a JSON object about a {}.",
    "Repeat this and add a docstring:\n\ndef {}(items):\n    return [x * 2 for x in items]",
    "What is a {}?",
)
WORDS = ("parse_config", "weather_report", "merge_sorted", "count_words", "flatten")
PROMPTS = [task.format(word) for word in WORDS for task in TASKS]

NGRAM = ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3"]
CASES: dict[str, list[str]] = {
    "plain": ["--spec-type", "none"],
    "ngram-simple": NGRAM,
    "ngram-map-k": ["--spec-type", "ngram-map-k", "--spec-ngram-map-k-size-n", "3"],
    "ngram-mod": ["--spec-type", "ngram-mod", "--spec-ngram-mod-n-match", "3",
                  "--spec-ngram-mod-n-min", "2"],
    "ngram-cache": ["--spec-type", "ngram-cache"],
    "draft-simple": ["--spec-type", "draft-simple", "-md", str(models.DRAFT)],
    "draft-mtp": ["--spec-type", "draft-mtp"],
    "draft-mtp, depth 8": ["--spec-type", "draft-mtp", "--spec-draft-n-max", "8"],
    "ngram-simple, snapshots": [*NGRAM, "--snapshots", "8"],
    "draft-mtp, snapshots": ["--spec-type", "draft-mtp", "--snapshots", "8"],
}  # fmt: skip
SAMPLINGS = {"0": GREEDY, "1": Sampling(seed=7, temperature=1.0)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("model")
    options.add_argument("--prompts", type=int, default=len(PROMPTS))
    options.add_argument("--tokens", type=int, default=300)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--only", default=";".join(CASES), help="cases beside plain, by a part")
    asked = options.parse_args()
    expected: dict[str, list[list[int]]] = {}
    for name, drafting in CASES.items():
        if name != "plain" and not any(part in name for part in asked.only.split(";")):
            continue
        arguments = parser().parse_args(
            [
                "serve",
                "-m",
                asked.model,
                "-t",
                str(asked.threads),
                "-c",
                "8192",
                "-np",
                "4",
                *drafting,
            ]
        )
        with EnginePlan.of(arguments, slots=4).open() as engine:
            for temperature, sampling in SAMPLINGS.items():
                for crowd in (0, 3):
                    texts = [
                        answer(engine, index, sampling, asked.tokens, "strict", crowd).tokens
                        for index in range(asked.prompts)
                    ]
                    known = expected.setdefault(temperature, texts)
                    print(
                        f"strict, {name}, temperature {temperature}, beside {crowd}: "
                        f"{differing(texts, known)} differing tokens, "
                        f"{sum(map(len, texts))} compared",
                        flush=True,
                    )
                fast(engine, name, sampling, asked)


FAST: dict[float, list[Generation]] = {}


def fast(engine: Engine, name: str, sampling: Sampling, asked: argparse.Namespace) -> None:
    """Compare fast texts with plain fast ones: equal, parted at a near tie, or wrong."""
    answers = [
        answer(engine, index, sampling, asked.tokens, "fast", 0) for index in range(asked.prompts)
    ]
    known = FAST.setdefault(sampling.temperature, answers)
    equal = tied = wrong = 0
    for found, plain in zip(answers, known, strict=True):
        pairs = enumerate(zip_longest(found.tokens, plain.tokens))
        at = next((i for i, (one, other) in pairs if one != other), None)
        ties = {
            *found.summary.counts.near_tie_positions,
            *plain.summary.counts.near_tie_positions,
        }
        length = len(found.request.prompt)
        equal += at is None
        tied += at is not None and length + at in ties
        wrong += at is not None and length + at not in ties
    print(
        f"fast, {name}, temperature {sampling.temperature:g}: {equal} equal, {tied} part at a near "
        f"tie, {wrong} elsewhere",
        flush=True,
    )


def answer(
    engine: Engine, index: int, sampling: Sampling, tokens: int, exact: Exactness, crowd: int
) -> Generation:
    def request(number: int, level: Exactness, most: int) -> Request:
        text = f"<|im_start|>user\n{PROMPTS[number % len(PROMPTS)]}<|im_end|>\n"
        prompt = engine.runtime.tokenizer.encode(text + "<|im_start|>assistant\n")
        return Request(tuple(prompt), sampling, max_tokens=most, exact=level)

    for other in range(crowd):
        level: Exactness = "strict" if other == 0 else "fast"
        engine.submit(request(index + other + 1, level, 60), lambda _: None)
    generation = engine.submit(request(index, exact, tokens), lambda _: None)
    while not engine.idle:
        engine.step()
    assert generation.error is None
    return generation


def differing(texts: list[list[int]], known: list[list[int]]) -> int:
    """Positions at which texts are not the same."""
    return sum(
        one != other
        for text, right in zip(texts, known, strict=True)
        for one, other in zip_longest(text, right)
    )


if __name__ == "__main__":
    main()
