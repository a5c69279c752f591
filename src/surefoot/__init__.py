"""surefoot: an inference server and library for GGUF models that never loses its footing."""

__version__ = "0.1.0"
