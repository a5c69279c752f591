"""Measurements of width classes, kept in small files per model and device."""

import hashlib
import json
import logging
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from surefoot.decoding import Widths
from surefoot.runtime.libllama import binding
from surefoot.runtime.libllama.settings import LoadSettings
from surefoot.runtime.libllama.width_report import WidthReport

_FORMAT = 2
_LOG = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Where the files lie: $XDG_CACHE_HOME or ~/.cache, and there in surefoot/widths."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "surefoot" / "widths"


def key_of(settings: LoadSettings, vocabulary_size: int) -> str:
    """What a measurement holds for: this file, this library, this device.

    How drafts are made is not in it (heads, snapshots): the class must be the same for all.

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
        binding.llama_print_system_info().decode(errors="replace"),
        binding.llama_supports_gpu_offload(),
        settings.gpu_layers,
        settings.micro_batch_size,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def look_up(key: str) -> WidthReport | None:
    """A measurement that was kept; None if there is none that can be read."""
    try:
        data = json.loads((cache_folder() / f"{key}.json").read_text())
        return _report(data)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        _LOG.debug("no width classes kept for %s: %s", key, error)
        return None


def _report(data: dict[str, Any]) -> WidthReport:
    classes = tuple(Widths(tuple(widths["allowed"])) for widths in data.pop("classes"))
    widths = Widths(tuple(data.pop("widths")["allowed"]))
    if widths not in classes:
        raise ValueError("the class chosen is none of those found")
    noise = tuple((int(width), float(value)) for width, value in data.pop("noise_by_width"))
    report = WidthReport(widths=widths, classes=classes, noise_by_width=noise, **data)
    if not all(0 <= value < float("inf") for _, value in noise):
        raise ValueError("a noise that is none")
    return report


def keep(key: str, report: WidthReport) -> None:
    """Keep a measurement. That it can't be kept is no error: it is made again next time."""
    try:
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".tmp", delete=False) as file:
            json.dump(asdict(report), file)
        Path(file.name).replace(folder / f"{key}.json")
    except (OSError, RuntimeError) as error:
        _LOG.debug("width classes can't be kept: %s", error)
