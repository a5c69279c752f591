"""The embedded model with other weights, made from its file by libllama."""

import ctypes
from pathlib import Path

import llama_cpp

from surefoot import models


def four_bits(folder: Path) -> Path:
    """The embedded model in Q4_K_M, whose kernels change with nearly every width."""
    path = folder / "tiny-q4.gguf"
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M
    parameters.allow_requantize = True
    parameters.nthread = 1
    source, target = str(models.TARGET).encode(), str(path).encode()
    assert llama_cpp.llama_model_quantize(source, target, ctypes.byref(parameters)) == 0
    return path
