"""The prefill plan: which prompts share the next prefill pass, and with how many tokens each.

Pure functions; `player.py` carries it out.
"""

from collections.abc import Sequence as Series


def shares(owed: Series[int], room: int) -> list[int]:
    """Share the tokens of a pass out evenly.

    Short prompts get all that they need, and the others what is left in equal parts; so a long
    prompt never keeps a short one waiting for more than a pass.

    Args:
        owed: tokens that each prompt still has to absorb, those with the first claim first.
        room: tokens of the pass.

    Returns:
        For each prompt its tokens. Only where there are more prompts than room are there prompts
        with none; those are the last ones.
    """
    level, left = 0, room
    for done, tokens in enumerate(sorted(owed)):
        level = min(tokens, left // (len(owed) - done))
        left -= level
        if level < tokens:
            break
    given = [min(tokens, level) for tokens in owed]
    over = room - sum(given)
    for index, tokens in enumerate(owed):  # too few for one more each
        if over and given[index] < tokens:
            given[index] += 1
            over -= 1
    return given


def chunk_room(batch_size: int, micro_batch_size: int, *, beside_rounds: bool) -> int:
    """How many prompt tokens a prefill pass may have.

    Args:
        batch_size: most tokens in a pass.
        micro_batch_size: most tokens in a graph run.
        beside_rounds: whether generations wait for their next round. Each chunk is followed by a
            round for all of them, so a round waits for a graph run's worth of prefill at most.
    """
    return min(batch_size, micro_batch_size) if beside_rounds else batch_size
