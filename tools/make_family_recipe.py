"""Make a recipe for `tests/support/random_models.py` out of a GGUF file.

    make_family_recipe.py MODEL.gguf OUT.json [--halve] [--lively]

A recipe keeps everything of the file but its weights: metadata with types, tensor names, shapes and
types, and for each tensor the statistics to draw it again. Only small models are meant: each tensor
is read whole. Empty metadata arrays are left out (the `gguf` package can't write them, and loaders
treat them as absent).

The committed recipes of eight families were made with both options from the files that
llama.cpp's own architecture test writes (`test-llama-archs -a FAMILY -o FOLDER`); those of llama,
gemma3 and rwkv7 were written by hand.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFValueType
from gguf.quants import dequantize
from numpy.typing import NDArray

Json = Any
"""What `json` can write."""

WIDTHS = re.compile(
    r"\.(embedding_length|(\w+_)?feed_forward_length|(key|value)_length(_swa)?"
    r"|rope\.dimension_(count|count_swa|sections)|ssm\.(inner|state)_size)$"
)
"""Metadata keys that `--halve` halves; counts of heads, layers, experts and tokens stay."""

CALIBRATION = re.compile(r"\.(input_)?scale$")
"""Scales that belong to quantized weights. Loaders take them as optional, and random ones shrink
every layer's output to nothing, so `--lively` leaves them out."""

LIVELY: tuple[tuple[str, dict[str, Json]], ...] = (
    (r"^rope_freqs\.weight$", {"constant": 1.0}),
    (r"norm", {"mean": 1.0, "std": 0.1}),
    (r"^token_embd\.weight$", {"mean": 0.0, "std": 1.0}),
    # The state decays by exp(step * A) a token, so A must be negative.
    (r"^ssm_a$", {"mean": -1.0, "std": 0.5, "sign": -1}),
    # The way around the state: small, so that the state is heard.
    (r"^ssm_d$", {"mean": 0.0, "std": 0.3}),
    # The step is softplus(bias + ...): about 0.05 to 0.3.
    (r"^ssm_dt\.bias$", {"mean": -2.0, "std": 0.5}),
    (r"conv(1d)?\.weight$", {"mean": 0.0, "std": 0.5}),
    (r"\.bias$", {"mean": 0.0, "std": 0.1}),
)
"""What `--lively` draws, by role; the first match counts. Matrices not named here keep the size of
what they multiply (std = 1 / sqrt(inputs)); the last one doubles it, for logits of std 2."""


def read_metadata(reader: GGUFReader) -> list[list[Json]]:
    """All metadata as `[key, type, value]`; an array's type is written `ARRAY:ITEM`."""
    metadata: list[list[Json]] = []
    for key, field in reader.fields.items():
        value = field.contents()
        if key.startswith("GGUF.") or value == []:
            continue
        item = field.types[-1]
        if item in (GGUFValueType.FLOAT32, GGUFValueType.FLOAT64):
            value = [short(x) for x in value] if isinstance(value, list) else short(value)
        if isinstance(value, list):
            metadata.append([key, f"ARRAY:{item.name}", compress(value)])
        else:
            metadata.append([key, item.name, value])
    return metadata


def short(number: float | np.floating[Any]) -> float | str:
    """The shortest spelling of a float32; infinities and NaN as text, since JSON has none."""
    spelled = str(np.float32(number))
    return float(spelled) if np.isfinite(number) else spelled


def compress(values: list[Json]) -> Json:
    """A long list in a short form: one value repeated, or numbered names such as `tok_7`."""
    if len(values) > 8 and all(value == values[0] for value in values):
        return {"repeat": values[0], "count": len(values)}
    if isinstance(values[0], str) and values[0].endswith("0"):
        pattern = values[0][:-1] + "{}"
        if values == [pattern.format(number) for number in range(len(values))]:
            return {"numbered": pattern, "count": len(values)}
    return values


