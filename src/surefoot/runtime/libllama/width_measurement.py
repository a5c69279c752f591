"""Finding width classes: which widths of a pass give bit-equal logits, by trying them.

A text is decoded again and again, each time in passes of another width, every token with outputs:
the last layers work on rows with outputs only, so that their number is a width, too. Widths whose
rows are equal bit for bit form a class, which is then tried with passes of all its widths mixed.
"""

import hashlib
import itertools
import time
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Series
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import Feed, Widths
from surefoot.runtime.base import TokenizerMissingError
from surefoot.runtime.libllama.runtime import LibllamaRuntime
from surefoot.runtime.libllama.width_cache import keep, key_of, look_up
from surefoot.runtime.libllama.width_report import WidthReport

WIDTHS = (*range(1, 10), 12, 13, 16, 20, 24, 28, 31, 32, 33, 48, 63, 64)
"""The widths that are tried."""

LENGTH = 256
"""Tokens in a row that are decoded at each width; fewer where passes are slow."""

ENOUGH = 256
"""With fewer of them width 1 counts as a class of its own. A token by itself has kernels of its own
on most devices, and their results may be equal for a hundred tokens in a row before one differs
(seen on the trained hybrid in Q8_0: equal at 59 positions between two that were not)."""

PREFIX = 64
"""Tokens in front of them, so that attention has something to look at."""

_MIXTURES = 4
_RIGHT, _PER_TOKEN = 0.5, 0.35
_LIVE, _SPARE = 0, 1

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


def known_widths(runtime: LibllamaRuntime) -> WidthReport | None:
    """The width classes of a model on its device, if they have been measured before."""
    return look_up(key_of(runtime.settings, runtime.vocabulary_size))


def measure_widths(runtime: LibllamaRuntime, seconds: float = 6.0) -> WidthReport:
    """The width classes of a model on its device; looked up if they have been measured before.

    Args:
        runtime: the loaded model; its own memory is not touched.
        seconds: about how long the measurement may take; slow models are tried with fewer tokens
            and widths.

    Raises:
        ModelLoadError: there is no memory for a context to measure in.
        DecodeError: a pass failed.
    """
    key = key_of(runtime.settings, runtime.vocabulary_size)
    found = look_up(key)
    if found is not None:
        return found
    begun = time.perf_counter()
    most = min(WIDTHS[-1], runtime.settings.micro_batch_size)
    with runtime.sibling(outputs=most) as sibling:
        report = _Measurement(sibling, most, begun, seconds).report()
    keep(key, report)
    return report


@dataclass
class _Rows:
    """What one width gave.

    Attributes:
        marks: a mark for each row.
        times: how long each pass took.
    """

    marks: list[bytes] = field(default_factory=list)
    times: list[float] = field(default_factory=list)


