"""The prompt cache: states of texts that were absorbed once, kept to go on from.

A state is kept in one of three tiers: on the device as a fork of the model's memory, in the
computer's memory, or in a folder on disk. What is evicted from one goes on to the next.
"""

from surefoot.engine.cache.cache import PromptCache
from surefoot.engine.cache.packing import StateFileError, pack, unpack
from surefoot.engine.cache.settings import CacheSettings, bytes_of, in_bytes

__all__ = [
    "CacheSettings",
    "PromptCache",
    "StateFileError",
    "bytes_of",
    "in_bytes",
    "pack",
    "unpack",
]
