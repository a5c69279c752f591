"""The idea: sequences whose memory may lag behind what is committed, and rounds that play on them.

Pure Python and numpy. Nothing here knows llama.cpp, HTTP, or any other part of surefoot.
"""

from surefoot.decoding.counts import Counts
from surefoot.decoding.draft import NO_DRAFT, Draft, Drafter
from surefoot.decoding.ending import Ending, Finish
from surefoot.decoding.errors import (
    DecodeError,
    InvalidParameterError,
    RollbackRefusedError,
    SurefootError,
)
from surefoot.decoding.memory import Memory, memory_for
from surefoot.decoding.prefill import absorb
from surefoot.decoding.round import MAX_PENDING, Outcome, Round
from surefoot.decoding.sampling import GREEDY, Choice, Sampling, choose
from surefoot.decoding.sequence import Sequence
from surefoot.decoding.target import Feed, Rollback, RollbackKind, Target
from surefoot.decoding.transcript import Transcript
from surefoot.decoding.verification import Verdict, verify

__all__ = [
    "GREEDY",
    "MAX_PENDING",
    "NO_DRAFT",
    "Choice",
    "Counts",
    "DecodeError",
    "Draft",
    "Drafter",
    "Ending",
    "Feed",
    "Finish",
    "InvalidParameterError",
    "Memory",
    "Outcome",
    "Rollback",
    "RollbackKind",
    "RollbackRefusedError",
    "Round",
    "Sampling",
    "Sequence",
    "SurefootError",
    "Target",
    "Transcript",
    "Verdict",
    "absorb",
    "choose",
    "memory_for",
    "verify",
]
