"""Requests, slots and the loop that plays rounds for them.

What a request wants comes in as tokens and parameters; what goes out are deltas of text. Model
execution lives in `runtime`, the rule of decoding in `decoding`, HTTP in `server`.
"""

from surefoot.engine.engine import Engine
from surefoot.engine.generation import Delta, Entry, Generation, GenerationState
from surefoot.engine.health import STALL_SECONDS, Health, StalledSlot
from surefoot.engine.lane import Lane, LaneOpener, LaneParts
from surefoot.engine.observing import Observer
from surefoot.engine.queue import QueueFullError, QueueSettings
from surefoot.engine.request import Exactness, PromptTooLongError, Request
from surefoot.engine.self_check import Agreement
from surefoot.engine.summary import Summary
from surefoot.engine.text import Span
from surefoot.engine.thread import EngineStoppedError, EngineThread
from surefoot.engine.watchdog import PATIENCE

__all__ = [
    "PATIENCE",
    "STALL_SECONDS",
    "Agreement",
    "Delta",
    "Engine",
    "EngineStoppedError",
    "EngineThread",
    "Entry",
    "Exactness",
    "Generation",
    "GenerationState",
    "Health",
    "Lane",
    "LaneOpener",
    "LaneParts",
    "Observer",
    "PromptTooLongError",
    "QueueFullError",
    "QueueSettings",
    "Request",
    "Span",
    "StalledSlot",
    "Summary",
]
