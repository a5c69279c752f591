"""The `Runtime` protocol: a decoding target together with its tokenizer and what it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from surefoot.decoding import SurefootError, Target, Widths


class ModelLoadError(SurefootError):
    """A model or its context could not be set up; the text says why and what to do."""


class StateError(SurefootError):
    """A sequence's state could not be saved, or could not be put back; the text says why."""


class TokenizerMissingError(SurefootError):
    """The model file carries no usable tokenizer, so only token ids can be fed."""


class Tokenizer(Protocol):
    """Text to tokens and back, by the model file's own vocabulary."""

    @property
    def end_of_generation(self) -> frozenset[int]:
        """Tokens with which the model ends its turn."""

    def encode(self, text: str, *, special: bool = True, add_special: bool = False) -> list[int]:
        """Tokenize a text.

        Args:
            text: any text.
            special: whether special tokens written out in the text are taken as such.
            add_special: whether to add what the model wants around a text (BOS, for example).

        Raises:
            TokenizerMissingError: the model file has no tokenizer.
        """

    def piece(self, token: int) -> bytes:
        """A token's text as bytes, which may be part of a character; empty for control tokens."""

    def text_of(self, token: int) -> str:
        """A special token's text as it is written in prompts; empty if there is no such token."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model is.

    Attributes:
        name: the model's own name, else the file's.
        architecture: GGUF architecture, such as qwen35moe.
        description: libllama's one-line description.
        parameters: number of weights.
        size: bytes of the weights.
        training_context: context length that the model was trained for, in tokens.
        chat_template: Jinja2 source from the file; None if there is none.
        bos_text: text of the BOS token, for chat templates; empty if there is none.
        eos_text: text of the EOS token, likewise.
        memory: the memory's kind in words, such as "hybrid" or "attention".
    """

    name: str
    architecture: str
    description: str
    parameters: int
    size: int
    training_context: int
    chat_template: str | None
    bos_text: str
    eos_text: str
    memory: str


class Runtime(Target, Protocol):
    """A loaded model with memory for `slots` live sequences, ids 0 to slots - 1.

    As many spare ids follow, slots to 2 * slots - 1, for forks, and behind those the ids of forks
    that are kept: 2 * slots to 2 * slots + checkpoints - 1.

    Attributes:
        make_room: called when a pass finds no free cells; whether it has freed some, so that the
            pass is tried again. None if nobody can.
    """

    make_room: Callable[[], bool] | None

    @property
    def checkpoints(self) -> int:
        """How many forks can be kept, beside those of the slots."""

    @property
    def forgets(self) -> bool:
        """Whether memory can't go back to any length that it had, so that forks are needed."""

    @property
    def fork_bytes(self) -> int:
        """Bytes that each kept fork takes, whatever its length."""

    @property
    def cell_bytes(self) -> int:
        """Bytes that it takes for each token that it doesn't share."""

    @property
    def identity(self) -> str:
        """What saved states hold for: they fit where this is the same."""

    def state_size(self, sequence: int) -> int:
        """Bytes that `save_state` will give."""

    def save_state(self, sequence: int) -> bytes:
        """All that a sequence's memory holds.

        Raises:
            StateError: it can't be told as it stands.
        """

    def load_state(self, sequence: int, state: bytes) -> None:
        """Put a saved state back, bit for bit, in place of what a sequence holds.

        Raises:
            StateError: it is not one of this model's, or there is no room. The sequence is empty.
        """

    @property
    def info(self) -> ModelInfo:
        """What the model is."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""

    @property
    def slots(self) -> int:
        """How many live sequences there is memory for."""

    @property
    def context_length(self) -> int:
        """Tokens of context for each live sequence."""

    @property
    def batch_size(self) -> int:
        """Most tokens in one forward pass."""

    @property
    def micro_batch_size(self) -> int:
        """Most tokens in one graph run."""

    @property
    def most_outputs(self) -> int:
        """Most tokens with logits in one forward pass."""

    @property
    def passes(self) -> int:
        """Forward passes so far: calls of `decode` that ran."""

    @property
    def graph_runs(self) -> int:
        """Graph runs so far; a pass over sequences of unequal width may need several."""

    def graph_runs_of(self, widths: Mapping[int, int]) -> int:
        """How many graph runs a pass would take.

        Args:
            widths: tokens of each sequence in it, by sequence id; at least one sequence.
        """

    @property
    def shift_refusal(self) -> str:
        """Why tokens can't be taken out of the middle of a sequence, in words; empty if they can.

        Found out by trying it, where nothing else speaks against it.
        """

    def shift(self, sequence: int, keep: int, discard: int) -> bool:
        """Forget tokens in the middle of a sequence, and move those behind down to their positions.

        Args:
            sequence: its id; `shift_refusal` is empty.
            keep: how many tokens stay in front of them.
            discard: how many are forgotten.

        Returns:
            False, and nothing changed, if the sequence shares cells with another one, whose
            positions would move, too.
        """

    def sibling(self, widths: Widths | None = None) -> "Runtime":
        """Another runtime with the same weights, and memory of its own for one live sequence.

        Args:
            widths: the widths to which its passes are held; None for any.

        Raises:
            ModelLoadError: there is no memory for it.
        """

    def close(self) -> None:
        """Free the model and its memory. Further calls are errors; closing twice is not."""
