"""Options that keep slots in files."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from surefoot.decoding import InvalidParameterError
from surefoot.engine import Engine
from surefoot.engine.slot_actions import restore_all, save_all


def add_slot_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("slots in files")
    group.add_argument(
        "--slot-save-path",
        type=Path,
        metavar="DIR",
        help="let POST /slots/{id}?action=save|restore write and read files in this folder",
    )
    group.add_argument(
        "--resume",
        action="store_true",
        help="save all slots there when the server ends, and restore them when it starts",
    )


def slot_folder(options: argparse.Namespace) -> Path | None:
    """The folder; None if there is none.

    Raises:
        InvalidParameterError: it is no folder, or --resume has none.
    """
    given: Path | None = options.slot_save_path
    if given is None:
        if options.resume:
            raise InvalidParameterError("--resume", "needs a folder (--slot-save-path)")
        return None
    folder = given.expanduser().absolute()
    if not folder.is_dir():
        raise InvalidParameterError("--slot-save-path", f"{given} is no folder; make it first")
    return folder


@contextmanager
def resumed(engine: Engine, options: argparse.Namespace) -> Iterator[None]:
    """Slots as they were saved last, if that is wanted; saved again at the end of the context."""
    folder = slot_folder(options) if options.resume else None
    if folder is None:
        yield
        return
    restore_all(engine, folder)
    try:
        yield
    finally:
        save_all(engine, folder)
