"""What to load and how: the options of a model and its context."""

import os
from dataclasses import dataclass
from pathlib import Path

from surefoot.decoding import InvalidParameterError
from surefoot.runtime.libllama import binding

SHORTEST_CONTEXT = 16
"""With fewer tokens, snapshots not counted, there is no room even for the probe."""

_MOST_THREADS = 4 * (os.cpu_count() or 16)
"""GGML_MAX_N_THREADS; with more of them the process dies."""

_MOST_SNAPSHOTS = 16
_SMALLEST_BATCH = 2 * _MOST_SNAPSHOTS
"""libllama aborts if a graph run can't hold the tokens that have snapshots, and one more."""

_NAMES = {
    "cache_type_k": binding.CACHE_TYPES,
    "cache_type_v": binding.CACHE_TYPES,
    "flash_attention": binding.FLASH_ATTENTION,
    "load_mode": binding.LOAD_MODES,
}


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """Options of `load`. Names in brackets are llama-server's, where it has the option.

    Attributes:
        path: the GGUF file; of a file in several parts, the first.
        context_length: tokens of context for each slot; 0 for as many as the model was trained
            with, None for the same but at most 4096. (-c, which there counts all slots together)
        slots: how many sequences can be live at once. (-np)
        longest_draft: most draft tokens that a sequence has in one pass; sizes the outputs.
        batch_size: most tokens in one pass. (-b)
        micro_batch_size: most tokens in one graph run, and never more than in one pass. (-ub)
        threads: CPU threads; None for one on each physical core that we may use. (-t)
        threads_batch: CPU threads for passes of several tokens; None for as many as else. (-tb)
        gpu_layers: layers to put on a GPU; None for all, if there is one. (-ngl)
        cache_type_k: number type of attention's keys, a name in `binding.CACHE_TYPES`. (-ctk)
        cache_type_v: of its values; a quantized one needs flash attention. (-ctv)
        flash_attention: "on", "off", or "auto" for wherever the device can. (-fa)
        load_mode: how weights get into memory, a name in `binding.LOAD_MODES`. (-lm)
        chat_template: Jinja2 source that stands in for the file's; None for the file's own.
        snapshots: recurrent states kept for rolling back short drafts, for models that can. They
            make every pass a little dearer.
        mtp: whether to load the model's own multi-token-prediction heads, too, if it has any; see
            `open_head`.
        all_outputs: whether a pass may ask for logits of every token; costs memory, good for
            tests and measurements.
        logit_noise: tolerance of the near-tie rule; None for a default by type of weights.

    Raises:
        InvalidParameterError: a value is outside its range.
    """

    path: str | os.PathLike[str]
    context_length: int | None = None
    slots: int = 1
    longest_draft: int = 64
    batch_size: int = 2048
    micro_batch_size: int = 512
    threads: int | None = None
    threads_batch: int | None = None
    gpu_layers: int | None = None
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attention: str = "auto"
    load_mode: str = "auto"
    chat_template: str | None = None
    snapshots: int = 0
    mtp: bool = False
    all_outputs: bool = False
    logit_noise: float | None = None

    def __post_init__(self) -> None:
        """Check the ranges; libllama would abort the process over some of them."""
        length = self.context_length
        if length and length < SHORTEST_CONTEXT + self.snapshots:
            raise InvalidParameterError(
                "context_length",
                f"must be 0 (the model's own) or at least {SHORTEST_CONTEXT + self.snapshots} "
                f"tokens, not {length}",
            )
        most_slots = binding.llama_max_parallel_sequences() // 2
        if not 1 <= self.slots <= most_slots:
            raise InvalidParameterError("slots", f"must lie between 1 and {most_slots}")
        if self.longest_draft < 0:
            raise InvalidParameterError("longest_draft", "must be 0 or more")
        for name in ("batch_size", "micro_batch_size"):
            if getattr(self, name) < _SMALLEST_BATCH:
                raise InvalidParameterError(name, f"must be at least {_SMALLEST_BATCH} tokens")
        if not 0 <= self.snapshots <= _MOST_SNAPSHOTS:
            raise InvalidParameterError("snapshots", f"must lie between 0 and {_MOST_SNAPSHOTS}")
        for name in ("threads", "threads_batch"):
            count = getattr(self, name)
            if count is not None and not 1 <= count <= _MOST_THREADS:
                raise InvalidParameterError(name, f"must lie between 1 and {_MOST_THREADS}")
        for name, known in _NAMES.items():
            if getattr(self, name) not in known:
                raise InvalidParameterError(name, f"must be one of {', '.join(known)}")
        if self.flash_attention == "off" and self.cache_type_v not in binding.UNQUANTIZED:
            raise InvalidParameterError(
                "cache_type_v", f"{self.cache_type_v} needs flash attention, and that is off"
            )
        if self.logit_noise is not None and not 0 <= self.logit_noise < float("inf"):
            raise InvalidParameterError("logit_noise", "must be a finite number, 0 or more")

    @property
    def file(self) -> Path:
        """The path, as a `Path`."""
        try:
            return Path(self.path).expanduser()
        except RuntimeError:  # ~ and a user whom this machine does not know
            return Path(self.path)

    @property
    def sequences(self) -> int:
        """Live sequences and as many spares."""
        return 2 * self.slots

    @property
    def cache_types(self) -> frozenset[str]:
        """The number types that attention's keys and values are kept in."""
        return frozenset({self.cache_type_k, self.cache_type_v})

    @property
    def on_gpu(self) -> bool:
        """Whether layers and their memory go to a GPU."""
        return self.gpu_layers != 0 and binding.llama_supports_gpu_offload()
