"""A gate in front of a simulated runtime's passes, so that tests decide when each one runs."""

import threading


class Gate:
    """Lets passes through one by one; to be given to a runtime as its `decode_seconds`.

    It decides before the pass: while the gate holds the engine, that pass has not run.
    """

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._permits = 0
        self._open = False
        self._arrived = 0

    def __call__(self, tokens: int) -> float:  # noqa: ARG002
        with self._change:
            self._arrived += 1
            self._change.notify_all()
            self._change.wait_for(lambda: self._open or self._permits > 0)
            self._permits -= 1
        return 0.0

    def let(self, passes: int) -> None:
        """Let so many passes run, and wait until the engine stands before the one after them."""
        with self._change:
            self._change.wait_for(lambda: self._arrived > 0, timeout=20)
            awaited = self._arrived + passes
            self._permits += passes
            self._change.notify_all()
            assert self._change.wait_for(lambda: self._arrived >= awaited, timeout=20)

    def let_last(self, passes: int = 1) -> None:
        """Let so many passes run, after which the engine may have nothing to do."""
        with self._change:
            self._permits += passes
            self._change.notify_all()

    def open(self) -> None:
        """Let all passes run from now on."""
        with self._change:
            self._open = True
            self._change.notify_all()
