"""Finding width classes: which widths of a pass give bit-equal logits, by trying them.

A text is decoded again and again, each time in passes of another width, every token with outputs:
the last layers work on rows with outputs only, so that their number is a width, too. Widths whose
rows are equal bit for bit form a class. The class chosen is put on trial (`width_trial`).
"""

import itertools
import time
from collections.abc import Mapping
from collections.abc import Sequence as Series
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from surefoot.decoding import Feed, Widths
from surefoot.runtime.libllama.errors import UnstableLogitsError
from surefoot.runtime.libllama.runtime import LibllamaRuntime
from surefoot.runtime.libllama.width_cache import keep, key_of, look_up
from surefoot.runtime.libllama.width_report import WIDEST, WidthReport
from surefoot.runtime.libllama.width_text import ORDINARY, SALAD, text_of
from surefoot.runtime.libllama.width_trial import Trial, mark

WIDTHS = (*range(1, 10), 12, 13, 16, 20, 24, 28, 31, 32, 33, 48, 63, WIDEST)
"""The widths that are tried."""

LENGTHS = (SALAD + ORDINARY, 96, 48, 24, 12, 8)
"""Tokens in a row that are decoded at each width; the fewer, the slower passes are. With fewer than
all of them width 1 counts as a class of its own."""

_SHORT_PREFIX = 16
_RIGHT, _PER_TOKEN = 0.5, 0.35
_PREFILL_SHARE = 0.1
_LIVE, _SPARE = 0, 1


def known_widths(runtime: LibllamaRuntime) -> WidthReport | None:
    """The width classes of a model on its device, if they have been measured before."""
    return look_up(key_of(runtime.settings, runtime.vocabulary_size))


