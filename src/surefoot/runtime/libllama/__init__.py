"""The runtime over libllama: every GGUF family, on whatever device llama.cpp was built for.

`load` is the way in. Nothing outside this folder touches the library.
"""

from surefoot.runtime.libllama.errors import RuntimeClosedError
from surefoot.runtime.libllama.loading import load
from surefoot.runtime.libllama.runtime import LibllamaRuntime
from surefoot.runtime.libllama.settings import LoadSettings

__all__ = ["LibllamaRuntime", "LoadSettings", "RuntimeClosedError", "load"]
