"""Sending messages to a worker without ever waiting for it."""

import threading
from collections import deque

from surefoot.worker.channel import Channel, ChannelClosedError
from surefoot.worker.messages import Message


class Outbox:
    """Sends messages in a thread of its own, lest a worker that is behind hold up its callers.

    Args:
        channel: to the worker.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._messages: deque[Message] = deque()
        self._change = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._send, name="surefoot-outbox", daemon=True)
        self._thread.start()

    def put(self, message: Message) -> None:
        """Have a message sent."""
        with self._change:
            self._messages.append(message)
            self._change.notify()

    def close(self) -> None:
        """End the thread; what has not been sent is not."""
        with self._change:
            self._closed = True
            self._change.notify()
        self._thread.join()

    def _send(self) -> None:
        while True:
            with self._change:
                while not self._messages and not self._closed:
                    self._change.wait()
                if self._closed:
                    return
                message = self._messages.popleft()
            try:
                self._channel.send(message)
            except ChannelClosedError:
                return  # who listens to the channel notices, too
