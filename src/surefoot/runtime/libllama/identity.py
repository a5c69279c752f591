"""What a saved state holds for: this model's weights, memory of this layout, this build."""

import hashlib
import json

from surefoot.runtime.libllama import binding
from surefoot.runtime.libllama.model import Model
from surefoot.runtime.libllama.settings import LoadSettings

_FORMAT = 1
_SAMPLE = 1 << 20
_SAMPLES = 16


def identity_of(settings: LoadSettings, model: Model) -> str:
    """A short text that is the same where states may be exchanged.

    Of the file its size and samples spread all over it are read, so that a fine-tuned model of the
    same shape is told apart at little cost. The build counts, since the layout of saved states has
    no version of its own that covers everything; the device does not.
    """
    info = model.info
    digest = hashlib.sha256()
    size = settings.file.stat().st_size
    with settings.file.open("rb") as file:
        for number in range(_SAMPLES):
            file.seek(max(0, size - _SAMPLE) * number // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE))
    facts = [_FORMAT, size, settings.snapshots > 0, settings.cache_type_k, settings.cache_type_v]
    facts += binding.build_and_devices()[1:3]
    digest.update(json.dumps(facts).encode())
    return f"{info.name} ({info.architecture}) {digest.hexdigest()[:32]}"
