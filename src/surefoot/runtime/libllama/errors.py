"""Errors of this runtime that no protocol names."""

from surefoot.decoding import SurefootError


class RuntimeClosedError(SurefootError):
    """A model was used after it had been closed."""

    def __init__(self) -> None:
        super().__init__("this model has been closed; load it again to use it")
