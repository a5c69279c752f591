"""What all requests of an engine did, added up."""

from collections import Counter
from dataclasses import dataclass, field

from surefoot.engine.summary import Summary


@dataclass(slots=True)
class Totals:
    """Sums over the requests that ended; the names are those of `Summary` and `Counts`.

    Attributes:
        ended: requests by the state in which they ended.
        prompt_tokens: tokens of prompts.
        cached_tokens: those of them that memory still held.
        generated_tokens: tokens generated.
        drafted: draft tokens verified.
        accepted: draft tokens committed.
        near_ties: committed tokens that logit noise might have made others.
        recoveries: memories lost and absorbed again.
        speculation_off: requests that the watchdog took speculation from, by cause.
        rebuilds: memories that it had built again, by how the next choice compared.
    """

    ended: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    near_ties: int = 0
    recoveries: int = 0
    speculation_off: Counter[str] = field(default_factory=Counter)
    rebuilds: Counter[str] = field(default_factory=Counter)

    def add(self, state: str, summary: Summary) -> None:
        """Add a request that has ended."""
        self.ended[state] += 1
        self.prompt_tokens += summary.prompt_tokens
        self.cached_tokens += summary.cached_tokens
        self.generated_tokens += summary.generated_tokens
        self.drafted += summary.counts.drafted
        self.accepted += summary.counts.accepted
        self.near_ties += summary.counts.near_ties
        self.recoveries += summary.recoveries
