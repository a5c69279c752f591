"""The idea: sequences whose memory may lag behind what is committed, and rounds that play on them.

Pure Python and numpy. Nothing here knows llama.cpp, HTTP, or any other part of surefoot.
"""

from surefoot.decoding.counts import Counts, DrafterCounts
from surefoot.decoding.draft import NO_DRAFT, Draft, Drafter
from surefoot.decoding.ending import Ending, Finish
from surefoot.decoding.errors import (
    DecodeError,
    InvalidParameterError,
    RollbackRefusedError,
    SurefootError,
)
from surefoot.decoding.head import Head, HeadFeed, HeadOutput, Rows, RowWatcher
from surefoot.decoding.memory import Memory, memory_for
from surefoot.decoding.prefill import absorb
from surefoot.decoding.round import MAX_PENDING, Outcome, Round
from surefoot.decoding.sampling import GREEDY, Choice, Sampling, choose
from surefoot.decoding.sequence import DraftWishes, Sequence
from surefoot.decoding.synthetic import SyntheticAcceptance, check_rates, rates_for_length
from surefoot.decoding.target import Feed, Rollback, RollbackKind, Target
from surefoot.decoding.transcript import Transcript
from surefoot.decoding.verification import Verdict, Verifier, by_equality, verify

__all__ = [
    "GREEDY",
    "MAX_PENDING",
    "NO_DRAFT",
    "Choice",
    "Counts",
    "DecodeError",
    "Draft",
    "DraftWishes",
    "Drafter",
    "DrafterCounts",
    "Ending",
    "Feed",
    "Finish",
    "Head",
    "HeadFeed",
    "HeadOutput",
    "InvalidParameterError",
    "Memory",
    "Outcome",
    "Rollback",
    "RollbackKind",
    "RollbackRefusedError",
    "Round",
    "RowWatcher",
    "Rows",
    "Sampling",
    "Sequence",
    "SurefootError",
    "SyntheticAcceptance",
    "Target",
    "Transcript",
    "Verdict",
    "Verifier",
    "absorb",
    "by_equality",
    "check_rates",
    "choose",
    "memory_for",
    "rates_for_length",
    "verify",
]
