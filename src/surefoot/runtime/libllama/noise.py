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

    The constants lie a little above the largest differences to width 1 that were measured on the
    trained hybrid (docs, "width classes"): CPU, 192 positions: Q8_0 0.22, f16 0.39, Q4_K_M 2.2; on
    a GPU through Vulkan, 384 positions: Q8_0 1.6. Memory layout adds up to 2e-3 on f32 files, less
    than width does elsewhere. Medians lie far lower (0.01 to 0.4), so the rule calls more choices
    near ties than really are; it must not call fewer.

    They are not bounds. On word salad, where experts switch, and with other prompts in the same
    pass, the Q8_0 hybrid was seen to differ by up to 1.8 and random-weight f32 files by up to 0.37.

    They are constants and not measured at load because a maximum needs hundreds of passes of one
    token to be worth something, which for a large model on a CPU is a minute, and because a few
    dozen made-up tokens say little about it: the tail comes from experts that switch.

    Args:
        file_type: libllama's file type, which may carry the mark that it is guessed.
        on_gpu: whether layers run on a GPU.
    """
    return _MOST if on_gpu else _ON_CPU.get(file_type & ~binding.FTYPE_GUESSED, _MOST)
