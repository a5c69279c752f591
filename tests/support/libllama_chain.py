"""libllama's own samplers, chained as llama-server chains them, to compare distributions with.

The last sampler of that chain, which draws, is left out. With mirostat drawing is part of
truncating, so that a step tells which token was drawn.
"""

import ctypes
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import numpy as np
from llama_cpp import llama_cpp as lib
from numpy.typing import NDArray

from surefoot.decoding import Sampling

FOR_EVER = 1 << 17
"""libllama takes no -1 for a window over all of the text."""


class LibllamaChain:
    """A chain for some parameters; use as a context manager.

    Args:
        sampling: the parameters. XTC's probability must be 0 or 1: its chance is not ours.
        size: how many tokens the vocabulary has.
        vocabulary: libllama's handle of one, which only DRY's sequence breakers need.
    """

    def __init__(self, sampling: Sampling, size: int, vocabulary: int | None = None) -> None:
        assert sampling.xtc_probability in (0, 1)
        self._size = size
        self._sampling = sampling
        self._vocabulary = vocabulary
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        for sampler in self._samplers():
            lib.llama_sampler_chain_add(self._chain, sampler)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        lib.llama_sampler_free(self._chain)

    def accept(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            lib.llama_sampler_accept(self._chain, token)

    def apply(self, logits: NDArray[np.float32]) -> tuple[NDArray[np.float64], int]:
        """Probabilities of all tokens, and the token that mirostat has drawn; -1 without it."""
        data = (lib.llama_token_data * self._size)()
        entries = np.ctypeslib.as_array(data)
        entries["id"], entries["logit"] = np.arange(self._size), logits
        array = lib.llama_token_data_array(data=data, size=self._size, selected=-1, sorted=False)
        lib.llama_sampler_apply(self._chain, ctypes.byref(array))
        left = np.ctypeslib.as_array(array.data, (array.size,))
        values = left["logit"].astype(np.float64)
        weights = np.exp(values - values.max())
        probabilities = np.zeros(self._size)
        probabilities[left["id"]] = weights / weights.sum()
        drawn = -1 if array.selected < 0 else int(left["id"][array.selected])
        return probabilities, drawn

    def _samplers(self) -> Iterable[Any]:
        """As common_sampler_init has them, in llama.cpp's common/sampling.cpp."""
        sampling = self._sampling
        if sampling.logit_bias:
            count = len(sampling.logit_bias)
            biases = (lib.llama_logit_bias * count)(*sampling.logit_bias)
            yield lib.llama_sampler_init_logit_bias(self._size, count, biases)
        if sampling.mirostat:
            yield lib.llama_sampler_init_temp(sampling.temperature)
            yield self._mirostat()
            return
        for name in sampling.samplers:
            yield self._named(name)

    def _mirostat(self) -> Any:
        tau, eta = self._sampling.mirostat_tau, self._sampling.mirostat_eta
        if self._sampling.mirostat == 1:
            return lib.llama_sampler_init_mirostat(self._size, 1, tau, eta, 100)
        return lib.llama_sampler_init_mirostat_v2(1, tau, eta)

    def _named(self, name: str) -> Any:
        s = self._sampling
        match name:
            case "penalties":
                return lib.llama_sampler_init_penalties(
                    self._size,
                    _window(s.repeat_last_n),
                    s.repeat_penalty,
                    s.frequency_penalty,
                    s.presence_penalty,
                )
            case "dry":
                texts = [text.encode() for text in s.dry_sequence_breakers if self._vocabulary]
                return lib.llama_sampler_init_dry(
                    self._vocabulary,
                    s.dry_multiplier,
                    s.dry_base,
                    s.dry_allowed_length,
                    _window(s.dry_penalty_last_n),
                    (ctypes.c_char_p * len(texts))(*texts),
                    len(texts),
                )
            case "top_n_sigma":
                return lib.llama_sampler_init_top_n_sigma(s.top_n_sigma)
            case "top_k":
                return lib.llama_sampler_init_top_k(s.top_k)
            case "typ_p":
                return lib.llama_sampler_init_typical(s.typical_p, s.min_keep)
            case "top_p":
                return lib.llama_sampler_init_top_p(s.top_p, s.min_keep)
            case "min_p":
                return lib.llama_sampler_init_min_p(s.min_p, s.min_keep)
            case "xtc":
                return lib.llama_sampler_init_xtc(s.xtc_probability, s.xtc_threshold, s.min_keep, 1)
            case "temperature":
                return lib.llama_sampler_init_temp_ext(
                    s.temperature, s.dynatemp_range, s.dynatemp_exponent
                )
        raise AssertionError(name)


def _window(count: int) -> int:
    return FOR_EVER if count < 0 else count