def measure(weights: NDArray[np.float32]) -> dict[str, Json]:
    """How to draw a tensor like this one: a constant, a few exact values, or a distribution."""
    if (weights == weights.flat[0]).all():
        return {"constant": short(weights.flat[0])}
    if weights.size <= 4:
        return {"values": [short(x) for x in weights.flat]}
    drawn: dict[str, Json] = {
        "mean": float(f"{weights.mean():.3g}"),
        "std": float(f"{weights.std():.3g}"),
    }
    if (weights < 0).all() or (weights > 0).all():
        drawn["sign"] = 1 if weights.flat[0] > 0 else -1
    return drawn


def read_tensors(reader: GGUFReader) -> list[dict[str, Json]]:
    """Every tensor's name, shape (fastest axis first, as llama.cpp prints it), type, statistics."""
    return [
        {
            "name": tensor.name,
            "shape": tensor.shape.tolist(),
            "type": tensor.tensor_type.name,
            **measure(dequantize(tensor.data, tensor.tensor_type)),
        }
        for tensor in reader.tensors
    ]


def halve(recipe: dict[str, Json]) -> None:
    """Halve every width (hidden size, heads' size, state size ...): about a quarter of the bytes.

    A dimension such as 1538 = 12 * 128 + 2 holds widths (a multiple of 16) and counts (the rest);
    only the widths are halved. The vocabulary stays.
    """

    def half(size: int) -> int:
        return (size - size % 16) // 2 + size % 16

    for entry in recipe["metadata"]:
        if WIDTHS.search(entry[0]):
            value = entry[2]
            entry[2] = [half(x) for x in value] if isinstance(value, list) else half(value)
    for tensor in recipe["tensors"]:
        shape = tensor["shape"]
        kept = shape[1:] if tensor["name"] in ("token_embd.weight", "output.weight") else []
        tensor["shape"] = [half(x) for x in shape[: len(shape) - len(kept)]] + kept


def enliven(recipe: dict[str, Json]) -> None:
    """Replace the statistics by ones under which the history of tokens matters.

    The test tool draws every tensor as N(0, 0.1), norms included. Then hardly anything but the
    last token shows in the logits (a different history moves them by 1e-4 to 5e-3), and a test
    can't tell a right state from a wrong one.
    """
    kept = [tensor for tensor in recipe["tensors"] if not CALIBRATION.search(tensor["name"])]
    recipe["tensors"] = [
        {key: tensor[key] for key in ("name", "shape", "type")}
        | lively_statistics(tensor["name"], tensor["shape"])
        for tensor in kept
    ]


def lively_statistics(name: str, shape: list[int]) -> dict[str, Json]:
    """Statistics of a tensor by its role, near those of trained models at initialisation."""
    role = re.sub(r"^blk\.\d+\.", "", name)
    for pattern, statistics in LIVELY:
        if re.search(pattern, role):
            return statistics
    gain = 2.0 if role == "output.weight" else 1.0
    return {"mean": 0.0, "std": float(f"{gain / shape[0] ** 0.5:.3g}")}


def dump(recipe: dict[str, Json]) -> str:
    """JSON with one line for each metadata entry and each tensor."""
    parts = []
    for key, value in recipe.items():
        if isinstance(value, list):
            lines = ",\n".join(f"    {json.dumps(entry, allow_nan=False)}" for entry in value)
            parts.append(f"  {json.dumps(key)}: [\n{lines}\n  ]")
        else:
            parts.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Read the command line, read the model, write the recipe."""
    parser = argparse.ArgumentParser(description="Make a random-model recipe out of a GGUF file.")
    parser.add_argument("model", type=Path, metavar="MODEL.gguf")
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--halve", action="store_true", help="halve every width")
    parser.add_argument(
        "--lively", action="store_true", help="statistics under which the history of tokens matters"
    )
    options = parser.parse_args()
    reader = GGUFReader(options.model)
    recipe: dict[str, Json] = {
        "metadata": read_metadata(reader),
        "tensors": read_tensors(reader),
    }
    if options.halve:
        halve(recipe)
    if options.lively:
        enliven(recipe)
    options.out.write_text(dump(recipe), encoding="utf-8")


if __name__ == "__main__":
    main()
