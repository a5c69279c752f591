"""`--record`: a record of each request, with what is needed to run it again."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from surefoot import __version__
from surefoot.drafting.settings import SpeculationSettings
from surefoot.engine import Engine
from surefoot.engine.records import Recorder, file_identity
from surefoot.runtime.libllama import LoadSettings


def add_record_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument_group("records").add_argument(
        "--record",
        type=Path,
        metavar="DIR",
        help="write a record of each request into this folder, prompt included; surefoot replay "
        "runs it again",
    )


@contextmanager
def recorded(
    engine: Engine,
    options: argparse.Namespace,
    settings: LoadSettings,
    speculation: SpeculationSettings,
) -> Iterator[None]:
    """Have an engine's requests recorded until the end of the context, if that is wanted.

    Raises:
        RecordError: the folder can't be used.
    """
    folder: Path | None = getattr(options, "record", None)
    if folder is None:
        yield
        return
    with closing(Recorder(folder.expanduser(), _facts(engine, settings, speculation))) as recorder:
        engine.observe(recorder)
        yield


def _facts(
    engine: Engine, settings: LoadSettings, speculation: SpeculationSettings
) -> dict[str, Any]:
    runtime = engine.runtime
    draft = speculation.draft_model
    return {
        "surefoot": __version__,
        "llama_cpp": _version("llama-cpp-python"),
        "platform": sys.platform,
        "model": file_identity(settings.file),
        "model_name": runtime.info.name,
        "draft_model": None if draft is None else file_identity(Path(draft).expanduser()),
        "drafter": None if engine.drafter is None else engine.drafter.name,
        "max_draft": engine.max_draft,
        "slots": runtime.slots,
        "context_length": runtime.context_length,
        "batch_size": runtime.batch_size,
        "micro_batch_size": runtime.micro_batch_size,
        "threads": settings.threads,
        "rollback": runtime.rollback.kind,
        "logit_noise": runtime.logit_noise,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
