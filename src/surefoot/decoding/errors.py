"""The root of surefoot's errors, and those of decoding itself.

Every error that a user can cause derives from `SurefootError`, and its text says what was asked,
what is wrong and what to do. Folders further up define their own below the same root.
"""


class SurefootError(Exception):
    """Root of all errors that surefoot raises on purpose."""


class InvalidParameterError(SurefootError, ValueError):
    """A request parameter lies outside its range.

    Args:
        name: the parameter's name as the user wrote it.
        problem: what is wrong with the value and which values are allowed.
    """

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


class RollbackRefusedError(SurefootError):
    """The model's memory did not go back to a length that it was expected to reach."""


class NoTokenError(SurefootError):
    """A request's own bias and bans, together with its rules, leave no token to choose."""


class DecodeError(SurefootError):
    """A forward pass failed, or returned logits that are not finite.

    The memory of every sequence in that pass must be taken as unknown; what is committed stands.
    """
