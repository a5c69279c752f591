#!/usr/bin/env python3
"""How long a conversation's second turn takes to its first token, against what it has to take.

usage: measure_second_turn.py [serve's options]

Pairwise: the time from the second turn's submission to its first token, and the time of a pass over
its new tokens alone, with the first turn already in memory. Prints medians and their ratio.
"""

from __future__ import annotations

import statistics
import sys
import time

from surefoot.cli import parser
from surefoot.commands.plan import EnginePlan
from surefoot.decoding import GREEDY, Feed
from surefoot.engine import Delta, Engine, Request

HISTORY = 1000
NEW = 200
PAIRS = 11


def first_token(engine: Engine, prompt: list[int]) -> float:
    """Seconds from submission to the first token."""
    heard: list[float] = []

    def hear(_: Delta) -> None:
        heard.append(time.perf_counter())

    begun = time.perf_counter()
    engine.run(Request(tuple(prompt), GREEDY, max_tokens=1), hear)
    return heard[0] - begun


def prefill_alone(engine: Engine, history: list[int], new: list[int]) -> float:
    """Seconds for a pass over the new tokens, with the history in memory."""
    runtime = engine.runtime
    engine.forget()
    runtime.drop(0)
    for start in range(0, len(history), runtime.batch_size):
        chunk = history[start : start + runtime.batch_size]
        runtime.decode([Feed(0, chunk, start, outputs=0)])
    begun = time.perf_counter()
    runtime.decode([Feed(0, new, len(history), outputs=1)])
    seconds = time.perf_counter() - begun
    runtime.drop(0)
    return seconds


def main() -> None:
    """Measure, and print."""
    options = parser().parse_args(["serve", "-np", "1", "-c", "4096", *sys.argv[1:]])
    with EnginePlan.of(options, slots=1).open() as engine:
        encode = engine.runtime.tokenizer.encode
        words = "The quick brown fox jumps over the lazy dog, and then it sleeps in the sun. "
        text = encode(words * (2 * HISTORY // len(words.split())))
        turns, alone = [], []
        for pair in range(PAIRS + 1):
            engine.forget()
            opening = text[pair : pair + HISTORY]
            first = engine.run(Request(tuple(opening), GREEDY, max_tokens=20))
            history = [*opening, *first.tokens]
            new = text[HISTORY : HISTORY + NEW]
            turn = first_token(engine, [*history, *new])
            other = prefill_alone(engine, history, new)
            if pair:  # the first one is the warm-up
                turns.append(turn)
                alone.append(other)
    ratios = [a / b for a, b in zip(turns, alone, strict=True)]
    print(
        f"first token of the second turn {1e3 * statistics.median(turns):.1f} ms, {NEW} new tokens "
        f"alone {1e3 * statistics.median(alone):.1f} ms, ratio {statistics.median(ratios):.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f}, {PAIRS} pairs)"
    )


if __name__ == "__main__":
    main()
