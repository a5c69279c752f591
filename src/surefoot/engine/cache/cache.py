"""`PromptCache`: how a request begins with as much as possible of what was absorbed before."""

import logging
from collections.abc import Sequence as Series
from typing import Any, NamedTuple

from surefoot.decoding import MAX_PENDING, SurefootError
from surefoot.drafting.keeping import keepers_in
from surefoot.engine.cache.settings import CacheSettings
from surefoot.engine.cache.slot_file import State
from surefoot.engine.cache.stops import stops_for
from surefoot.engine.cache.store import Entry
from surefoot.engine.cache.tiers import Parts, Tiers
from surefoot.engine.cache.tokens import Tokens, as_tokens, common
from surefoot.engine.lane import Lane
from surefoot.engine.request import Request
from surefoot.engine.reuse import ORIGINS, Origin, Reuse, reason_for
from surefoot.engine.slot import Slot

log = logging.getLogger(__name__)

_MOST_TRIES = 8
"""So many states are tried at most, if one after the other can't be restored."""

_MOST_CUTS = 2
"""So many of them at most that would have to be cut, where a sliding window may have moved on."""


class _Way(NamedTuple):
    """A state that a request could begin with.

    Attributes:
        length: how many of the prompt's tokens would be reused.
        origin: where it is.
        source: the slot that holds it, or the entry.
        text: all that is in it.
    """

    length: int
    origin: Origin
    source: Any
    text: Tokens

    @property
    def cut(self) -> int:
        """How many tokens would have to be cut off."""
        return len(self.text) - self.length


