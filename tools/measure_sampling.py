#!/usr/bin/env python3
"""How long choosing one token takes at a large vocabulary, by sampling parameters.

usage: measure_sampling.py [VOCABULARY]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from surefoot.decoding import Choice, Chooser, Sampling, ScoreWish, TokenMask

CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "greedy, penalties": {"temperature": 0.0, "repeat_penalty": 1.1},
    "top-k 40, top-p, min-p (default)": {},
    "default, penalties": {"repeat_penalty": 1.1, "presence_penalty": 0.5},
    "default, DRY over 100,000 tokens": {"dry_multiplier": 0.8},
    "default, penalties over all of them": {"repeat_penalty": 1.1, "repeat_last_n": -1},
    "default, logit bias": {"logit_bias": ((5, 1.0),)},
    "top-p 0.95 alone": {"top_k": 0, "min_p": 0.0},
    "min-p 0.05 alone": {"top_k": 0, "top_p": 1.0},
    "no truncation": {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "typical-p 0.9 alone": {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 0.9},
    "mirostat 2": {"mirostat": 2},
}


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 248_320
    rng = np.random.default_rng(1)
    rows = rng.normal(0, 2.5, (8, size)).astype(np.float32)
    rows[:, :50] += rng.gumbel(8, 3, (8, 50)).astype(np.float32)
    history = rng.integers(0, 2000, 100_000).tolist()
    most = np.full(-(-size // 32), 0xFFFFFFFF, np.uint32)
    few = np.zeros_like(most)
    few[:3] = 0x00F0F0F0

    def draw(chooser: Chooser, mask: TokenMask | None, index: int) -> None:
        chooser.choose(rows[index % 8], 0.5, mask)

    print(f"vocabulary {size}, medians in milliseconds")
    for name, fields in CASES.items():
        chooser = Chooser(Sampling(**fields), history)
        print(f"  {name:36} {timed(partial(draw, chooser, None)):.3f}")
        chooser.advance(Choice(1))
    chooser = Chooser(Sampling(dry_multiplier=0.8), [7] * 100_000)
    took = timed(partial(draw, chooser, None))
    print(f"  {'default, DRY over 100,000 equal ones':36} {took:.3f}")
    chooser = Chooser(Sampling())
    for name, mask in (("most tokens allowed", most), ("few tokens allowed", few)):
        took = timed(partial(draw, chooser, mask))
        print(f"  default, {name:27} {took:.3f}")
    wish = ScoreWish(top=20)
    took = timed(lambda i: chooser.choose(rows[i % 8], 0.5, None, wish))
    print(f"  {'default, 20 log-probabilities':36} {took:.3f}")


def timed(call: Callable[[int], object], count: int = 60) -> float:
    times = []
    for index in range(count):
        begun = time.perf_counter()
        call(index)
        times.append(time.perf_counter() - begun)
    return median(times) * 1000


if __name__ == "__main__":
    main()
