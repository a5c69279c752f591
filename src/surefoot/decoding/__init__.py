"""The idea: sequences whose memory may lag behind what is committed, and rounds that play on them.

Pure Python and numpy. Nothing here knows llama.cpp, HTTP, or any other part of surefoot.
"""

from surefoot.decoding.control import Control, ControlError, TokenMask
from surefoot.decoding.counts import Counts, DrafterCounts
from surefoot.decoding.draft import NO_DRAFT, Draft, Drafter
from surefoot.decoding.ending import Ending, Finish
from surefoot.decoding.errors import (
    DecodeError,
    InvalidParameterError,
    NoTokenError,
    RollbackRefusedError,
    SurefootError,
)
from surefoot.decoding.head import Head, HeadFeed, HeadOutput, KeepingHead, Rows, RowWatcher
from surefoot.decoding.memory import Memory, memory_for
from surefoot.decoding.observing import Observe, Played
from surefoot.decoding.prefill import absorb, absorb_together
from surefoot.decoding.rejection import drawn
from surefoot.decoding.round import MAX_PENDING, Outcome, Round
from surefoot.decoding.sampling import (
    COLDEST,
    DEFAULT_SAMPLERS,
    GREEDY,
    NO_BREAKERS,
    SAMPLER_LETTERS,
    Breakers,
    Choice,
    Chooser,
    Distribution,
    Sampling,
    choose,
    distribution_of,
)
from surefoot.decoding.scores import Scores, ScoreWish, raw_scores
from surefoot.decoding.sequence import DraftWishes, RuleName, Sequence
from surefoot.decoding.synthetic import SyntheticAcceptance, check_rates, rates_for_length
from surefoot.decoding.target import Feed, Rollback, RollbackKind, Target
from surefoot.decoding.transcript import Transcript
from surefoot.decoding.verification import Judgement, Rule, coupled
from surefoot.decoding.widths import Widths

__all__ = [
    "COLDEST",
    "DEFAULT_SAMPLERS",
    "GREEDY",
    "MAX_PENDING",
    "NO_BREAKERS",
    "NO_DRAFT",
    "SAMPLER_LETTERS",
    "Breakers",
    "Choice",
    "Chooser",
    "Control",
    "ControlError",
    "Counts",
    "DecodeError",
    "Distribution",
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
    "Judgement",
    "KeepingHead",
    "Memory",
    "NoTokenError",
    "Observe",
    "Outcome",
    "Played",
    "Rollback",
    "RollbackKind",
    "RollbackRefusedError",
    "Round",
    "RowWatcher",
    "Rows",
    "Rule",
    "RuleName",
    "Sampling",
    "ScoreWish",
    "Scores",
    "Sequence",
    "SurefootError",
    "SyntheticAcceptance",
    "Target",
    "TokenMask",
    "Transcript",
    "Widths",
    "absorb",
    "absorb_together",
    "check_rates",
    "choose",
    "coupled",
    "distribution_of",
    "drawn",
    "memory_for",
    "rates_for_length",
    "raw_scores",
]
