"""The embedded models: a small trained hybrid and a draft model with the same tokenizer.

They are Apache-2.0, made by `tools/train`, and good for trying surefoot out and for tests.
"""

from importlib.resources import files
from pathlib import Path

TARGET = Path(str(files(__name__).joinpath("tiny-35moe-mtp-Q8_0.gguf")))
"""The default model: 23 million parameters, gated delta net and attention, one MTP head."""

DRAFT = Path(str(files(__name__).joinpath("tiny-draft-Q8_0.gguf")))
"""A dense draft model of 3 million parameters with the same vocabulary."""
