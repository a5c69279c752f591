"""A generation's figures, under the names that clients of OpenAI and llama-server know."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any

from surefoot.decoding import Counts
from surefoot.engine import Summary


def total(summaries: Sequence[Summary], leading: Sequence[Summary] | None = None) -> Summary:
    """The figures of several generations taken together.

    Args:
        summaries: theirs.
        leading: those of the first generation of each prompt, which is counted once; None for all.
    """
    counts = [summary.counts for summary in summaries]
    prompts = summaries if leading is None else leading
    return Summary(
        prompt_tokens=sum(s.prompt_tokens for s in prompts),
        cached_tokens=sum(s.cached_tokens for s in prompts),
        reuse=prompts[0].reuse,
        generated_tokens=sum(s.generated_tokens for s in summaries),
        prefilled_tokens=sum(s.prefilled_tokens for s in summaries),
        passes=sum(s.passes for s in summaries),
        graph_runs=sum(s.graph_runs for s in summaries),
        prefill_seconds=sum(s.prefill_seconds for s in summaries),
        decode_seconds=sum(s.decode_seconds for s in summaries),
        rollback_bytes=sum(s.rollback_bytes for s in summaries),
        slot=prompts[0].slot,
        context_shifts=sum(s.context_shifts for s in summaries),
        recoveries=sum(s.recoveries for s in summaries),
        counts=reduce(Counts.plus, counts),
        reasoning_tokens=sum(s.reasoning_tokens for s in summaries),
        cause="; ".join(dict.fromkeys(s.cause for s in summaries if s.cause)),
        exact=summaries[0].exact,
        synthetic=any(s.synthetic for s in summaries),
    )


@dataclass(frozen=True, slots=True)
class Report:
    """What a response says about how it came about.

    Attributes:
        summary: the figures.
        seed: the seed of the answer, chosen by the client or by the server.
        drafter: who might draft; None if nobody might.
        max_draft: most draft tokens a round that it might have.
        speculation_off: why nothing was drafted, in words; None if speculation was on.
        warnings: what of the request was not honoured.
        rule: how drafts were verified.
    """

    summary: Summary
    seed: int
    drafter: str | None = None
    max_draft: int = 0
    speculation_off: str | None = None
    warnings: list[str] = field(default_factory=list)
    rule: str = "coupled"

    @property
    def usage(self) -> dict[str, Any]:
        """OpenAI's `usage`."""
        summary, counts = self.summary, self.summary.counts
        return {
            "prompt_tokens": summary.prompt_tokens,
            "completion_tokens": summary.generated_tokens,
            "total_tokens": summary.prompt_tokens + summary.generated_tokens,
            "prompt_tokens_details": {"cached_tokens": summary.cached_tokens},
            "completion_tokens_details": {
                "reasoning_tokens": summary.reasoning_tokens,
                "accepted_prediction_tokens": counts.accepted,
                "rejected_prediction_tokens": counts.drafted - counts.accepted,
            },
        }

    @property
    def timings(self) -> dict[str, Any]:
        """llama-server's `timings`; speeds are null where nothing was measured."""
        summary, counts = self.summary, self.summary.counts
        prompt_n = summary.prompt_tokens - summary.cached_tokens
        return {
            "cache_n": summary.cached_tokens,
            **self.reuse,
            "prompt_n": prompt_n,
            "prompt_ms": summary.prefill_seconds * 1000,
            "prompt_per_second": _prompt_speed(summary, prompt_n),
            "predicted_n": summary.generated_tokens,
            "predicted_ms": summary.decode_seconds * 1000,
            "predicted_per_second": _speed(summary.generated_tokens, summary.decode_seconds),
            "draft_n": counts.drafted,
            "draft_n_accepted": counts.accepted,
            **self.speculation,
        }

    @property
    def reuse(self) -> dict[str, Any]:
        """Where reused tokens came from, and why there are not more; of several prompts, for the
        first."""
        reuse = self.summary.reuse
        return {"cache_from": reuse.origin or None, "cache_reason": reuse.reason or None}

    @property
    def speculation(self) -> dict[str, Any]:
        """Who drafted, how deep, and what became of it; or why nobody did."""
        counts = self.summary.counts
        return {
            "drafter": self.drafter,
            "draft_n_max": self.max_draft,
            "speculation_off": self.speculation_off or counts.speculation_off or self._failures(),
            "mean_length": counts.mean_length,
            "drafted_by_position": counts.drafted_by_position,
            "accepted_by_position": counts.accepted_by_position,
            "by_drafter": {name: asdict(part) for name, part in counts.by_drafter.items()},
            "synthetic": self.summary.synthetic,
        }

    def _failures(self) -> str | None:
        """Why drafters were switched off on the way; None if none was."""
        parts = self.summary.counts.by_drafter.items()
        return "; ".join(f"{name}: {part.failure}" for name, part in parts if part.failure) or None

    def _watchdog(self) -> list[str]:
        """What the watchdog has done, as warnings."""
        reason = self.summary.counts.speculation_off
        return [f"speculation was turned off on the way: {reason}"] if reason else []

    @property
    def details(self) -> dict[str, Any]:
        """What only surefoot tells."""
        summary, counts = self.summary, self.summary.counts
        return {
            "seed": self.seed,
            "exact": summary.exact,
            "verify": self.rule,
            "cached_tokens": summary.cached_tokens,
            **self.reuse,
            **self.speculation,
            "finish_cause": summary.cause,
            "rounds": counts.rounds,
            "passes": summary.passes,
            "graph_runs": summary.graph_runs,
            "rollbacks": counts.rollbacks,
            "recoveries": summary.recoveries,
            "id_slot": summary.slot,
            "context_shifts": summary.context_shifts,
            "near_ties": counts.near_ties,
            "warnings": self.warnings + self._watchdog(),
        }


def _prompt_speed(summary: Summary, prompt_n: int) -> float | None:
    """How fast a prompt was absorbed; None if nothing of it was.

    A prompt's last token rides with the first round, so of one that was cached nothing is absorbed.
    """
    absorbed = prompt_n > 1 and summary.prefilled_tokens > 0
    return _speed(prompt_n, summary.prefill_seconds) if absorbed else None


def _speed(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if seconds > 0 else None
