"""Options of the prompt cache."""

import argparse
from pathlib import Path

from surefoot.engine.cache import CacheSettings, bytes_of, in_bytes
from surefoot.engine.cache.settings import EVERY

_DEVICE = 512 << 20
_RAM = 2 << 30


def add_cache_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("prompt cache (sizes such as 512M or 2G; 0 is off)")
    group.add_argument(
        "--cache-device",
        type=_size,
        default=_DEVICE,
        metavar="SIZE",
        help="states kept in the model's own memory, beside the slots (default: 512M)",
    )
    group.add_argument(
        "--cache-ram",
        type=_size,
        default=_RAM,
        metavar="SIZE",
        help="states kept in the computer's memory (default: 2G)",
    )
    group.add_argument(
        "--cache-disk",
        type=_size,
        default=0,
        metavar="SIZE",
        help="states kept on disk, in --cache-folder (default: 0)",
    )
    group.add_argument(
        "--cache-folder",
        type=Path,
        metavar="DIR",
        help="where states on disk lie; several servers may share it",
    )
    group.add_argument(
        "--checkpoint-every",
        type=int,
        default=EVERY,
        metavar="N",
        help="tokens between two kept states of a long text, for memory that can't be cut "
        "(default: %(default)s)",
    )


def _size(text: str) -> int:
    try:
        size = bytes_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if 0 < size < 1 << 20:  # llama-server's --cache-ram counts in MiB
        raise argparse.ArgumentTypeError(f"{text} is too small for a state; {text}M are MiB")
    return size


def cache_settings(options: argparse.Namespace) -> CacheSettings:
    """What the options say; no cache for commands that don't have them.

    Raises:
        InvalidParameterError: a value is outside its range, or a folder is missing.
    """
    if not hasattr(options, "cache_device"):
        return CacheSettings()
    folder = options.cache_folder
    return CacheSettings(
        device=options.cache_device,
        ram=options.cache_ram,
        disk=options.cache_disk,
        folder=None if folder is None else folder.expanduser(),
        every=options.checkpoint_every,
    )


def cache_line(facts: dict[str, object], settings: CacheSettings) -> str:
    """What is kept where, for the lines at start.

    Args:
        facts: from `PromptCache.describe`.
        settings: the budgets.
    """
    forks = facts["most_forks"]
    device = f"{in_bytes(settings.device)} on the device (at most {forks} forks)"
    if not forks:
        device = "no forks on the device"
    parts = [device, f"{in_bytes(settings.ram)} of memory" if settings.ram else "no memory"]
    if settings.disk:
        problem = facts["disk_problem"]
        parts.append(
            f"the disk tier is off ({problem})"
            if problem
            else f"{in_bytes(settings.disk)} on disk in {settings.folder}"
        )
    return ", ".join(parts)
