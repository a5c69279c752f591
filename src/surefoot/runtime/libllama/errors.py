"""Errors of this runtime that no protocol names."""

from surefoot.decoding import SurefootError


class RuntimeClosedError(SurefootError):
    """A model was used after it had been closed."""

    def __init__(self) -> None:
        super().__init__("this model has been closed; load it again to use it")


class TokenizingError(SurefootError):
    """libllama could not turn a text into tokens, or a token into its text."""


class UnstableLogitsError(SurefootError):
    """A model's logits differ from one time to the next, whatever the width of its passes.

    Args:
        name: the model's.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the same tokens of {name} don't give the same logits twice on this device, in passes "
            "of any width, so there is no strict decoding here. Fewer layers on the GPU (-ngl), or "
            "none, may help."
        )
