"""Measurements of width classes, kept in small files per model and device.

A file that can't be read, or is not what it should be, is as good as none: it is measured again.
"""

import hashlib
import json
import logging
import math
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from surefoot.decoding import Widths
from surefoot.runtime.libllama import binding
from surefoot.runtime.libllama.settings import LoadSettings
from surefoot.runtime.libllama.threads import default_threads
from surefoot.runtime.libllama.width_report import WIDEST, WidthReport

_FORMAT = 3
_LOG = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Where the files lie: $XDG_CACHE_HOME or ~/.cache, and there in surefoot/widths."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "surefoot" / "widths"


def key_of(settings: LoadSettings, vocabulary_size: int) -> str:
    """What a measurement holds for: this file, this build of libllama, this device.

    How drafts are made is not in it (heads, snapshots): the class must be the same for all, and
    neither moves a bit. The number of threads is: they share out the attention of a token by
    itself, so that its logits change with it. So are the kind of attention and the types of its
    keys and values.

    Args:
        settings: how the model was loaded.
        vocabulary_size: of the model.
    """
    status = settings.file.stat()
    facts = [
        _FORMAT,
        str(settings.file.resolve()),
        status.st_size,
        status.st_mtime_ns,
        vocabulary_size,
        binding.build_and_devices(),
        binding.llama_supports_gpu_offload(),
        settings.gpu_layers,
        settings.micro_batch_size,
        settings.threads or default_threads(),
        settings.threads_batch,
        settings.cache_type_k,
        settings.cache_type_v,
        settings.flash_attention,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def look_up(key: str) -> WidthReport | None:
    """A measurement that was kept; None if there is none that can be read."""
    try:
        data = json.loads((cache_folder() / f"{key}.json").read_text())
        return _report(data, key)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        _LOG.debug("no width classes kept for %s: %s", key, error)
        return None


def keep(key: str, report: WidthReport) -> None:
    """Keep a measurement. That it can't be kept is no error: it is made again next time."""
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, suffix=".tmp")
        part = Path(name)
        try:
            with os.fdopen(handle, "w") as file:
                json.dump({"key": key} | asdict(report), file)
            part.replace(folder / f"{key}.json")
        finally:
            part.unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:
        _LOG.debug("width classes can't be kept: %s", error)


def _report(data: Any, key: str) -> WidthReport:
    """What a file says.

    Raises:
        KeyError: something is missing.
        TypeError: something is of another kind than it should be.
        ValueError: something can't be.
    """
    if data["key"] != key:
        raise ValueError("measured for something else")
    widths, classes = _widths(data["widths"]), tuple(map(_widths, data["classes"]))
    if widths not in classes:
        raise ValueError("the class chosen is none of those found")
    return WidthReport(
        widths=widths,
        classes=classes,
        noise_by_width=_by_width(data["noise_by_width"]),
        median_by_width=_by_width(data["median_by_width"]),
        median_noise=_amount(data["median_noise"]),
        flips=_count(data["flips"]),
        positions=_count(data["positions"]),
        plain_cost=_amount(data["plain_cost"]),
        prefill_cost=_amount(data["prefill_cost"]),
        seconds=_amount(data["seconds"]),
    )


def _widths(data: Any) -> Widths:
    widths = Widths(tuple(map(_count, data["allowed"])))
    if widths.most > WIDEST:
        raise ValueError("wider than what is tried")
    return widths


def _by_width(data: Any) -> tuple[tuple[int, float], ...]:
    found = tuple((_count(width), _amount(value)) for width, value in data)
    if list(found) != sorted(found):
        raise ValueError("widths out of order")
    return found


def _count(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    if value < 0:
        raise ValueError(f"{value} is negative")
    return value


def _amount(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"{value!r} is no number")
    if not 0 <= value < math.inf:
        raise ValueError(f"{value} is no amount")
    return float(value)
