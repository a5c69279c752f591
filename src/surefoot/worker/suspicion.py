"""Which request may have killed the worker: told from what was running when it died.

A request that has committed a token since the last death is cleared of it. One that was running at
two deaths in a row without is a suspect, and runs alone. One that was running at the ends of two
workers' lives in a row in which nobody else has run, with nothing committed, is guilty. So nobody
is given up for having been in bad company, nor for one death that may have come from outside.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Series
from dataclasses import dataclass

from surefoot.engine import Journal

DEATHS_ALLOWED = 1
"""More in a row, with nothing committed between them, make a suspect."""


@dataclass(slots=True)
class _Record:
    deaths: int = 0
    alone: int = 0
    tokens: int = 0


class Suspicion:
    """Keeps count of deaths."""

    def __init__(self) -> None:
        self._records: dict[int, _Record] = {}

    def died_with(self, running: Series[Journal], *, alone: bool) -> Journal | None:
        """Take note of a death; returns who is guilty of it, if that is known.

        Args:
            running: those for whom the worker was working.
            alone: whether it had worked for one request in all of its life.
        """
        for journal in running:
            record = self._records.setdefault(journal.id, _Record())
            if len(journal.tokens) > record.tokens:
                record.deaths = record.alone = 0
            record.deaths += 1
            record.alone += alone and len(running) == 1
            record.tokens = len(journal.tokens)
        if len(running) == 1 and self._records[running[0].id].alone > DEATHS_ALLOWED:
            return running[0]
        return None

    def suspects(self, journal: Journal) -> bool:
        """Whether a request is a suspect now."""
        record = self._records.get(journal.id)
        if record is None or len(journal.tokens) > record.tokens:
            return False
        return record.deaths > DEATHS_ALLOWED

    def deaths(self, journal: Journal) -> int:
        """How often in a row the worker died with a request that committed nothing."""
        record = self._records.get(journal.id)
        return 0 if record is None else record.deaths

    def forget(self, journal: Journal) -> None:
        """Drop a request that is over."""
        self._records.pop(journal.id, None)

    def admitted(self, open_: Iterable[Journal]) -> list[Journal]:
        """Who may run now, of those who are open: the first suspect alone, or all."""
        journals = list(open_)
        return next(([journal] for journal in journals if self.suspects(journal)), journals)
