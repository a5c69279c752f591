"""A loaded model file: weights, vocabulary and metadata, without memory for any sequence."""

import ctypes
import os
from pathlib import Path

from surefoot.runtime.base import ModelInfo, ModelLoadError
from surefoot.runtime.libllama import binding, log
from surefoot.runtime.libllama.errors import RuntimeClosedError
from surefoot.runtime.libllama.head_file import HeadFile
from surefoot.runtime.libllama.tokenizer import LibllamaTokenizer

_ADVICE = {
    "not within the file bounds": "The file is cut short or damaged; download it again.",
    "failed to read": "The file is cut short or damaged; download it again.",
    "unknown model architecture": "This llama.cpp does not know it. A newer one may: see if there "
    "is a newer surefoot, or let LLAMA_CPP_LIB_PATH name the folder of another build.",
}
_NO_NAME = "n/a"
_NO_ADVICE = "Run with -v to see all that libllama has to say."


def model_parameters(
    file: HeadFile, gpu_layers: int | None = None, load_mode: str = "auto", *, mtp: bool = False
) -> binding.Structure:
    """What to ask libllama for when it loads a file.

    Args:
        file: what is known of heads in the file; where it lacks some that its metadata announce,
            libllama is told that there are none.
        gpu_layers: layers to put on a GPU; None for all, if there is one.
        load_mode: how weights get into memory, a name in `binding.LOAD_MODES`.
        mtp: whether to load multi-token-prediction heads, too.
    """
    parameters = binding.llama_model_default_params()
    parameters.load_mtp = mtp
    parameters.load_mode = binding.LOAD_MODES[load_mode]
    if gpu_layers is not None:
        parameters.n_gpu_layers = gpu_layers
    if file.corrections:
        parameters.kv_overrides = binding.kv_overrides(file.corrections)
    return parameters


class Model:
    """A model file in memory, and libllama's handle of it.

    Attributes:
        path: the file; of a file in several parts, the first.
        vocabulary: libllama's handle of the vocabulary, which goes with the model's.
        vocabulary_size: how many token ids there are.
        is_recurrent: whether all of its memory is recurrent.
        is_hybrid: whether some of it is.
        window: tokens that sliding-window attention looks back; 0 if there is none.
        row_size: length of the hidden row behind the last layer.
        heads: how many multi-token-prediction heads the file announces; see `head_file`.
        training_context: tokens of context that it was trained with.
        tokenizer: turns text into tokens and back.
        info: what it is, in words and figures.

    Raises:
        ModelLoadError: libllama can't load the file.
    """

    def __init__(self, path: Path, parameters: binding.Structure) -> None:
        log.start()
        self.path = path
        self._owners = 1
        with log.captured() as lines:
            self._handle = binding.llama_model_load_from_file(os.fsencode(path), parameters)
        if not self._handle:
            reason = log.reason(lines).removeprefix("error loading model: ")
            advice = next((a for part, a in _ADVICE.items() if part in reason), _NO_ADVICE)
            raise ModelLoadError(f"can't load {path}: {reason}. {advice}")
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    @property
    def handle(self) -> int:
        """libllama's handle.

        Raises:
            RuntimeClosedError: the model has been closed.
        """
        if not self._handle:
            raise RuntimeClosedError
        return self._handle

    def share(self) -> "Model":
        """The same model for one more owner; it stays open until each of them has closed it."""
        self._owners += 1
        return self

    def close(self) -> None:
        """Free the weights, if nobody else owns them. Contexts must have been freed before."""
        self._owners -= 1
        if self._handle and self._owners <= 0:
            binding.llama_model_free(self._handle)
            self._handle = None

    def _read(self) -> None:
        """Ask libllama what it has loaded."""
        handle = self.handle
        self.vocabulary = binding.llama_model_get_vocab(handle)
        self.vocabulary_size = binding.llama_vocab_n_tokens(self.vocabulary)
        self.is_recurrent = binding.llama_model_is_recurrent(handle)
        self.is_hybrid = binding.llama_model_is_hybrid(handle)
        self.window = max(0, binding.llama_model_n_swa(handle))
        self.row_size = binding.llama_model_n_embd_out(handle)
        self.heads = binding.llama_model_n_layer_nextn(handle)
        self.training_context = binding.llama_model_n_ctx_train(handle)
        self.tokenizer = LibllamaTokenizer(self)
        self.info = self._describe()

    def _describe(self) -> ModelInfo:
        handle = self.handle
        description = ctypes.create_string_buffer(256)
        binding.llama_model_desc(handle, description, len(description))
        template = binding.llama_model_chat_template(handle, None)
        return ModelInfo(
            name=self._name(),
            architecture=self._metadata("general.architecture"),
            description=description.value.decode(errors="replace"),
            parameters=binding.llama_model_n_params(handle),
            size=binding.llama_model_size(handle),
            training_context=self.training_context,
            chat_template=None if template is None else template.decode(errors="replace"),
            bos_text=self._bos_text(),
            eos_text=self.tokenizer.text_of(binding.llama_vocab_eos(self.vocabulary)),
            memory=self._memory(),
        )

    def _name(self) -> str:
        """The model's name; the file's where there is none, for which libllama writes n/a."""
        name = self._metadata("general.name")
        return self.path.stem if name in ("", _NO_NAME) else name

    def _bos_text(self) -> str:
        """Empty if the file names no BOS token; libllama then makes up an id, a comma's."""
        if not self._metadata("tokenizer.ggml.bos_token_id"):
            return ""
        return self.tokenizer.text_of(binding.llama_vocab_bos(self.vocabulary))

    def _metadata(self, key: str) -> str:
        """An entry of the file's metadata; empty if it is not there."""
        value = ctypes.create_string_buffer(1024)
        binding.llama_model_meta_val_str(self.handle, key.encode(), value, len(value))
        return value.value.decode(errors="replace")

    def _memory(self) -> str:
        kind = "attention"
        if self.is_hybrid:
            kind = "hybrid (recurrent and attention)"
        elif self.is_recurrent:
            kind = "recurrent"
        return f"{kind}, sliding window of {self.window} tokens" if self.window else kind
