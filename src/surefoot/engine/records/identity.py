"""Which file it was: enough to tell one model file from another without reading gigabytes."""

import hashlib
from pathlib import Path
from typing import Any

HEAD = 1 << 20
"""So many bytes from the beginning are hashed: metadata, vocabulary, and the list of tensors."""


def file_identity(path: Path) -> dict[str, Any]:
    """Path, size in bytes, and the SHA-256 of the first MiB.

    Raises:
        OSError: the file can't be read.
    """
    with path.open("rb") as file:
        head = file.read(HEAD)
    return {
        "path": str(path.absolute()),
        "size": path.stat().st_size,
        "sha256_of_first_mib": hashlib.sha256(head).hexdigest(),
    }
