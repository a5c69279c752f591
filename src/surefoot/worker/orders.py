"""Orders for slots that a worker has not answered yet."""

import itertools
import threading
from concurrent.futures import Future

from surefoot.engine import SlotDone, SlotError, SlotOrder
from surefoot.worker.messages import DidSlot, DoSlot
from surefoot.worker.outbox import Outbox

_NO_WORKER = "the worker has died and is started again; try again in a moment"


class Orders:
    """Keeps who waits for what, by numbers; its methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._open: dict[int, Future[SlotDone]] = {}

    def place(self, order: SlotOrder, outbox: Outbox | None) -> Future[SlotDone]:
        """Send an order.

        Args:
            order: what is to be done.
            outbox: to the worker; None if there is none just now.

        Raises:
            SlotError: there is no worker.
        """
        if outbox is None:
            raise SlotError("busy", _NO_WORKER)
        answer: Future[SlotDone] = Future()
        with self._lock:
            number = next(self._numbers)
            self._open[number] = answer
        outbox.put(DoSlot(number, order))
        return answer

    def answer(self, did: DidSlot) -> None:
        """Tell who waits what came of an order."""
        with self._lock:
            answer = self._open.pop(did.id)
        if did.done is None:
            answer.set_exception(SlotError(did.problem, did.text))
        else:
            answer.set_result(did.done)

    def give_up(self) -> None:
        """Tell all who wait that the worker is gone."""
        with self._lock:
            answers, self._open = list(self._open.values()), {}
        for answer in answers:
            answer.set_exception(SlotError("busy", _NO_WORKER))
