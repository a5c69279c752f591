"""The recorder: an observer that keeps what each request's rounds did."""

import os
import time
from collections.abc import Mapping
from collections.abc import Sequence as Series
from dataclasses import asdict
from pathlib import Path
from typing import Any

from surefoot.decoding import Played, Sequence
from surefoot.engine.generation import Generation
from surefoot.engine.lane import Lane
from surefoot.engine.observing import Observer
from surefoot.engine.records.format import FORMAT, VERSION
from surefoot.engine.records.writing import MOST_BYTES, RecordWriter
from surefoot.engine.slot import Slot


class Recorder(Observer):
    """Writes a record of each request.

    Args:
        folder: where the files go.
        facts: what a reader has to know about model, libraries and options, as plain data.
        most_bytes: largest size of a file.

    Raises:
        RecordError: the folder can't be used.
    """

    def __init__(
        self, folder: Path, facts: Mapping[str, Any], most_bytes: int = MOST_BYTES
    ) -> None:
        self._writer = RecordWriter(folder, most_bytes)
        self._facts = facts
        self._names: dict[Sequence, str] = {}

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()

    def entered(self, lane: Lane, slot: Slot) -> None:
        """Begin a record."""
        generation, sequence = slot.running
        now = time.time()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        self._names[sequence] = f"{stamp}-{os.getpid()}-{generation.id}.jsonl"
        self._put(
            sequence,
            {
                "format": FORMAT,
                "version": VERSION,
                "time": now,
                "request_id": generation.id,
                "facts": self._facts,
                "slot": sequence.memory.id,
                "strict_widths": str(lane.runtime.widths) if lane.strict else None,
                "cached_tokens": generation.summary.cached_tokens,
                "begun": sequence.committed[sequence.prompt_length :],
                "request": generation.request,
            },
        )

    def absorbed(self, slot: Slot, tokens: int) -> None:
        """Note a chunk of the prompt."""
        sequence = slot.running[1]
        self._put(sequence, {"absorbed": tokens, "to": sequence.state_len})

    def played(self, slots: Series[Slot], parts: Series[Played]) -> None:  # noqa: ARG002
        """Note a round, for each request in it."""
        shape = [[part.pending, len(part.draft.tokens), part.fillers] for part in parts]
        for part in parts:
            if part.sequence in self._names:
                self._put(part.sequence, {"round": _round(part, shape)})

    def lost(self, slots: Series[Slot], error: Exception) -> None:
        """Note that a memory was lost."""
        for slot in slots:
            self._put(slot.running[1], {"event": "memory lost", "error": str(error)})

    def noted(self, sequence: Sequence, event: str, facts: Mapping[str, Any]) -> None:
        """Note what others have to say."""
        self._put(sequence, {"event": event, **facts})

    def ended(self, generation: Generation) -> None:
        """Complete the record."""
        sequence = generation.sequence
        if sequence is None:
            return
        finish = generation.finish
        summary = asdict(generation.summary)
        summary["counts"].pop("near_tie_positions")
        self._put(
            sequence,
            {
                "end": {
                    "state": generation.state.value,
                    "cause": finish.cause if finish else generation.error,
                    "generated": sequence.generated,
                    "summary": summary,
                }
            },
            last=True,
        )
        self._names.pop(sequence, None)

    def _put(self, sequence: Sequence, line: dict[str, Any], *, last: bool = False) -> None:
        name = self._names.get(sequence)
        if name is not None and not self._writer.put(name, line, last=last):
            del self._names[sequence]


def _round(part: Played, shape: list[list[int]]) -> dict[str, Any]:
    start = part.start + part.sequence.gone
    ties = part.sequence.counts.near_tie_positions
    return {
        "at": start,
        "pending": part.pending,
        "draft": [int(token) for token in part.draft.tokens],
        "fillers": part.fillers,
        "accepted": part.accepted,
        "tokens": part.tokens,
        "gaps": part.gaps(),
        "near_ties": [at for at in ties[-len(part.tokens) :] if at >= start],
        "shape": shape,
        "drafter": part.draft.drafter,
    }