def measure_widths(runtime: LibllamaRuntime, seconds: float = 5.0) -> WidthReport:
    """The width classes of a model on its device; looked up if they have been measured before.

    Args:
        runtime: the loaded model; its own memory is not touched.
        seconds: about how long the measurement may take; slow models are tried with fewer tokens
            and widths.

    Raises:
        ModelLoadError: there is no memory for a context to measure in.
        DecodeError: a pass failed.
        UnstableLogitsError: there is no width at which the same tokens give the same logits.
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

    @property
    def cost(self) -> float:
        """How long a pass takes. What disturbs a computer only ever makes it longer."""
        return min(self.times)


class _Measurement:
    """Decodes a text at various widths."""

    def __init__(self, runtime: LibllamaRuntime, most: int, begun: float, seconds: float) -> None:
        self._runtime = runtime
        self._begun = begun
        self._seconds = seconds
        self._most = most
        self._text = text_of(runtime)
        self._length = self._text.length
        self._widths: list[int] = []
        self._base = np.empty((0, 0), np.float32)
        self._differences: dict[int, list[float]] = {}
        self._flipped: set[int] = set()

    def report(self) -> WidthReport:
        """Measure."""
        usual = self._plan()
        rows = {width: self._at(width) for width in self._widths}
        chosen, classes = self._choose(self._classes(rows), rows)
        differences = {width: found for width, found in sorted(self._differences.items()) if found}
        every = [value for found in differences.values() for value in found]
        usual = min([usual, *(found.cost / width for width, found in rows.items())])
        return WidthReport(
            widths=chosen,
            classes=tuple(classes),
            noise_by_width=tuple((width, max(d)) for width, d in differences.items()),
            median_by_width=tuple((width, _median(d)) for width, d in differences.items()),
            median_noise=_median(every),
            flips=len(self._flipped),
            positions=self._length - self._skipped,
            plain_cost=rows[chosen.least].cost / rows[1].cost,
            prefill_cost=rows[chosen.most].cost / chosen.most / usual,
            seconds=time.perf_counter() - self._begun,
        )

    # How much is tried

    def _plan(self) -> float:
        """Decide how much can be tried in the time; returns the usual prefill's time per token."""
        self._decode(_SPARE, 0, 2)  # what is slow only once
        self._runtime.drop(_SPARE)
        usual = self._absorb_prefix() / self._text.prefix
        self._start()
        width = min(16, self._most, self._length)
        one, wide = self._timed(1), self._timed(width)
        per_token = max(0.0, wide - one) / (width - 1)
        for length in LENGTHS:
            self._length = min(length, self._text.length)
            self._widths = [width for width in WIDTHS if width <= min(self._most, self._length)]
            if self._expected(one, per_token) <= self._seconds:
                break
        if self._length < LENGTHS[1]:
            self._text = self._text.after(_SHORT_PREFIX)
            for sequence in (_LIVE, _SPARE):  # both, lest the new one lie in cells further on
                self._runtime.drop(sequence)
            self._text.absorb_prefix(self._runtime, _SPARE)
        return self._usual_prefill(usual)

    def _timed(self, width: int) -> float:
        """How long a pass takes."""
        begun = time.perf_counter()
        self._decode(_LIVE, self._text.prefix, width)
        taken = time.perf_counter() - begun
        self._start()
        return taken

    def _expected(self, one: float, per_token: float) -> float:
        """How long it will take to decode all that often, and to try the class that is chosen."""
        most = self._widths[-1]
        prefix = self._text.prefix if self._length >= LENGTHS[1] else _SHORT_PREFIX
        trial = 6 * (self._length + prefix)
        passes = sum(self._length // width for width in self._widths) + 3 * trial // most
        return passes * one + (self._length * len(self._widths) + trial) * per_token

    def _usual_prefill(self, known: float) -> float:
        """The time per token of a prefill at full width, if that is cheap to find out."""
        width = min(self._runtime.settings.micro_batch_size, self._runtime.context_length)
        if width * known > _PREFILL_SHARE * self._seconds:
            return known
        tokens = list(itertools.islice(itertools.cycle(self._text.tokens), width))
        self._runtime.drop(_LIVE)
        begun = time.perf_counter()
        self._runtime.decode([Feed(_LIVE, tokens, 0, outputs=0)])
        return (time.perf_counter() - begun) / width

    # Decoding

    def _absorb_prefix(self) -> float:
        """Decode what comes first into the spare sequence; returns how long that took."""
        begun = time.perf_counter()
        self._text.absorb_prefix(self._runtime, _SPARE)
        return time.perf_counter() - begun

    def _start(self) -> None:
        """Let the live sequence hold the prefix, and nothing else."""
        self._runtime.drop(_LIVE)
        if self._runtime.rollback.fork:
            self._runtime.fork(_SPARE, _LIVE, 0, self._text.prefix)
        else:
            self._text.absorb_prefix(self._runtime, _LIVE)

    def _decode(self, sequence: int, at: int, width: int) -> NDArray[np.float32]:
        tokens = self._text.tokens[at : at + width]
        return self._runtime.decode([Feed(sequence, tokens, at, outputs=len(tokens))])[0]

    def _at(self, width: int) -> _Rows:
        """Decode the text in passes of one width; a last, narrower one does not count."""
        self._start()
        found = _Rows()
        for at in range(0, self._length - width + 1, width):
            begun = time.perf_counter()
            rows = self._decode(_LIVE, self._text.prefix + at, width)
            found.times.append(time.perf_counter() - begun)
            found.marks += map(mark, rows)
            if width == 1:
                self._base = np.concatenate([self._base.reshape(-1, rows.shape[1]), rows])
            else:
                self._compare(at, rows)
        return found

    @property
    def _skipped(self) -> int:
        """Positions at which differences don't count: people write no word salad."""
        return self._text.salad if self._length > self._text.salad else 0

    def _compare(self, at: int, rows: NDArray[np.float32]) -> None:
        """Note how far rows are from those of width 1."""
        base = self._base[at : at + len(rows)]
        differences = self._differences.setdefault(len(rows), [])
        for row, other, position in zip(rows, base, itertools.count(at), strict=False):
            if position >= self._skipped:
                differences.append(float(np.abs(row - other).max()))
                if row.argmax() != other.argmax():
                    self._flipped.add(position)

    # Classes

    def _classes(self, rows: Mapping[int, _Rows]) -> list[Widths]:
        """Widths whose rows are equal, as far as both have them."""
        classes: list[list[int]] = []
        # Nothing less tells width 1 apart for sure: the salad, and attention beyond 256 tokens,
        # which several threads share out for a token by itself.
        alone = self._length < LENGTHS[0]
        for width in self._widths:
            for widths in classes[1:] if alone else classes:
                known, new = rows[widths[0]].marks, rows[width].marks
                if all(a == b for a, b in zip(known, new, strict=False)):
                    widths.append(width)
                    break
            else:
                classes.append([width])
        return [Widths(tuple(widths)) for widths in classes]

    def _choose(
        self, classes: Series[Widths], rows: Mapping[int, _Rows]
    ) -> tuple[Widths, list[Widths]]:
        """The best class, as its trial left it, and all classes, of which none else was tried."""
        tried: dict[Widths, Widths] = {}
        left = list(classes)
        while left:
            best = min(left, key=lambda widths: _price(tried.get(widths, _filled(widths))))
            if best in tried:
                return tried[best], [tried.get(widths, _filled(widths)) for widths in left]
            found = self._tried(best, rows[best.least].marks)
            if found is None:
                left.remove(best)
            else:
                tried[best] = found
        raise UnstableLogitsError(self._runtime.info.name)

    def _tried(self, widths: Widths, marks: Series[bytes]) -> Widths | None:
        """What is left of a class when it is tried; None if not even one width stands."""
        trial = Trial(self._runtime, self._text)
        for presumed in dict.fromkeys((_filled(widths), widths)):
            if trial.stands(presumed, marks):
                return presumed
        least = Widths((widths.least,))
        if not trial.stands(least, marks):
            return None
        pairs = [Widths((widths.least, width)) for width in widths.allowed[1:]]
        holding = [pair.most for pair in pairs if trial.stands(pair, marks)]
        reduced = Widths((widths.least, *holding))
        return reduced if trial.stands(reduced, marks) else least


def _median(differences: Series[float]) -> float:
    """Their median, those that are none left out; 0 if there are none."""
    moved = [difference for difference in differences if difference > 0]
    return float(np.median(moved)) if moved else 0.0


def _filled(widths: Widths) -> Widths:
    """The class with the widths in between that were not tried, if none that was is missing."""
    inside = range(widths.least, widths.most + 1)
    if any(width in WIDTHS and width not in widths.allowed for width in inside):
        return widths
    return Widths(tuple(inside))


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
