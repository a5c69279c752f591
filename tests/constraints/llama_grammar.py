"""libllama's own reading of a GBNF grammar, to compare with."""

import ctypes

import llama_cpp
import numpy as np


class LlamaGrammar:
    """libllama's grammar sampler.

    Args:
        vocabulary: libllama's handle.
        size: how many tokens there are.
        source: the grammar.

    Raises:
        ValueError: libllama refuses it.
    """

    def __init__(self, vocabulary: int, size: int, source: str) -> None:
        handle = llama_cpp.llama_sampler_init_grammar(vocabulary, source.encode(), b"root")
        if not handle:
            raise ValueError("libllama refuses the grammar")
        self._handle = handle
        self._size = size
        self._tokens = (llama_cpp.llama_token_data * size)()

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            llama_cpp.llama_sampler_free(self._handle)

    def allowed(self) -> set[int]:
        """The tokens that may come next, an end token among them if the text may end."""
        kind = [("id", np.int32), ("logit", np.float32), ("p", np.float32)]
        view = np.frombuffer(self._tokens, dtype=kind)
        view["id"], view["logit"] = np.arange(self._size), 0
        array = llama_cpp.llama_token_data_array(self._tokens, self._size, -1, False)
        llama_cpp.llama_sampler_apply(self._handle, ctypes.byref(array))
        return set(np.flatnonzero(np.isfinite(view["logit"])).tolist())

    def accept(self, token: int) -> None:
        """Take a token that is allowed."""
        llama_cpp.llama_sampler_accept(self._handle, token)
