"""Small random-weight model files, one family for each kind of memory, drawn from recipes.

`families/*.json` says what is in a file (`tools/make_family_recipe.py` makes them); here it is
drawn and written. What the files are good for: state tests on token ids. They speak no language.
"""

import hashlib
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter
from gguf.quants import quantize
from numpy.typing import NDArray

MEMORY: dict[str, str] = {
    "falcon-h1": "Mamba-2 and attention side by side in every layer",
    "gemma3": "attention: a sliding window of 16 tokens in the first layer, all in the second",
    "granitehybrid": "an attention layer, then a Mamba-2 layer",
    "jamba": "an attention layer, then a Mamba-1 layer",
    "lfm2": "a sliding-window attention layer (32 tokens), then a short convolution",
    "llama": "attention only",
    "mamba2": "recurrent only: two Mamba-2 layers",
    "nemotron_h": "an attention layer, a Mamba-2 layer, a feed-forward layer without memory",
    "qwen35": "a gated delta net layer, then an attention layer",
    "qwen35moe": "the same with mixture-of-experts feed-forward parts",
    "rwkv7": "recurrent only: two RWKV-7 layers",
}
"""What each family remembers with. What that lets a context do is for a probe to find out."""

FAMILIES: tuple[str, ...] = tuple(MEMORY)
"""The families by their memory; each name is also the file's `general.architecture`."""

WITH_HEADS: tuple[str, ...] = ("hy_v3", "mimo2")
"""Further names that `random_model` knows: attention only, and several multi-token-prediction
heads. Their recipes were written by hand."""

RECIPES = Path(__file__).parent / "families"


def random_model(family: str, folder: Path, seed: int = 0) -> Path:
    """The GGUF file of a family, written into `folder` unless it is already there.

    The same family and seed give the same bytes (with the same numpy; its streams may change
    between versions). The name carries a digest of the recipe and of this module, so that a folder
    kept between runs never serves a stale file. Safe to call from several processes at once.

    A vocabulary of 128 tokens, no special tokens, no usable tokenizer: feed token ids. To tokenize
    with these files aborts the process inside libllama. Token n is written as the digits of n.

    Raises:
        ValueError: if the family is unknown.
    """
    known = FAMILIES + WITH_HEADS
    if family not in known:
        raise ValueError(f"no random model of family {family!r}; there are {', '.join(known)}")
    text = (RECIPES / f"{family}.json").read_bytes()
    digest = hashlib.sha256(text + Path(__file__).read_bytes()).hexdigest()[:8]
    path = folder / f"{family}-{seed}-{digest}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(suffix=".part", dir=folder)
        os.close(handle)
        part = Path(name)
        try:
            _write(part, family, json.loads(text), seed)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    return path


def _write(path: Path, family: str, recipe: dict[str, Any], seed: int) -> None:
    writer = GGUFWriter(path, arch=family)
    for key, kind, value in recipe["metadata"]:
        if key != "general.architecture":  # the writer has put it in
            _add_metadata(writer, key, kind, value)
    for tensor in recipe["tensors"]:
        kind = GGMLQuantizationType[tensor["type"]]
        writer.add_tensor(tensor["name"], quantize(_draw(tensor, seed), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_metadata(writer: GGUFWriter, key: str, kind: str, value: Any) -> None:
    """Add one entry; kinds are gguf's names, `ARRAY:ITEM` for arrays."""
    outer, _, item = kind.partition(":")
    if not item:
        writer.add_key_value(key, _number(kind, value), GGUFValueType[kind])
        return
    if isinstance(value, dict):
        if "repeat" in value:
            value = [value["repeat"]] * value["count"]
        else:
            value = [value["numbered"].format(number) for number in range(value["count"])]
    values = [_number(item, x) for x in value]
    writer.add_key_value(key, values, GGUFValueType[outer], sub_type=GGUFValueType[item])


def _number(kind: str, value: Any) -> Any:
    """A recipe's scalar as `gguf` wants it: floats may be spelled `-inf`, which JSON lacks."""
    return float(value) if kind.startswith("FLOAT") else value


def _draw(tensor: dict[str, Any], seed: int) -> NDArray[np.float32]:
    """A tensor's weights; its name seeds it too, so that tensors don't depend on their order."""
    shape = tuple(reversed(tensor["shape"]))  # numpy's slowest axis comes first, gguf's last
    if "constant" in tensor:
        return np.full(shape, tensor["constant"], np.float32)
    if "values" in tensor:
        return np.array(tensor["values"], np.float32).reshape(shape)
    generator = np.random.default_rng([seed, zlib.crc32(tensor["name"].encode())])
    drawn = generator.standard_normal(shape, np.float32)
    drawn = drawn * np.float32(tensor["std"]) + np.float32(tensor["mean"])
    if "sign" in tensor:
        drawn = np.abs(drawn) * np.float32(tensor["sign"])
    return drawn
