"""Reading records, with errors in words for files that are none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from surefoot.decoding import InvalidParameterError
from surefoot.engine.records.format import (
    FORMAT,
    VERSION,
    Record,
    RecordedRound,
    RecordError,
    request_of,
)


def read_record(path: Path) -> Record:
    """Read a record. One that breaks off, because its writer did, is good up to there.

    Raises:
        RecordError: it can't be read, is no record, is damaged, or is of a newer version.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"can't read {path}: {error.strerror}") from error
    lines = data.split(b"\n")
    broken_off = lines.pop() != b""
    header = _parsed(lines[0]) if lines else None
    if header is None or header.get("format") != FORMAT:
        raise RecordError(f"{path} is no record of surefoot's (--record writes them)")
    if header.get("version") != VERSION:
        raise RecordError(
            f"{path} has version {header.get('version')} of the format, and this surefoot reads "
            f"version {VERSION}; read it with the surefoot that wrote it"
        )

    def damaged(number: int, problem: str) -> RecordError:
        return RecordError(f"{path} is damaged: line {number} {problem}")

    try:
        request = request_of(header["request"])
        begun = [int(token) for token in header["begun"]]
        facts = dict(header["facts"])
    except (KeyError, TypeError, ValueError, AttributeError, InvalidParameterError) as error:
        raise damaged(1, f"describes no request ({error})") from error
    record = Record(facts, request, begun)
    end = _read_lines(lines[1:], record, damaged)
    if end is not None and broken_off:
        raise damaged(len(lines) + 1, "comes after the end")
    return Record(facts, request, begun, record.rounds, record.events, end)


def _read_lines(
    lines: list[bytes], record: Record, damaged: Callable[[int, str], RecordError]
) -> dict[str, Any] | None:
    """Add rounds and events to a record; returns how it ended."""
    end: dict[str, Any] | None = None
    position = len(record.request.prompt) + len(record.begun)
    whole = True
    for number, text in enumerate(lines, 2):
        line = _parsed(text)
        if line is None:
            raise damaged(number, "is no JSON object")
        if end is not None:
            raise damaged(number, "comes after the end")
        if "round" in line:
            played = _round(line["round"])
            if played is None:
                raise damaged(number, "describes no round")
            if played.at != position or not whole:
                raise damaged(number, f"begins at position {played.at} and not at {position}")
            position += len(played.tokens)
            record.rounds.append(played)
        elif "end" in line:
            end = line["end"]
            if not isinstance(end, dict):
                raise damaged(number, "describes no end")
        elif "event" in line:
            record.events.append(line)
            whole = whole and line["event"] != "truncated"
        elif "absorbed" not in line:
            raise damaged(number, "is of no known kind")
    return end


def _parsed(text: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _round(given: Any) -> RecordedRound | None:
    try:
        played = RecordedRound(**given)
        numbers = [*played.draft, *played.tokens, *played.near_ties]
        numbers += [played.at, played.pending, played.fillers, played.accepted]
        good = all(isinstance(number, int) for number in numbers)
        good = good and all(len(part) == 3 for part in played.shape) and len(played.gaps) >= 0
    except TypeError:
        return None
    return played if good else None
