"""How far a logit may move without meaning anything, where nobody has measured it."""

from surefoot.runtime.libllama import binding

_ON_CPU = {
    binding.FTYPE_F32: 0.05,
    binding.FTYPE_F16: 0.4,
    binding.FTYPE_BF16: 0.4,
    binding.FTYPE_Q8_0: 0.5,
}
_MOST = 2.5


def default_logit_noise(file_type: int, *, on_gpu: bool) -> float:
    """The near-tie rule's tolerance by the type of a model's weights.

    They are no bounds. At 2,857 different places of texts that the trained hybrid wrote on a CPU,
    in Q8_0, half of the rows moved by 0.15 or more between width 1 and wider passes, one in a
    hundred by 0.6 and one by 2.5, where experts switch; at 2,804 in Q4_K_M by 0.4, 1.6 and 4.1.
    What they must cover are choices that change, and those take far less: 0.25 covers all in Q8_0,
    0.35 all in Q4_K_M. Nothing like that was counted for f16 and f32 or on a GPU (Vulkan: 1.6 at
    384 places in Q8_0), so the constants for these lie above the largest differences seen.
    `measure_widths` finds a tolerance for the model and device at hand.

    Args:
        file_type: libllama's file type, which may carry the mark that it is guessed.
        on_gpu: whether layers run on a GPU.
    """
    return _MOST if on_gpu else _ON_CPU.get(file_type & ~binding.FTYPE_GUESSED, _MOST)
