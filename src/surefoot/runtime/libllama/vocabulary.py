"""A model file of which only the vocabulary is loaded, for those who run the model elsewhere."""

from pathlib import Path

from surefoot.runtime.libllama.head_file import HeadFile
from surefoot.runtime.libllama.model import Model, model_parameters
from surefoot.runtime.libllama.model_file import check_model_file


def load_vocabulary(path: Path) -> Model:
    """Load a model file's vocabulary, without weights; what it says of weights means nothing.

    Raises:
        ModelLoadError: it can't be loaded.
    """
    check_model_file(path)
    parameters = model_parameters(HeadFile.of(path))
    parameters.vocab_only = True
    return Model(path, parameters)
