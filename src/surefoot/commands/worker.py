"""The worker's process: `python -m surefoot.commands.worker FD serve ...`, started by `serve`.

It loads what serve's options say, and works for whoever holds the other end of the socket FD.
"""

import ctypes
import signal
import socket
import sys
from collections.abc import Sequence as Series

from surefoot.commands import options as shared
from surefoot.commands import serve
from surefoot.commands.parser import CommandParser, OneLineParser
from surefoot.commands.plan import EnginePlan
from surefoot.commands.slot_options import resumed
from surefoot.decoding import InvalidParameterError, SurefootError
from surefoot.engine import QueueSettings
from surefoot.worker import Channel, ChannelClosedError, work
from surefoot.worker.messages import Failed

_PR_SET_PDEATHSIG = 1


def main(arguments: Series[str]) -> int:
    """Work until the other side says stop, or is gone; returns the exit code."""
    descriptor, *rest = arguments
    channel = channel_of(int(descriptor))
    parser = OneLineParser()
    serve.add_parser(parser.add_subparsers(parser_class=CommandParser))
    options = parser.parse_args(rest)
    shared.set_up_logging(options)
    try:
        try:
            queue = QueueSettings(
                timeout=options.queue_timeout
            )  # its length is the server's affair
            with EnginePlan.of(options, options.parallel).open(queue) as engine:
                if options.exact == "strict":
                    engine.check_strict()
                with resumed(engine, options):
                    work(engine, channel)
        except InvalidParameterError as error:
            channel.send(Failed(str(error), error.name))
        except SurefootError as error:
            channel.send(Failed(str(error)))
    except ChannelClosedError:
        return 1
    return 0


def channel_of(descriptor: int) -> Channel:
    """The channel to our parent, and the manners of a worker: signals are the parent's to deal
    with, and nobody outlives it."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    return Channel(connection)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
