"""How far a logit may move without meaning anything, where nobody has measured it."""

from collections.abc import Iterable

from surefoot.runtime.libllama import binding

_ON_CPU = {
    binding.FTYPE_F32: 0.05,
    binding.FTYPE_F16: 0.4,
    binding.FTYPE_BF16: 0.4,
    binding.FTYPE_Q8_0: 0.5,
}
_BY_CACHE_TYPE = {"f32": 0.0, "f16": 0.0, "bf16": 0.4, "q8_0": 0.5}
_MOST = 2.5


def default_logit_noise(file_type: int, *, on_gpu: bool, cache_types: Iterable[str] = ()) -> float:
    """The near-tie rule's tolerance by the type of a model's weights.

    They are no bounds. At 2,857 different places of texts that the trained hybrid wrote on a CPU,
    in Q8_0, half of the rows moved by 0.15 or more between width 1 and wider passes, one in a
    hundred by 0.6 and one by 2.5, where experts switch; at 2,804 in Q4_K_M by 0.4, 1.6 and 4.1.
    What they must cover are choices that change, and those take far less: 0.25 covers all in Q8_0,
    0.35 all in Q4_K_M. Nothing like that was counted for f16 and f32 or on a GPU (Vulkan: 1.6 at
    384 places in Q8_0), so the constants for these lie above the largest differences seen. Keys and
    values in q8_0 changed nothing (128 places, median 0.12 as against 0.16), in q4_0 0.25.
    `measure_widths` finds a tolerance for the model and device at hand.

    Args:
        file_type: libllama's file type, which may carry the mark that it is guessed.
        on_gpu: whether layers run on a GPU.
        cache_types: number types of keys and values, if they are not f16.
    """
    if on_gpu:
        return _MOST
    of_weights = _ON_CPU.get(file_type & ~binding.FTYPE_GUESSED, _MOST)
    return max(of_weights, *(_BY_CACHE_TYPE.get(name, _MOST) for name in cache_types), 0)
