"""What was reused of a prompt, from where, and why not more."""

from dataclasses import dataclass
from typing import Literal

Origin = Literal["", "slot", "device", "host", "disk"]
ORIGINS: tuple[Origin, ...] = ("slot", "device", "host", "disk")


@dataclass(frozen=True, slots=True)
class Reuse:
    """How a request began.

    Attributes:
        tokens: how many tokens of the prompt did not have to be absorbed.
        origin: whose memory they came from: a slot's own or another slot's, a kept fork on the
            device, the computer's memory, or the disk; empty if there are none.
        reason: why there are not more, in words; empty if nothing more was possible.
    """

    tokens: int = 0
    origin: Origin = ""
    reason: str = ""


def reason_for(prompt: int, known: int, reused: int, *, refused: bool) -> str:
    """Why no more of a prompt was reused.

    Args:
        prompt: its length.
        known: how many of its first tokens are those of a text that memory or cache held.
        reused: how many were reused.
        refused: whether a state that was to be reused could not be.
    """
    most = prompt - 1
    if reused >= most:
        return ""
    if refused:
        return "a state that was to be reused could not be restored"
    if known == 0:
        return "no text that is held begins like this prompt"
    if reused >= known:
        return f"no text that is held goes on like this prompt behind token {known}"
    where = (
        f"the history differs at token {known}"
        if known < prompt
        else f"the prompt ends inside the history, at token {prompt}"
    )
    if reused:
        return f"{where}; the nearest checkpoint before it is at {reused}"
    return f"{where}; there is no checkpoint before it"
