"""The socket that the server listens on, bound early so that a port in use is told at once."""

import errno
import os
import socket

from surefoot.decoding import SurefootError

BACKLOG = 2048
HIGHEST_PORT = 65535


class ListenError(SurefootError):
    """The server can't listen where it was told to."""


def bind(host: str, port: int) -> socket.socket:
    """A socket bound to an address; it is not listening yet.

    Args:
        host: a name or an address, IPv4 or IPv6.
        port: 0 picks a free one.

    Raises:
        ListenError: the address is in use, not allowed, or not this machine's.
    """
    if not 0 <= port <= HIGHEST_PORT:  # getaddrinfo would take what is left modulo 65,536
        raise ListenError(f"can't listen on {host}:{port}: ports go from 0 to {HIGHEST_PORT}")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ListenError(f"can't listen on {host}:{port}: {_words(error)}") from error
    # A name such as localhost may have both kinds of address; more clients try IPv4.
    family, kind, protocol, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ListenError(f"can't listen on {host}:{port}: {_words(error)}") from error
    return listener


def listen(listener: socket.socket) -> None:
    """Begin to listen.

    Raises:
        ListenError: another process was quicker.
    """
    try:
        listener.listen(BACKLOG)
    except OSError as error:
        raise ListenError(f"can't listen on {url(listener)}: {_words(error)}") from error


def url(listener: socket.socket) -> str:
    """Where a client on this machine finds the server."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _words(error: Exception) -> str:
    match error:
        case OSError(errno=errno.EADDRINUSE):
            return "the port is in use; end the program that uses it or choose another --port"
        case OSError(errno=errno.EACCES):
            return "that takes more rights; choose a --port of 1024 or more"
        case OSError(errno=errno.EADDRNOTAVAIL):
            return "this machine has no such address; choose another --host"
        case OSError(strerror=str(text)):
            return text
        case _:
            return str(error)
