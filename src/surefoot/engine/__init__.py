"""Requests, slots and the loop that plays rounds for them.

What a request wants comes in as tokens and parameters; what goes out are deltas of text. Model
execution lives in `runtime`, the rule of decoding in `decoding`, HTTP in `server`.
"""

from surefoot.engine.engine import Engine
from surefoot.engine.generation import Generation
from surefoot.engine.handle import EngineHandle, Facts, Figures, Listener, SlotFacts, Status
from surefoot.engine.health import STALL_SECONDS, Health, StalledSlot
from surefoot.engine.journal import Delta, Entry, GenerationState, Journal, Progress
from surefoot.engine.lane import Lane, LaneOpener, LaneParts
from surefoot.engine.observing import Observer
from surefoot.engine.queue import QueueFullError, QueueSettings
from surefoot.engine.request import Exactness, PromptTooLongError, Request, Resumed
from surefoot.engine.self_check import Agreement
from surefoot.engine.slot_actions import SlotDone, SlotError, SlotOrder
from surefoot.engine.summary import Summary
from surefoot.engine.text import Span
from surefoot.engine.thread import SHUTTING_DOWN, EngineStoppedError, EngineThread
from surefoot.engine.watchdog import PATIENCE

__all__ = [
    "PATIENCE",
    "SHUTTING_DOWN",
    "STALL_SECONDS",
    "Agreement",
    "Delta",
    "Engine",
    "EngineHandle",
    "EngineStoppedError",
    "EngineThread",
    "Entry",
    "Exactness",
    "Facts",
    "Figures",
    "Generation",
    "GenerationState",
    "Health",
    "Journal",
    "Lane",
    "LaneOpener",
    "LaneParts",
    "Listener",
    "Observer",
    "Progress",
    "PromptTooLongError",
    "QueueFullError",
    "QueueSettings",
    "Request",
    "Resumed",
    "SlotDone",
    "SlotError",
    "SlotFacts",
    "SlotOrder",
    "Span",
    "StalledSlot",
    "Status",
    "Summary",
]
