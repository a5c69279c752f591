"""Requests, slots and the loop that plays rounds for them.

What a request wants comes in as tokens and parameters; what goes out are deltas of text. Model
execution lives in `runtime`, the rule of decoding in `decoding`, HTTP in `server`.
"""

from surefoot.engine.engine import Engine
from surefoot.engine.generation import Delta, Generation, GenerationState
from surefoot.engine.request import PromptTooLongError, Request
from surefoot.engine.summary import Summary
from surefoot.engine.text import Span
from surefoot.engine.thread import EngineStoppedError, EngineThread

__all__ = [
    "Delta",
    "Engine",
    "EngineStoppedError",
    "EngineThread",
    "Generation",
    "GenerationState",
    "PromptTooLongError",
    "Request",
    "Span",
    "Summary",
]
