"""Kept states in three tiers, and how they move down: device, the computer's memory, disk."""

import logging
from collections.abc import Mapping
from typing import Any

from surefoot.decoding import SurefootError
from surefoot.drafting.keeping import KeepsStates
from surefoot.engine.cache.disk import DiskTier
from surefoot.engine.cache.packing import TARGET
from surefoot.engine.cache.settings import CacheSettings
from surefoot.engine.cache.store import Entry, Store
from surefoot.engine.cache.tokens import Tokens
from surefoot.engine.reuse import Origin
from surefoot.runtime.base import Runtime

log = logging.getLogger(__name__)

Parts = dict[str, bytes]
"""A state as bytes: the target's, and those of drafters by their names."""


class Tiers:
    """Keeps states of one runtime, and of the drafters that go with it.

    Args:
        runtime: whose states they are.
        keepers: drafters that have states, too.
        settings: the budgets.

    Attributes:
        device: forks, by their ids.
        host: states in the computer's memory.
        disk: states in files; None if there is no folder for them.
    """

    def __init__(
        self, runtime: Runtime, keepers: list[KeepsStates], settings: CacheSettings
    ) -> None:
        self._runtime = runtime
        self._keepers = keepers
        first = 2 * runtime.slots
        self._ids = list(range(first, first + runtime.checkpoints))
        self.device: Store[int] = Store(settings.device if self._ids else 0, runtime.cell_bytes)
        self.host: Store[Parts] = Store(settings.ram)
        self.disk: DiskTier | None = None
        if settings.disk and settings.folder is not None:
            self.disk = DiskTier(settings.folder, settings.disk, runtime.identity)

    @property
    def on(self) -> bool:
        """Whether there is a tier at all."""
        return bool(self.device.budget or self.host.budget or self.disk is not None)

    @property
    def stores(self) -> dict[Origin, Store[Any]]:
        """The tiers' entries, from the quickest to restore to the slowest."""
        stores: dict[Origin, Store[Any]] = {"device": self.device, "host": self.host}
        if self.disk is not None:
            stores["disk"] = self.disk.store
        return stores

    def held(self, text: Tokens, owner: object | None) -> bool:
        """Whether the state of exactly that text is there."""
        return (
            self.device.held(text, owner) is not None
            or self.host.held(text, owner) is not None
            or (self.disk is not None and self.disk.store.held(text) is not None)
        )

    def touch(self, text: Tokens) -> None:
        """Take note that a text is in use."""
        self.device.touch(text)
        self.host.touch(text)
        if self.disk is not None:
            self.disk.refresh()
            self.disk.store.touch(text)

    # In

    def keep(self, slot: int, sequence: int, text: Tokens, owner: object | None) -> bool:
        """Keep what a sequence holds, on the device if that is possible.

        Args:
            slot: the target's id of the slot's own sequence, by which drafters know it.
            sequence: its id, or that of the slot's spare.
            text: the tokens that it has absorbed, all of them.
            owner: whose work it is, if that may still fail.

        Returns:
            Whether it is kept. If not, nothing has changed but that others may have moved down.
        """
        return self._fork(slot, sequence, text, owner) or self._put(slot, sequence, text, owner)

    def _fork(self, slot: int, sequence: int, text: Tokens, owner: object | None) -> bool:
        device, size = self.device, self._runtime.fork_bytes
        if device.cost(text, size) > device.budget or not device.budget:
            return False
        while not self._ids or device.used_bytes + device.cost(text, size) > device.budget:
            victim = device.victim()
            if victim is None:
                return False
            self._move_down(victim)
        copy = self._ids.pop()
        try:
            self._runtime.fork(sequence, copy, 0, len(text))
        except SurefootError as error:
            log.debug("no checkpoint at token %d: %s", len(text), error)
            self._runtime.drop(copy)
            self._ids.append(copy)
            return False
        for keeper in self._keepers:
            keeper.keep(slot, copy, len(text))
        device.add(text, copy, size, owner)
        return True

    def _put(self, slot: int, sequence: int, text: Tokens, owner: object | None) -> bool:
        """Save a sequence's state to the first tier below the device that has room for it."""
        size = self._runtime.state_size(sequence)
        to_disk = self.disk is not None and not self.disk.problem and owner is None
        if size > self.host.budget and not to_disk:
            return False
        parts = self.saved(slot, sequence)
        return parts is not None and self.put(text, parts, owner)

    def saved(self, slot: int, sequence: int) -> Parts | None:
        """What a sequence holds as bytes, with the drafters' part; None if it can't be told.

        Args:
            slot: the target's id by which drafters know it.
            sequence: the target's id of the sequence.
        """
        try:
            parts = {TARGET: self._runtime.save_state(sequence)}
        except SurefootError as error:
            log.debug("the state of sequence %d is not saved: %s", sequence, error)
            return None
        return parts | {keeper.name: keeper.save(slot) for keeper in self._keepers}

    def put(self, text: Tokens, parts: Parts, owner: object | None = None) -> bool:
        """Keep a saved state in the computer's memory, or else on disk; whether it is kept."""
        host = self.host
        size = sum(len(part) for part in parts.values()) + text.nbytes
        if size > host.budget:
            return owner is None and self.disk is not None and self.disk.put(text, parts)
        if host.held(text, owner) is None:
            host.add(text, parts, size, owner)
        while host.full and (victim := host.victim()) is not None:
            host.remove(victim)
            if self.disk is not None and victim.owner is None:
                self.disk.put(victim.tokens, victim.payload)
        return True

    # Out

    def bring_fork(self, known: int, source: int, sequence: int, text: Tokens) -> None:
        """Let a slot's empty sequence share what another sequence holds.

        Args:
            known: the target's id by which drafters know the source.
            source: id of a slot's sequence, of its spare, or of a kept fork.
            sequence: the slot's.
            text: all that the source holds.

        Raises:
            SurefootError: it can't be shared as it stands.
        """
        self._runtime.fork(source, sequence, 0, len(text))
        for keeper in self._keepers:
            keeper.keep(known, sequence, len(text))

    def bring_saved(self, parts: Mapping[str, bytes], sequence: int, text: Tokens) -> None:
        """Put a saved state back into a slot's sequence.

        Raises:
            SurefootError: it is not taken, although all forks have made room for it.
        """
        try:
            self._runtime.load_state(sequence, parts[TARGET])
        except SurefootError:
            if not self.make_room():
                raise
            while self.make_room():
                pass
            self._runtime.load_state(sequence, parts[TARGET])
        for keeper in self._keepers:
            keeper.load(sequence, text.tolist(), parts.get(keeper.name, b""))

    # Away

    def make_room(self) -> bool:
        """Free cells on the device: the fork that was of no use for longest moves down.

        Returns:
            Whether there was one.
        """
        stalest = min(self.device, key=lambda e: (e.used, -len(e.tokens)), default=None)
        if stalest is None:
            return False
        self._move_down(stalest)
        return True

    def publish(self, owner: object) -> None:
        """Somebody's work has succeeded: what it left may be given away."""
        for fork in self.device.of(owner):
            fork.owner = None
        for saved in self.host.of(owner):
            saved.owner = None

    def discard(self, owner: object) -> None:
        """Somebody's work was cancelled or has failed: what it left goes."""
        for fork in self.device.of(owner):
            self._free(fork)
        for saved in self.host.of(owner):
            self.host.remove(saved)

    def supersede(self, text: Tokens) -> None:
        """Drop states that the text goes beyond, for memory that can be cut back to them."""
        for fork in self.device.superseded(text):
            self._free(fork)
        for saved in self.host.superseded(text):
            self.host.remove(saved)

    def clear(self) -> None:
        """Drop everything but the files."""
        for fork in self.device:
            self._free(fork)
        for saved in self.host:
            self.host.remove(saved)

    def save_all(self) -> None:
        """Write to disk what lies above it, the least useful first, so that the rest stays."""
        if self.disk is None:
            return
        while (fork := self.device.victim()) is not None:
            self._move_down(fork)
        while (saved := self.host.victim()) is not None:
            self.host.remove(saved)
            if saved.owner is None:
                self.disk.put(saved.tokens, saved.payload)

    def _move_down(self, fork: Entry[int]) -> None:
        if not self.host.held(fork.tokens, fork.owner):
            self._put(fork.payload, fork.payload, fork.tokens, fork.owner)
        self._free(fork)

    def _free(self, fork: Entry[int]) -> None:
        self.device.remove(fork)
        self._runtime.drop(fork.payload)
        self._ids.append(fork.payload)

    def describe(self) -> dict[str, Any]:
        """Budgets, bytes used and entries, by tier."""
        return {
            name: {"budget": store.budget, "bytes": store.used_bytes, "entries": store.count}
            for name, store in self.stores.items()
        }
