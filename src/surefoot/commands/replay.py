"""`surefoot replay`: a recorded request once more, and whether it says the same."""

import argparse
import sys
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any

from surefoot.commands import options as shared
from surefoot.commands.lanes import lanes_for
from surefoot.commands.model_options import add_model_arguments, load_settings
from surefoot.commands.parser import CommandParser
from surefoot.decoding import Drafter
from surefoot.engine.records import (
    Comparison,
    Record,
    RecordedDrafter,
    RecordError,
    file_identity,
    read_record,
    replay,
)
from surefoot.runtime.base import Runtime
from surefoot.runtime.libllama import load


def add_parser(subparsers: "argparse._SubParsersAction[CommandParser]") -> None:
    """Add the subcommand's parser."""
    parser = subparsers.add_parser(
        "replay",
        help="run a recorded request again, and compare",
        description="Run a request that serve or run has recorded (--record) once more: plainly, "
        "and with the drafts that were recorded. Exit code 0 if both say the same up to near ties, "
        "1 if not.",
    )
    parser.set_defaults(function=run, command="replay")
    parser.add_argument("record", type=Path, metavar="FILE", help="the record")
    add_model_arguments(parser)
    parser.set_defaults(model=None)  # the one that was recorded
    shared.add_logging_arguments(parser, "log what is done; twice: libllama's log, too")


class _Recorded:
    """Drafts in a strict request's lane as was recorded."""

    def __init__(self, drafter: RecordedDrafter) -> None:
        self._drafter = drafter

    def beside(self, _runtime: Runtime) -> nullcontext[Drafter | None]:
        """The drafter, whatever the lane."""
        return nullcontext(self._drafter)


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; returns the exit code."""
    shared.set_up_logging(options)
    record = read_record(options.record)
    _choose_model(options, record)
    if options.ctx_size is None:
        options.ctx_size = record.facts.get("context_length")
    if options.threads is None:
        options.threads = record.facts.get("threads")
    longest = max((len(played.draft) for played in record.rounds), default=0)
    drafter = RecordedDrafter(record)
    with ExitStack() as stack:
        runtime = stack.enter_context(closing(load(load_settings(options, 1, longest))))
        strict = record.request.exact == "strict"
        drafting = _Recorded(drafter)
        lanes = stack.enter_context(lanes_for(runtime, drafting, measure=strict))
        found = replay(runtime, record, drafter, lanes)
        for line in _told(record, found, runtime):
            print(line)
    return 0 if all(each.verdict != "different" for each in found) else 1


def _choose_model(options: argparse.Namespace, record: Record) -> None:
    """The model of the command line, or else the recorded one; a warning if it is another file.

    Raises:
        RecordError: the record does not name one.
    """
    known: dict[str, Any] = record.facts.get("model") or {}
    if options.model is None:
        if not isinstance(known.get("path"), str):
            raise RecordError("the record names no model file; say which one it was with -m")
        options.model = Path(known["path"])
        if not options.model.exists():
            raise RecordError(
                f"the model was {options.model}, which is not there; say where it is with -m"
            )
    try:
        now = file_identity(options.model)
    except OSError:
        return  # loading it says what is wrong
    if any(now[key] != known.get(key) for key in ("size", "sha256_of_first_mib")):
        print(
            f"surefoot: warning: {options.model} is not the file that was recorded; texts may "
            "differ for that alone",
            file=sys.stderr,
        )


def _told(record: Record, found: list[Comparison], runtime: Runtime) -> list[str]:
    end = record.end or {}
    how = end.get("cause") or end.get("state") or "the record breaks off"
    request = record.request
    lines = [
        f"recorded: {len(request.prompt)} prompt tokens, {len(record.tokens)} generated "
        f"({how}), {len(record.rounds)} rounds, "
        f"{sum(played.accepted for played in record.rounds)} draft tokens accepted, "
        f"{request.exact}",
    ]
    for event in record.events:
        facts = {key: value for key, value in event.items() if key != "event"}
        lines.append(f"event: {event['event']} {facts or ''}".rstrip())
    for each in found:
        line = (
            f"{each.run}: {each.verdict}, {each.rounds} rounds, {each.accepted} draft tokens "
            f"accepted, {each.same_width} of {len(record.rounds)} passes as wide as recorded"
        )
        if (at := each.difference) is not None:
            line += (
                f"; token {at.index} of the answer was {_token(runtime, at.recorded)} (two best "
                f"logits {_gap(at.recorded_gap)} apart) and is {_token(runtime, at.now)} "
                f"({_gap(at.now_gap)} apart)"
            )
        lines.append(line)
    return lines


def _token(runtime: Runtime, token: int | None) -> str:
    if token is None:
        return "the end"
    return f"{token} {runtime.tokenizer.piece(token).decode(errors='replace')!r}"


def _gap(gap: float | None) -> str:
    return "unknown" if gap is None else f"{gap:.3g}"
