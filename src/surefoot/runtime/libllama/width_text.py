"""The text on which widths are compared."""

import itertools
from collections.abc import Sequence as Series
from dataclasses import dataclass

import numpy as np

from surefoot.decoding import Feed
from surefoot.runtime.base import TokenizerMissingError
from surefoot.runtime.libllama.runtime import LibllamaRuntime

PREFIX = 128
"""Ordinary tokens in front, which are not compared: attention gets something to look at."""

SALAD = 64
"""Shuffled tokens that are compared next, because ordinary text hides differences.

A token by itself has kernels of its own on most devices, whose results may round to the same for
long: on the trained hybrid in Q8_0 passes of one token gave the bits of wider ones at up to 224
positions in a row of ordinary text. In word salad they differed after 31 to 44."""

ORDINARY = 128
"""Ordinary tokens that are compared last. With them the text is longer than 256 tokens, from which
on more cells of attention are taken in: with two threads a dense model's logits at width 1 were
those of wider passes up to there, and others from there on."""

_TEXT = """\
def mean(values):
    \"\"\"Return the mean of some values, or None if there are none.\"\"\"
    if not values:
        return None
    return sum(values) / len(values)

The river rose for three days, and on the fourth the people of the lower village carried what they
could up the hill. Nobody had counted the bridges since the war; there were seven, and two of them
held. In the evening the baker opened his shop all the same, sold what bread he had at half its
price, and asked everyone who came in whether they had seen his brother's boat.

{"name": "Ada", "age": 36, "languages": ["English", "French"], "active": true, "score": 98.25}

| item  | count | price |
| ----- | ----- | ----- |
| apple |    12 |  0.35 |
| pear  |     7 |  0.40 |

To install it, run the command below and wait until it has finished. If it fails, read the last
lines of the log: most often a compiler is missing, or the disk is full. Then try again.
"""


@dataclass(frozen=True, slots=True)
class Text:
    """Tokens to decode.

    Attributes:
        tokens: all of them.
        prefix: how many of them come first, and are not compared.
        salad: how many of them come next.
    """

    tokens: Series[int]
    prefix: int
    salad: int

    @property
    def length(self) -> int:
        """How many tokens are compared."""
        return len(self.tokens) - self.prefix

    def after(self, prefix: int) -> "Text":
        """The same with so few tokens in front, at most."""
        left_out = max(0, self.prefix - prefix)
        return Text(self.tokens[left_out:], self.prefix - left_out, self.salad)

    def absorb_prefix(self, runtime: LibllamaRuntime, sequence: int) -> None:
        """Let an empty sequence absorb what comes first."""
        step = runtime.batch_size
        for at in range(0, self.prefix, step):
            tokens = self.tokens[at : min(at + step, self.prefix)]
            runtime.decode([Feed(sequence, tokens, at, outputs=0)])


def text_of(runtime: LibllamaRuntime) -> Text:
    """The text for a model; shorter if its context is."""
    room = runtime.context_length
    prefix = min(PREFIX, room // 2)
    salad = min(SALAD, room - prefix)
    ordinary = min(ORDINARY, room - prefix - salad)
    rng = np.random.default_rng(7)
    try:
        known = runtime.tokenizer.encode(_TEXT, special=False)
    except TokenizerMissingError:
        known = rng.integers(0, runtime.vocabulary_size, PREFIX + ORDINARY).tolist()
    endless = itertools.cycle(known)
    first, last = (list(itertools.islice(endless, count)) for count in (prefix, ordinary))
    return Text([*first, *rng.choice(known, salad).tolist(), *last], prefix, salad)
