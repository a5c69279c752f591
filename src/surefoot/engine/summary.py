"""What a generation did and how fast, in plain numbers."""

from dataclasses import dataclass, field, replace

from surefoot.decoding import Counts
from surefoot.engine.reuse import Reuse


@dataclass(slots=True)
class Summary:
    """Figures of one generation. Times are in seconds.

    Attributes:
        prompt_tokens: tokens of the prompt.
        cached_tokens: those of them that did not have to be absorbed.
        reuse: where those came from, and why there are not more.
        generated_tokens: tokens generated, an end token included.
        prefilled_tokens: tokens absorbed in prefill passes.
        passes: forward passes of the rounds that the generation took part in, as counted by the
            runtime; prefill passes are not among them.
        graph_runs: graph runs of the passes of those rounds.
        prefill_seconds: time that those passes took, for whomever else they were.
        decode_seconds: time of the rounds that the generation took part in.
        first_token_seconds: from entering a slot to the end of the first round.
        rollback_bytes: bytes of state copied to undo drafts. Cutting and forking re-point cells
            and copy none; ways of roll-back that do copy add to it.
        slot: the number of the slot that it had; -1 for none, or a lane of its own.
        context_shifts: times that the context was full and its middle given up.
        recoveries: times that the memory was lost, to a failed pass or with its process, and
            absorbed again.
        reasoning_tokens: generated tokens inside the reasoning.
        cause: why it finished, in words; empty if it did not.
        exact: "strict" or "fast"; see `Request`.
        synthetic: whether drafts were accepted by chance, so that the text is not the model's.
        counts: what the rounds did.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    reuse: Reuse = field(default_factory=Reuse)
    generated_tokens: int = 0
    prefilled_tokens: int = 0
    passes: int = 0
    graph_runs: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    first_token_seconds: float = 0.0
    rollback_bytes: int = 0
    slot: int = -1
    context_shifts: int = 0
    recoveries: int = 0
    reasoning_tokens: int = 0
    cause: str = ""
    exact: str = "fast"
    synthetic: bool = False
    counts: Counts = field(default_factory=Counts)

    def then(self, later: "Summary") -> "Summary":
        """The figures of a generation that went on in another engine, which had its tokens.

        Args:
            later: the other engine's.
        """
        counts = self.counts.plus(later.counts)
        counts.near_tie_positions = later.counts.near_tie_positions
        return replace(
            later,
            cached_tokens=self.cached_tokens,
            reuse=self.reuse,
            prefilled_tokens=self.prefilled_tokens + later.prefilled_tokens,
            passes=self.passes + later.passes,
            prefill_seconds=self.prefill_seconds + later.prefill_seconds,
            decode_seconds=self.decode_seconds + later.decode_seconds,
            first_token_seconds=self.first_token_seconds or later.first_token_seconds,
            rollback_bytes=self.rollback_bytes + later.rollback_bytes,
            context_shifts=self.context_shifts + later.context_shifts,
            graph_runs=self.graph_runs + later.graph_runs,
            recoveries=self.recoveries + later.recoveries,
            counts=counts,
        )

    @property
    def prefill_tokens_per_s(self) -> float | None:
        """Prefill speed; None if nothing was prefilled."""
        return self.prefilled_tokens / self.prefill_seconds if self.prefill_seconds else None

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Generation speed; None before the first round."""
        return self.generated_tokens / self.decode_seconds if self.decode_seconds else None
