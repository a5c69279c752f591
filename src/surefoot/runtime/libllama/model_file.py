"""A look at a model file before libllama gets it, for the mistakes that are easily made."""

from pathlib import Path

from surefoot.runtime.base import ModelLoadError

_MAGIC = b"GGUF"
_OTHER_KINDS = {
    b"version https://git-lfs": "a Git LFS pointer, not the model itself; run `git lfs pull`",
    b"<!doctype html": "a web page; download the model file itself",
    b"<html": "a web page; download the model file itself",
    b"pk\x03\x04": "a zip archive or PyTorch file; surefoot runs GGUF files only",
    b"lmgg": "an old GGML file; convert it or find a GGUF version of the model",
    b"tjgg": "an old GGML file; convert it or find a GGUF version of the model",
}


def check_model_file(path: Path) -> None:
    """Make sure that a path names a readable file that begins like a GGUF file.

    Raises:
        ModelLoadError: it doesn't; the text says why and what to do.
    """
    try:
        if path.is_dir():
            raise ModelLoadError(f"can't load {path}: it is a folder. {_suggestion(path)}")
        if path.exists() and not path.is_file():
            raise ModelLoadError(f"can't load {path}: it is no regular file. Name a model file.")
        with path.open("rb") as file:
            head = file.read(32)
    except FileNotFoundError:
        raise ModelLoadError(
            f"can't load {path}: there is no such file. Check the path for typing errors; "
            f"relative paths start at {Path.cwd()}."
        ) from None
    except PermissionError:
        raise ModelLoadError(
            f"can't load {path}: this user may not read it. Give the user read access, "
            f"for example with `chmod a+r {path}`."
        ) from None
    except OSError as error:
        raise ModelLoadError(
            f"can't load {path}: reading it failed ({error.strerror}). Check the disk or mount."
        ) from None
    if not head:
        raise ModelLoadError(f"can't load {path}: the file is empty. Download it again.")
    if not head.startswith(_MAGIC):
        kinds = (kind for start, kind in _OTHER_KINDS.items() if head.lower().startswith(start))
        kind = next(kinds, "something else; name a file in GGUF format")
        raise ModelLoadError(f"can't load {path}: it is not a GGUF file but {kind}.")


def _suggestion(folder: Path) -> str:
    models = sorted(entry.name for entry in folder.iterdir() if entry.suffix == ".gguf")
    if not models:
        return "It holds no .gguf files either; name a model file."
    more = f" (and {len(models) - 5} more)" if len(models) > 5 else ""
    return f"Name one of the model files in it: {', '.join(models[:5])}{more}."