class _Measurement:
    """Decodes a text at various widths."""

    def __init__(self, runtime: LibllamaRuntime, most: int, begun: float, seconds: float) -> None:
        self._runtime = runtime
        self._begun = begun
        room = runtime.context_length
        self._prefix = min(PREFIX, room // 2)
        self._length = max(2, min(LENGTH, room - self._prefix))
        self._tokens = self._text(self._prefix + self._length)
        self._widths = [w for w in WIDTHS if w <= min(most, self._length)]
        self._base = np.empty((0, 0), np.float32)
        self._differences: dict[int, list[float]] = {}
        self._flipped: set[int] = set()
        self._seconds = seconds

    def report(self) -> WidthReport:
        """Measure."""
        prefill = self._absorb_prefix()
        self._shrink()
        rows = {width: self._at(width) for width in self._widths}
        classes = [self._confirmed(widths, rows) for widths in self._classes(rows)]
        cost = {width: float(np.median(found.times)) for width, found in rows.items()}
        chosen = min(classes, key=_price)
        moved = {width: max(found) for width, found in self._differences.items()}
        every = [value for found in self._differences.values() for value in found if value]
        usual = min([prefill / self._prefix, *(cost[width] / width for width in self._widths)])
        return WidthReport(
            widths=chosen,
            classes=tuple(classes),
            noise_by_width=tuple(sorted(moved.items())),
            median_noise=float(np.median(every)) if every else 0.0,
            flips=len(self._flipped),
            positions=len(self._base),
            plain_cost=cost[chosen.least] / cost[1],
            prefill_cost=cost[chosen.most] / chosen.most / usual,
            seconds=time.perf_counter() - self._begun,
        )

    def _text(self, length: int) -> list[int]:
        try:
            tokens = self._runtime.tokenizer.encode(_TEXT, special=False)
        except TokenizerMissingError:
            rng = np.random.default_rng(7)
            tokens = rng.integers(0, self._runtime.vocabulary_size, length).tolist()
        return list(itertools.islice(itertools.cycle(tokens), length))

    # Decoding

    def _absorb_prefix(self) -> float:
        """Decode what comes first into the spare sequence; returns how long that took."""
        self._decode(_SPARE, 0, 2)  # what is slow only once
        self._runtime.drop(_SPARE)
        begun = time.perf_counter()
        at = 0
        while at < self._prefix:
            width = min(self._prefix - at, self._runtime.batch_size)
            feed = Feed(_SPARE, self._tokens[at : at + width], at, outputs=0)
            self._runtime.decode([feed])
            at += width
        return time.perf_counter() - begun

    def _start(self) -> None:
        """Let the live sequence hold the prefix, and nothing else."""
        self._runtime.drop(_LIVE)
        if self._runtime.rollback.fork:
            self._runtime.fork(_SPARE, _LIVE, 0, self._prefix)
            return
        self._runtime.decode([Feed(_LIVE, self._tokens[: self._prefix], 0, outputs=0)])

    def _decode(self, sequence: int, at: int, width: int) -> NDArray[np.float32]:
        tokens = self._tokens[at : at + width]
        return self._runtime.decode([Feed(sequence, tokens, at, outputs=len(tokens))])[0]

    def _shrink(self) -> None:
        """Try fewer tokens and widths where passes are slow."""
        self._start()
        self._decode(_LIVE, self._prefix, 1)
        begun = time.perf_counter()
        self._decode(_LIVE, self._prefix + 1, 1)
        once = time.perf_counter() - begun
        while self._expected_passes() * 2 * once > self._seconds and self._length > 8:
            self._length //= 2
            self._widths = [width for width in self._widths if width <= self._length]

    def _expected_passes(self) -> int:
        passes: int = sum(-(-self._length // width) for width in self._widths)
        return passes + _MIXTURES * self._length // 2

    def _at(self, width: int) -> _Rows:
        """Decode the text in passes of one width; a last, narrower one does not count."""
        self._start()
        found = _Rows()
        for at in range(0, self._length - width + 1, width):
            begun = time.perf_counter()
            rows = self._decode(_LIVE, self._prefix + at, width)
            found.times.append(time.perf_counter() - begun)
            found.marks += map(_mark, rows)
            if width == 1:
                self._base = np.concatenate([self._base.reshape(-1, rows.shape[1]), rows])
            else:
                self._compare(at, rows)
        return found

    def _compare(self, at: int, rows: NDArray[np.float32]) -> None:
        """Note how far rows are from those of width 1."""
        base = self._base[at : at + len(rows)]
        differences = self._differences.setdefault(len(rows), [])
        differences += np.abs(rows - base).max(axis=1).tolist()
        changed = np.flatnonzero(rows.argmax(axis=1) != base.argmax(axis=1))
        self._flipped.update(int(at + offset) for offset in changed)

    # Classes

    def _classes(self, rows: Mapping[int, _Rows]) -> list[list[int]]:
        """Widths whose rows are equal, as far as both have them."""
        classes: list[list[int]] = []
        for width in self._widths:
            alone = 1 in classes[0] and self._length < ENOUGH if classes else False
            for widths in classes[1:] if alone else classes:
                known, new = rows[widths[0]].marks, rows[width].marks
                if all(a == b for a, b in zip(known, new, strict=False)):
                    widths.append(width)
                    break
            else:
                classes.append([width])
        return classes

    def _confirmed(self, widths: Series[int], rows: Mapping[int, _Rows]) -> Widths:
        """The widths of a class that stay equal when passes of several widths follow each other."""
        least = widths[0]
        expected = rows[least].marks
        holding = [least]
        holding += [
            width for width in widths[1:] if self._agrees(itertools.cycle((width, least)), expected)
        ]
        rng = np.random.default_rng(3)
        for _ in range(_MIXTURES):
            mixture = (int(rng.choice(holding)) for _ in itertools.count())
            if len(holding) > 1 and not self._agrees(mixture, expected):
                return Widths((least,))
        return _filled(holding)

    def _agrees(self, cuts: Iterable[int], expected: Series[bytes]) -> bool:
        """Whether the text, cut into passes like that, gives the expected rows.

        Every fifth pass has no outputs, as those of a prefill.
        """
        self._start()
        at = 0
        for number, width in enumerate(cuts):
            if at + width > len(expected):
                return True
            silent = number % 5 == 4
            tokens = self._tokens[self._prefix + at : self._prefix + at + width]
            feed = Feed(_LIVE, tokens, self._prefix + at, outputs=0 if silent else width)
            marks = [_mark(row) for row in self._runtime.decode([feed])[0]]
            if not silent and marks != expected[at : at + width]:
                return False
            at += width
        return True


def _mark(row: NDArray[np.float32]) -> bytes:
    return hashlib.blake2b(row.tobytes(), digest_size=16).digest()


def _filled(widths: Series[int]) -> Widths:
    """The class with the widths in between that were not tried, if none that was is missing."""
    if any(widths[0] < width < widths[-1] and width not in widths for width in WIDTHS):
        return Widths(tuple(widths))
    return Widths(tuple(range(widths[0], widths[-1] + 1)))


def _price(widths: Widths) -> float:
    """What a class costs for a usual request: 300 tokens of prompt, 200 of answer, drafted for
    wherever that pays at one draft token in two being right.

    It goes by a rule of thumb for the cost of a pass and not by what was measured: the choice
    decides about the text, which must not hang on how busy the computer was.
    """
    per_token = min(
        _usual_cost(width) / sum(_RIGHT**depth for depth in range(width))
        for width in widths.allowed
    )
    return 300 / widths.most * _usual_cost(widths.most) + 200 * per_token


def _usual_cost(width: int) -> float:
    """The cost of a pass in passes of one token."""
    return 1 + _PER_TOKEN * (width - 1)
