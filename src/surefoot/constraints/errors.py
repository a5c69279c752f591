"""What is wrong with a grammar."""

from surefoot.decoding import InvalidParameterError


class GrammarError(InvalidParameterError):
    """A grammar or schema is none, or can't be honoured; the text says where."""
