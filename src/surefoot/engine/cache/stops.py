"""Where a prefill stops to keep a state: the places to which later requests may well go back."""

from collections.abc import Iterable

_NEAR = 8
"""A state so few tokens behind another is not worth a pass that is cut in two."""


def stops_for(
    end: int, length: int, message_starts: Iterable[int], turn_start: int, every: int
) -> list[int]:
    """Positions, ascending, of which the last is the prompt's end.

    Args:
        end: how many tokens of the prompt a prefill absorbs.
        length: how many of them are absorbed already.
        message_starts: where messages begin. One that follows the last stop too soon is left out.
        turn_start: where the last user's message begins, which is changed most often and behind
            which templates leave out old reasoning; 0 if that is not known.
        every: most tokens between two stops.
    """
    stops: list[int] = []
    last = length

    def go(to: int) -> None:
        nonlocal last
        while to - last > every:
            last += every
            stops.append(last)
        stops.append(to)
        last = to

    for start in sorted({*message_starts, turn_start}):
        apart = _NEAR if start == turn_start else max(_NEAR, every // 16)
        if last + apart <= start < end:
            go(start)
    if last < end:
        go(end)
    return stops
