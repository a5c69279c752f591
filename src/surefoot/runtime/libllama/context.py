"""Memory for sequences: how much is asked of libllama, and the asking."""

from dataclasses import dataclass

from surefoot.runtime.base import ModelLoadError
from surefoot.runtime.libllama import binding, log
from surefoot.runtime.libllama.model import Model
from surefoot.runtime.libllama.settings import SHORTEST_CONTEXT, LoadSettings
from surefoot.runtime.libllama.threads import default_threads

_DEFAULT_CONTEXT = 4096
_MOST_CELLS = 1 << 31


@dataclass(frozen=True, slots=True)
class ContextPlan:
    """The sizes of a context.

    Attributes:
        context_length: tokens of context for each slot.
        room: most tokens that a sequence can have for a moment: a draft may reach past the end.
        cells: cells of attention memory, one for a token; forks share them.
        outputs: most tokens with logits in one pass.
        sequences: how many sequence ids there are, the kept forks' included.
        checkpoints: how many forks can be kept beside those of the slots.
        fork_bytes: what each of them takes, whatever its length.
        cell_bytes: what a cell takes.
    """

    context_length: int
    room: int
    cells: int
    outputs: int
    sequences: int
    checkpoints: int = 0
    fork_bytes: int = 0
    cell_bytes: int = 0

    @classmethod
    def of(cls, settings: LoadSettings, training_context: int) -> "ContextPlan":
        """Work out the sizes.

        Raises:
            ModelLoadError: more cells than libllama can count.
        """
        length = settings.context_length
        if length is None:
            length = min(training_context or _DEFAULT_CONTEXT, _DEFAULT_CONTEXT)
        length = max(length or training_context, SHORTEST_CONTEXT + settings.snapshots)
        room = length + settings.longest_draft + 1
        cells = settings.slots * room
        if cells >= _MOST_CELLS:
            raise ModelLoadError(
                f"can't make a context of {length} tokens for each of {settings.slots} slots: "
                f"libllama counts to {_MOST_CELLS} tokens. Ask for a smaller context (-c)."
            )
        sequences = 2 * settings.slots
        outputs = max(settings.slots * (settings.longest_draft + 1), sequences)
        if settings.all_outputs:
            outputs = settings.batch_size
        return cls(length, room, cells, outputs, sequences)


def context_parameters(
    settings: LoadSettings, plan: ContextPlan, model: Model
) -> binding.Structure:
    """What to ask libllama for."""
    parameters = binding.llama_context_default_params()
    threads = settings.threads or default_threads()
    parameters.n_ctx = plan.cells
    parameters.n_batch = settings.batch_size
    parameters.n_ubatch = settings.micro_batch_size
    parameters.n_threads = threads
    parameters.n_threads_batch = settings.threads_batch or threads
    parameters.type_k = binding.CACHE_TYPES[settings.cache_type_k]
    parameters.type_v = binding.CACHE_TYPES[settings.cache_type_v]
    parameters.flash_attn_type = binding.FLASH_ATTENTION[settings.flash_attention]
    # Range copies, which make forks cheap, need all sequences in one cache.
    parameters.kv_unified = True
    parameters.n_seq_max = plan.sequences
    parameters.n_rs_seq = settings.snapshots
    # libllama aborts if a pass has more outputs, or if there are fewer of them than sequences.
    parameters.n_outputs_max = plan.outputs
    parameters.n_outputs_max_per_seq = plan.outputs
    # A windowed cache frees a cell when its only owner has moved on. Cells shared with a spare
    # that follows have two, so the cache would fill up; a full-size one has room for all of them.
    parameters.swa_full = model.is_hybrid and model.window > 0
    return parameters


def open_context(model: Model, parameters: binding.Structure) -> int:
    """Create a context and return libllama's handle of it.

    Raises:
        ModelLoadError: libllama can't create it.
    """
    with log.captured() as lines:
        context = binding.llama_init_from_model(model.handle, parameters)
    if not context:
        raise ModelLoadError(
            f"can't make a context for {model.info.name}: {log.reason(lines)}. If it is memory "
            "that is short, ask for a smaller context (-c), fewer slots (-np), a smaller prompt "
            "cache (--cache-device) or fewer layers on the GPU (-ngl)."
        )
    try:
        memory = binding.llama_get_memory(context)
    except BaseException:
        binding.llama_free(context)
        raise
    if not memory:
        binding.llama_free(context)
        raise ModelLoadError(
            f"can't run {model.info.name}: a model of architecture {model.info.architecture} keeps "
            "no memory of a text, so it can't go on writing one. Use a text generation model."
        )
    return context
