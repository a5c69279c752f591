"""A look at the multi-token-prediction heads in a model file, before libllama gets it.

libllama gives up a file, or aborts the process, over a head that the metadata announce and the
file lacks, over an architecture whose heads it has no graph for, and over a file that holds nothing
but a head and is used as a model.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from surefoot.runtime.libllama import binding, log

ONE_HEAD = frozenset(
    {
        "bailingmoe3",
        "cohere2moe",
        "deepseek2",
        "deepseek32",
        "deepseek4",
        "glm-dsa",
        "glm4moe",
        "glm5-next",
        "nemotron_h_moe",
        "qwen35",
        "qwen35moe",
        "qwen3next",
        "qwen4exp",
    }
)
"""Architectures for which libllama can run one head (build 11434, `src/models`)."""

SEVERAL_HEADS = frozenset({"hy_v3", "mimo2", "step35"})
"""Those for which it can run several, one after the other."""

_PART = re.compile(r"-00001-of-(\d{5})\.gguf$")


@dataclass(frozen=True, slots=True)
class HeadFile:
    """What a model file says of heads, and what it has.

    Attributes:
        name: the file's name.
        architecture: GGUF architecture.
        blocks: how many layers the metadata announce, heads included.
        heads: how many of them are heads.
        missing: a weight that a head needs and the file lacks; None if it has all.
        alone: whether there is nothing but heads in it.
    """

    name: str
    architecture: str
    blocks: int
    heads: int
    missing: str | None
    alone: bool

    @classmethod
    def of(cls, path: Path) -> "HeadFile":
        """Look at a file; one that can't be read seems to be empty, and loading it will tell."""
        log.start()
        with _opened(path) as file:
            if file is None:
                return cls(path.name, "", 0, 0, None, alone=False)
            architecture = _text(file, "general.architecture")
            blocks = _number(file, f"{architecture}.block_count")
            heads = _number(file, f"{architecture}.nextn_predict_layers")
        if not heads:
            return cls(path.name, architecture, blocks, 0, None, alone=False)
        needed = [f"blk.{i}.nextn.eh_proj.weight" for i in range(blocks - heads, blocks)]
        found = _found(path, [*needed, "blk.0.attn_norm.weight"])
        missing = next((tensor for tensor in needed if tensor not in found), None)
        alone = missing is None and "blk.0.attn_norm.weight" not in found
        return cls(path.name, architecture, blocks, heads, missing, alone)

    @property
    def problem(self) -> str | None:
        """Why the heads can't be run, in words; None if they can."""
        if not self.heads:
            return f"{self.name} has no multi-token-prediction head"
        announced = f"{self.heads} multi-token-prediction head" + "s" * (self.heads > 1)
        if self.missing is not None:
            return (
                f"{self.name} announces {announced}, but the weights are not there "
                f"({self.missing} is missing); they may have been left out when it was converted"
            )
        if self.architecture not in ONE_HEAD | SEVERAL_HEADS:
            return f"libllama can't run the head of a model of architecture {self.architecture}"
        if self.heads > 1 and self.architecture not in SEVERAL_HEADS:
            return (
                f"{self.name} has {announced}, and libllama runs no more than one of a model of "
                f"architecture {self.architecture}"
            )
        return None

    @property
    def corrections(self) -> dict[str, int]:
        """Numbers of the metadata that would be right for what is there."""
        if self.missing is None:
            return {}
        return {
            f"{self.architecture}.block_count": self.blocks - self.heads,
            f"{self.architecture}.nextn_predict_layers": 0,
        }


def _found(path: Path, tensors: list[str]) -> set[str]:
    """Those of some tensors that are in a file, or in one of the parts that it consists of."""
    found = set()
    for part in _parts(path):
        with _opened(part) as file:
            if file is not None:
                found |= {
                    name for name in tensors if binding.gguf_find_tensor(file, name.encode()) >= 0
                }
    return found


def _parts(path: Path) -> list[Path]:
    """The files that a model consists of."""
    found = _PART.search(path.name)
    if not found:
        return [path]
    stem, count = path.name[: found.start()], int(found[1])
    return [path.with_name(f"{stem}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    file = binding.gguf_init_from_file(os.fsencode(path))
    try:
        yield file
    finally:
        if file is not None:
            binding.gguf_free(file)


def _text(file: int, key: str) -> str:
    index = binding.gguf_find_key(file, key.encode())
    if index < 0 or binding.gguf_get_kv_type(file, index) != binding.GGUF_TYPE_STRING:
        return ""
    return binding.gguf_get_val_str(file, index).decode(errors="replace")


def _number(file: int, key: str) -> int:
    """An entry of the metadata that is a whole number; 0 if there is no such."""
    index = binding.gguf_find_key(file, key.encode())
    if index < 0 or binding.gguf_get_kv_type(file, index) != binding.GGUF_TYPE_UINT32:
        return 0
    return binding.gguf_get_val_u32(file, index)
