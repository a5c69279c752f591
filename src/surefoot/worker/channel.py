"""Messages over a stream socket, each with its length in front."""

import select
import socket
import struct
import threading

from surefoot.decoding import SurefootError
from surefoot.worker.messages import Message, decode, encode

_LENGTH = struct.Struct("<I")
_CHUNK = 1 << 16


class ChannelClosedError(SurefootError):
    """The other side is gone."""


class Channel:
    """One end of a connection. Several threads may send; one at a time may receive.

    Args:
        connection: the socket, which is closed with the channel.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        self._received = bytearray()
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def send(self, message: Message) -> None:
        """Send a message; waits while the other side is behind with reading.

        Raises:
            ChannelClosedError: nobody is there any more.
        """
        data = encode(message)
        try:
            with self._sending:
                self._socket.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise ChannelClosedError("the other side is gone") from error

    def receive(self, patience: float | None = None) -> Message | None:
        """The next message; None if none has come after so many seconds.

        What was sent before the other side went is still received.

        Raises:
            ChannelClosedError: nothing more will come.
        """
        while (message := self._complete()) is None:
            try:
                if not self._poll.poll(None if patience is None else patience * 1000):
                    return None
                data = self._socket.recv(_CHUNK)
            except OSError as error:
                raise ChannelClosedError("the other side is gone") from error
            if not data:
                raise ChannelClosedError("the other side is gone")
            self._received += data
        return message

    def _complete(self) -> Message | None:
        """The first message, if all of it is there."""
        if len(self._received) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
        if len(self._received) < end:
            return None
        message = decode(memoryview(self._received)[_LENGTH.size : end])
        del self._received[:end]
        return message

    def shut(self) -> None:
        """Let neither side send any more; both notice at once."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is shut already

    def close(self) -> None:
        """Close the socket; again does nothing."""
        self._socket.close()
