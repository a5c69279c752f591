"""What keeps requests from being served, found out before they are queued."""

from collections.abc import Callable
from collections.abc import Sequence as Series

from surefoot.constraints import Controls
from surefoot.decoding import InvalidParameterError
from surefoot.engine.context_shift import check_shift
from surefoot.engine.request import PromptTooLongError, Request


def check_requests(
    requests: Series[Request],
    *,
    slots: int,
    vocabulary_size: int,
    context_length: int,
    no_strict: str | None,
    no_shift: str,
    controls: Callable[[], Controls],
) -> None:
    """Check requests that are to begin together.

    Args:
        requests: the requests.
        slots: how many there are.
        vocabulary_size: how many token ids there are.
        context_length: tokens of context for each.
        no_strict: why strict decoding can't be done, in words; None if it can.
        no_shift: why a context can't be shifted, in words; empty if it can.
        controls: gives what checks grammars.

    Raises:
        PromptTooLongError: a prompt leaves no room for an answer.
        GrammarError: a grammar is none.
        InvalidParameterError: they ask for something that can't be done here.
    """
    if len(requests) > slots:
        raise InvalidParameterError(
            "n",
            f"must be at most {slots}, the number of slots, and is {len(requests)}; start with "
            "more (-np)",
        )
    for request in requests:
        if len(request.prompt) >= context_length:
            raise PromptTooLongError(len(request.prompt), context_length)
        if request.slot is not None and not 0 <= request.slot < slots:
            raise InvalidParameterError(
                "id_slot", f"must be -1 (any) or a slot from 0 to {slots - 1}, not {request.slot}"
            )
        if request.slot is not None and len(requests) > 1:
            raise InvalidParameterError("id_slot", "can't be used for several texts (n, best_of)")
        request.sampling.check_tokens(vocabulary_size)
        if request.context_shift:
            check_shift("context_shift", no_shift)
        if request.exact == "strict" and no_strict is not None:
            raise InvalidParameterError("exact", no_strict)
        if request.control is not None:
            controls().check(request.control)
