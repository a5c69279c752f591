"""Model files taken apart: the head by itself, the trunk by itself, and one that lost its head."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gguf import GGUFReader, GGUFValueType, GGUFWriter


def rewritten(
    source: Path, file: Path, keep: Callable[[str], bool], changes: Mapping[str, Any] | None = None
) -> Path:
    """A copy of a GGUF file with some of its tensors.

    Args:
        source: the file to copy.
        file: the copy; nothing is done if it is there.
        keep: says by its name whether a tensor goes into the copy.
        changes: new values of metadata, by what follows the architecture's name in the key; None
            leaves an entry out.
    """
    if file.exists():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    reader = GGUFReader(source)
    architecture = reader.get_field("general.architecture")
    assert architecture is not None
    prefix = str(architecture.contents())
    writer = GGUFWriter(file.with_suffix(".part"), arch=prefix)
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = (changes or {}).get(key.removeprefix(f"{prefix}."), field.contents())
        if value is None:
            continue
        inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(key, value, field.types[0], sub_type=inner)
    for tensor in reader.tensors:
        if keep(tensor.name):
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file.with_suffix(".part").rename(file)


def head_of(source: Path, folder: Path, block: int) -> Path:
    """The head alone, as llama.cpp's converter writes it: its block, embeddings and output."""
    return rewritten(
        source,
        folder / f"{source.stem}-head.gguf",
        lambda name: not name.startswith("blk.") or name.startswith(f"blk.{block}."),
    )


def trunk_of(source: Path, folder: Path, block: int) -> Path:
    """The model without its head, and without a word of it."""
    return rewritten(
        source,
        folder / f"{source.stem}-trunk.gguf",
        lambda name: not name.startswith(f"blk.{block}."),
        {"block_count": block, "nextn_predict_layers": 0, "attention.recurrent_layers": None},
    )


def beheaded(source: Path, folder: Path, block: int) -> Path:
    """The model without its head, whose metadata still announce one."""
    return rewritten(
        source,
        folder / f"{source.stem}-beheaded.gguf",
        lambda name: not name.startswith(f"blk.{block}."),
        {"attention.recurrent_layers": None},
    )
