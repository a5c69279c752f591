"""Command-line options that several subcommands share, under llama-server's names."""

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from surefoot.commands.sampling_options import OPTION_NAMES, sampling_of
from surefoot.decoding import InvalidParameterError, Sampling

_NAMES = {
    **OPTION_NAMES,
    "context_length": "ctx-size",
    "flash_attention": "flash-attn",
    "micro_batch_size": "ubatch-size",
    "slots": "parallel",
}
"""Options whose parameter is called something else."""


@contextmanager
def as_options() -> Iterator[None]:
    """Give parameters that are outside their range the names of the options they came from."""
    try:
        yield
    except InvalidParameterError as error:
        name = _NAMES.get(error.name, error.name)
        raise InvalidParameterError(f"--{name.replace('_', '-')}", error.problem) from None


def read_text(option: str, path: Path) -> str:
    """What a file holds that an option names.

    Raises:
        InvalidParameterError: it can't be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidParameterError(option, f"{path} can't be read: {reason}") from error


def sampling(options: argparse.Namespace) -> Sampling:
    """The sampling parameters that the options ask for.

    Raises:
        InvalidParameterError: a value is outside its range.
    """
    with as_options():
        return sampling_of(options)


def add_logging_arguments(parser: argparse.ArgumentParser, verbose_help: str) -> None:
    """Add -v."""
    parser.add_argument("-v", "--verbose", action="count", default=0, help=verbose_help)


def set_up_logging(options: argparse.Namespace) -> None:
    """Warnings by default; from the -v on that asks for it more, and with another libllama's log.

    A subcommand whose first -v means something else sets `log_from` to 2.
    """
    asked = options.verbose - getattr(options, "log_from", 1) + 1
    level = {0: logging.WARNING, 1: logging.INFO}.get(max(asked, 0), logging.DEBUG)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=level)
    logging.getLogger("surefoot.requests").setLevel(min(level, logging.INFO))
    if level > logging.DEBUG:
        logging.getLogger("surefoot.libllama").setLevel(logging.CRITICAL)
        for name in ("asyncio", "httpx", "httpcore"):
            logging.getLogger(name).setLevel(logging.WARNING)
