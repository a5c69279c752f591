"""The runtime over libllama: every GGUF family, on whatever device llama.cpp was built for.

`load` is the way in, and `open_head` the way to a multi-token-prediction head. Nothing outside this
folder touches the library.
"""

from surefoot.runtime.libllama.errors import RuntimeClosedError, UnstableLogitsError
from surefoot.runtime.libllama.head import MtpHead, NoHeadError, open_head
from surefoot.runtime.libllama.head_file import HeadFile
from surefoot.runtime.libllama.loading import load
from surefoot.runtime.libllama.runtime import LibllamaRuntime
from surefoot.runtime.libllama.settings import LoadSettings
from surefoot.runtime.libllama.vocabulary import load_vocabulary
from surefoot.runtime.libllama.width_measurement import known_widths, measure_widths
from surefoot.runtime.libllama.width_report import WidthReport

__all__ = [
    "HeadFile",
    "LibllamaRuntime",
    "LoadSettings",
    "MtpHead",
    "NoHeadError",
    "RuntimeClosedError",
    "UnstableLogitsError",
    "WidthReport",
    "known_widths",
    "load",
    "load_vocabulary",
    "measure_widths",
    "open_head",
]
