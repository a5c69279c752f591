"""Incident records: what a request asked and what each round did, kept so that it can be run again.

One file for a request, one JSON object a line: a header with everything that decides about the
text, then a line for each round, each chunk of the prompt and each event, and a line at the end.
docs/incidents.md describes the format.
"""

from surefoot.engine.records.format import (
    FORMAT,
    VERSION,
    Record,
    RecordedRound,
    RecordError,
)
from surefoot.engine.records.identity import file_identity
from surefoot.engine.records.reading import read_record
from surefoot.engine.records.recorder import Recorder
from surefoot.engine.records.replaying import Comparison, Difference, RecordedDrafter, replay

__all__ = [
    "FORMAT",
    "VERSION",
    "Comparison",
    "Difference",
    "Record",
    "RecordError",
    "RecordedDrafter",
    "RecordedRound",
    "Recorder",
    "file_identity",
    "read_record",
    "replay",
]