class PromptCache:
    """Finds, restores and keeps the states of one lane.

    Whether a state can be cut back to a shorter text is the memory's matter. Where it can't, states
    are kept at places to which later requests are likely to go back.

    Args:
        lane: the lane; its runtime asks here for room from now on.
        settings: the budgets.

    Attributes:
        settings: the same.
        hits: requests that reused something, by its origin.
        tokens: tokens reused, likewise.
        misses: requests that reused nothing.
    """

    def __init__(self, lane: Lane, settings: CacheSettings) -> None:
        self.settings = settings
        self.hits: dict[str, int] = dict.fromkeys(ORIGINS, 0)
        self.tokens: dict[str, int] = dict.fromkeys(ORIGINS, 0)
        self.misses = 0
        self._lane = lane
        self._runtime = lane.runtime
        self._tiers = Tiers(lane.runtime, keepers_in(lane.drafter), settings)
        margin = lane.max_draft + MAX_PENDING + 1
        self._every_round = max(settings.every // 2, settings.every - margin)
        lane.runtime.make_room = self._tiers.make_room

    # Beginning

    def best_elsewhere(self, prompt: Series[int]) -> int:
        """How many tokens of a prompt a new slot could begin with, whichever slot it is."""
        ways, _ = self._ways(as_tokens(prompt), None)
        return max((way.length for way in ways), default=0)

    def resume(self, slot: Slot, prompt: Series[int]) -> Reuse:
        """Let an idle slot of the lane hold as much as possible of a prompt, and nothing else."""
        text = as_tokens(prompt)
        self._tiers.touch(text)
        ways, known = self._ways(text, slot)
        ways.sort(key=lambda w: (-w.length, w.source is not slot, ORIGINS.index(w.origin), w.cut))
        refused = False
        tries = cuts = 0
        for way in ways:
            unsure = way.cut > 0 and self._runtime.forgets
            if tries == _MOST_TRIES or (unsure and cuts == _MOST_CUTS):
                continue
            tries, cuts = tries + 1, cuts + unsure
            try:
                self._go(slot, way)
            except SurefootError as error:
                log.info("a state of %d tokens can't be restored: %s", len(way.text), error)
                slot.memory.clear()
                refused = True
                continue
            if slot.memory.length:
                return self._count(Reuse(slot.memory.length, way.origin), len(text), known, refused)
        slot.memory.clear()
        return self._count(Reuse(), len(text), known, refused)

    def share(self, source: Slot, slot: Slot) -> None:
        """Let a slot begin with all that another one holds.

        Raises:
            SurefootError: it can't be shared as it stands. The slot holds nothing then.
        """
        sequence, length = source.memory.forkable
        text = as_tokens(source.held[:length])
        slot.memory.clear()
        self._tiers.bring_fork(source.memory.id, sequence, slot.memory.id, text)
        slot.memory.restored(len(text))

    def _count(self, reuse: Reuse, prompt: int, known: int, refused: bool) -> Reuse:
        if reuse.tokens:
            self.hits[reuse.origin] += 1
            self.tokens[reuse.origin] += reuse.tokens
        else:
            self.misses += 1
        reason = reason_for(prompt, known, reuse.tokens, refused=refused)
        return Reuse(reuse.tokens, reuse.origin, reason)

    def _ways(self, text: Tokens, slot: Slot | None) -> tuple[list[_Way], int]:
        """All states that have something of a text, and how much of it is known in all."""
        ways: list[_Way] = []
        known = 0
        most = len(text) - 1
        cuttable = self._runtime.rollback.kind == "cut"

        def consider(origin: Origin, source: Any, held: Tokens, shared: int, *, cut: bool) -> None:
            length = len(held) if shared == len(held) else 0
            if cut:
                length = min(shared, most)
            if 0 < length <= most:
                ways.append(_Way(length, origin, source, held))

        for other in self._lane.slots:
            held = as_tokens(other.held)
            shared = common(held, text)
            known = max(known, shared)
            if other is slot:
                if length := other.memory.reach(min(shared, most)):
                    ways.append(_Way(length, "slot", other, held))
            elif self._runtime.rollback.fork:
                _, length = other.memory.forkable
                consider("slot", other, held[:length], min(shared, length), cut=cuttable)
        # To restore a saved state costs too much to find out that it can't be cut.
        surely_cuttable = cuttable and not self._runtime.forgets
        for origin, store in self._tiers.stores.items():
            for shared, entry in store.matches(text):
                known = max(known, shared)
                cut = cuttable if origin == "device" else surely_cuttable
                consider(origin, entry, entry.tokens, shared, cut=cut)
        return ways, known

    def _go(self, slot: Slot, way: _Way) -> None:
        """Let a slot hold what a way leads to; nothing if it is not there any more.

        Raises:
            SurefootError: it can't.
        """
        if way.source is slot:
            slot.memory.settle(way.length)
            return
        slot.memory.clear()
        sequence = slot.memory.id
        match way.origin:
            case "slot":
                memory = way.source.memory
                self._tiers.bring_fork(memory.id, memory.forkable[0], sequence, way.text)
            case "device":
                fork = way.source.payload
                self._tiers.bring_fork(fork, fork, sequence, way.text)
            case _:
                parts = self._read(way.source, way.origin)
                if parts is None:
                    raise SurefootError("it is not there any more, or is damaged")
                self._tiers.bring_saved(parts, sequence, way.text)
        slot.memory.restored(len(way.text))
        slot.memory.settle(way.length)

    def _read(self, entry: Entry[Any], origin: Origin) -> Parts | None:
        disk = self._tiers.disk
        if origin != "disk" or disk is None:
            return dict(entry.payload)
        parts = disk.get(entry)
        if parts is not None and self.settings.ram:
            self._tiers.put(entry.tokens, parts)
        return parts

    # Keeping

    def stops(self, request: Request, length: int) -> list[int]:
        """Where the prefill of a request shall stop to keep a state, ascending.

        Args:
            request: the request.
            length: how many tokens of it are absorbed already.
        """
        if not self._tiers.on or not self._runtime.forgets:
            return []
        return stops_for(
            len(request.prompt) - 1,
            length,
            request.message_starts,
            request.turn_start,
            self.settings.every,
        )

    def passed(self, slot: Slot) -> None:
        """A slot's prefill has come to a stop, or to none."""
        if slot.memory.length in slot.stops:
            self._keep(slot, slot.generation)

    def played(self, slot: Slot) -> None:
        """A slot has played a round; a long answer has checkpoints, too."""
        far = slot.memory.length - slot.checkpoint >= self._every_round
        if far and self._tiers.on and self._runtime.forgets:
            self._keep(slot, slot.generation)

    def finished(self, slot: Slot) -> None:
        """A slot's generation has come to its end: what it left may be reused."""
        assert slot.generation is not None
        self._tiers.publish(slot.generation)
        if self._tiers.on:
            self._keep(slot, None)
            if not self._runtime.forgets:
                self._tiers.supersede(as_tokens(slot.held))

    def given_up(self, slot: Slot) -> None:
        """A slot's generation was cancelled or has failed: nothing of it may be reused."""
        assert slot.generation is not None
        self._tiers.discard(slot.generation)

    def _keep(self, slot: Slot, owner: object | None) -> None:
        sequence, length = slot.memory.forkable
        text = as_tokens(slot.held[:length])
        slot.checkpoint = slot.memory.length
        if len(text) and not self._tiers.held(text, owner):
            self._tiers.keep(slot.memory.id, sequence, text, owner)

    # Slots and files

    def states_of(self, slot: Slot) -> list[State]:
        """What a slot holds, and kept states of beginnings of its text, the longest first."""
        text = as_tokens(slot.held)
        found = {len(held): parts for held, parts in self._own_state(slot)}
        for origin, store in self._tiers.stores.items():
            for shared, entry in store.matches(text):
                if shared == len(entry.tokens) and shared not in found:
                    parts = (
                        self._tiers.saved(entry.payload, entry.payload)
                        if origin == "device"
                        else self._read(entry, origin)
                    )
                    if parts is not None:
                        found[shared] = parts
        return [(text[:length], found[length]) for length in sorted(found, reverse=True)]

    def put_states(self, slot: Slot, states: Series[State]) -> None:
        """Let an idle slot hold the first state, and keep the others.

        Raises:
            SurefootError: the model does not take it. The slot holds what it held.
        """
        before = self._own_state(slot)
        try:
            self._load(slot, *states[0])
        except SurefootError:
            for text, parts in before:
                self._load(slot, text, parts)
            raise
        for text, parts in states[1:]:
            if not self._tiers.held(text, None):
                self._tiers.put(text, parts)

    def _own_state(self, slot: Slot) -> list[State]:
        """What an idle slot holds; empty if that is nothing, or can't be saved as it stands."""
        sequence, length = slot.memory.forkable
        if not 0 < length <= len(slot.held):
            return []
        parts = self._tiers.saved(slot.memory.id, sequence)
        return [] if parts is None else [(as_tokens(slot.held[:length]), parts)]

    def _load(self, slot: Slot, text: Tokens, parts: Parts) -> None:
        slot.memory.clear()
        slot.adopt([])
        self._tiers.bring_saved(parts, slot.memory.id, text)
        slot.memory.restored(len(text))
        slot.adopt(text.tolist())

    # All of it

    def clear(self) -> None:
        """Forget all states but the files, and free what they took."""
        self._tiers.clear()

    def close(self) -> None:
        """Write to disk, if there is a folder, what would be lost otherwise."""
        self._tiers.save_all()
        self.clear()
        self._runtime.make_room = None

    def describe(self) -> dict[str, Any]:
        """Budgets, bytes used and entries by tier, and what was reused; for people and metrics."""
        disk = self._tiers.disk
        return {
            "tiers": self._tiers.describe(),
            "checkpoint_every": self.settings.every,
            "fork_bytes": self._runtime.fork_bytes,
            "most_forks": self._runtime.checkpoints,
            "disk_problem": (disk.problem or None) if disk else None,
            "hits": dict(self.hits),
            "reused_tokens": dict(self.tokens),
            "misses": self.misses,
        }
