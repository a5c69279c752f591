"""The C functions that this runtime calls, with types. The only module that imports llama_cpp.

Names are libllama's own, so that llama.h is their documentation. Handles (models, contexts,
memories, vocabularies) are addresses; 0 or None is libllama's null.
"""

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from surefoot.runtime.base import ModelLoadError

try:
    from llama_cpp import llama_cpp as _library
except (ImportError, OSError, RuntimeError, AttributeError) as error:
    raise ModelLoadError(
        f"can't load libllama: {error}. Check LLAMA_CPP_LIB_PATH if it is set; else install "
        "llama-cpp-python anew."
    ) from error

try:
    from llama_cpp import llama_cpp_ext as _extension
except AttributeError:  # an older build of libllama, which can't run heads
    _extension = None

Structure = Any
"""A ctypes structure or callback of llama_cpp, which has no types that mypy could read."""

llama_backend_init: Callable[[], None] = _library.llama_backend_init
llama_log_callback: Callable[[Callable[[int, bytes, int | None], None]], Structure] = (
    _library.llama_log_callback
)
llama_log_set: Callable[[Structure, None], None] = _library.llama_log_set
llama_supports_gpu_offload: Callable[[], bool] = _library.llama_supports_gpu_offload
llama_max_parallel_sequences: Callable[[], int] = _library.llama_max_parallel_sequences

llama_model_default_params: Callable[[], Structure] = _library.llama_model_default_params
llama_model_load_from_file: Callable[[bytes, Structure], int | None] = (
    _library.llama_model_load_from_file
)
llama_model_free: Callable[[int], None] = _library.llama_model_free
llama_model_get_vocab: Callable[[int], int] = _library.llama_model_get_vocab
llama_model_desc: Callable[[int, Any, int], int] = _library.llama_model_desc
llama_model_meta_val_str: Callable[[int, bytes, Any, int], int] = _library.llama_model_meta_val_str
llama_model_chat_template: Callable[[int, None], bytes | None] = _library.llama_model_chat_template
llama_model_n_params: Callable[[int], int] = _library.llama_model_n_params
llama_model_size: Callable[[int], int] = _library.llama_model_size
llama_model_n_ctx_train: Callable[[int], int] = _library.llama_model_n_ctx_train
llama_model_n_layer: Callable[[int], int] = _library.llama_model_n_layer
llama_model_n_embd: Callable[[int], int] = _library.llama_model_n_embd
llama_model_n_embd_out: Callable[[int], int] = _library.llama_model_n_embd_out
llama_model_n_layer_nextn: Callable[[int], int] = _library.llama_model_n_layer_nextn
llama_model_n_swa: Callable[[int], int] = _library.llama_model_n_swa
llama_model_ftype: Callable[[int], int] = _library.llama_model_ftype
llama_model_has_encoder: Callable[[int], bool] = _library.llama_model_has_encoder
llama_model_is_recurrent: Callable[[int], bool] = _library.llama_model_is_recurrent
llama_model_is_hybrid: Callable[[int], bool] = _library.llama_model_is_hybrid

llama_vocab_type: Callable[[int], int] = _library.llama_vocab_type
llama_vocab_n_tokens: Callable[[int], int] = _library.llama_vocab_n_tokens
llama_vocab_bos: Callable[[int], int] = _library.llama_vocab_bos
llama_vocab_eos: Callable[[int], int] = _library.llama_vocab_eos
llama_vocab_is_eog: Callable[[int, int], bool] = _library.llama_vocab_is_eog
llama_tokenize: Callable[[int, bytes, int, Any, int, bool, bool], int] = _library.llama_tokenize
llama_token_to_piece: Callable[[int, int, Any, int, int, bool], int] = _library.llama_token_to_piece
VOCABULARIES_WITHOUT_TOKENIZER: frozenset[int] = frozenset(
    {_library.LLAMA_VOCAB_TYPE_NONE, _library.LLAMA_VOCAB_TYPE_TEST}
)

llama_print_system_info: Callable[[], bytes] = _library.llama_print_system_info

llama_context_default_params: Callable[[], Structure] = _library.llama_context_default_params
llama_init_from_model: Callable[[int, Structure], int | None] = _library.llama_init_from_model
llama_free: Callable[[int], None] = _library.llama_free
llama_get_memory: Callable[[int], int | None] = _library.llama_get_memory
llama_n_batch: Callable[[int], int] = _library.llama_n_batch
llama_n_ubatch: Callable[[int], int] = _library.llama_n_ubatch
llama_n_rs_seq: Callable[[int], int] = _library.llama_n_rs_seq

llama_decode: Callable[[int, Structure], int] = _library.llama_decode
llama_get_logits: Callable[[int], Any] = _library.llama_get_logits
llama_get_logits_ith: Callable[[int, int], Any] = _library.llama_get_logits_ith

llama_memory_clear: Callable[[int, bool], None] = _library.llama_memory_clear
llama_memory_seq_rm: Callable[[int, int, int, int], bool] = _library.llama_memory_seq_rm
llama_memory_seq_cp: Callable[[int, int, int, int, int], None] = _library.llama_memory_seq_cp
llama_memory_seq_add: Callable[[int, int, int, int, int], None] = _library.llama_memory_seq_add
llama_memory_can_shift: Callable[[int], bool] = _library.llama_memory_can_shift
llama_memory_seq_pos_min: Callable[[int, int], int] = _library.llama_memory_seq_pos_min
llama_memory_seq_pos_max: Callable[[int, int], int] = _library.llama_memory_seq_pos_max

llama_state_seq_get_size_ext: Callable[[int, int, int], int] = _library.llama_state_seq_get_size_ext
llama_state_seq_get_data_ext: Callable[[int, Any, int, int, int], int] = (
    _library.llama_state_seq_get_data_ext
)
llama_state_seq_set_data_ext: Callable[[int, Any, int, int, int], int] = (
    _library.llama_state_seq_set_data_ext
)
STATE_WHOLE: int = _library.LLAMA_STATE_SEQ_FLAGS_NONE
STATE_PARTIAL: int = _library.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
"""Without what a tail can be cut from: only recurrent states, and cells of sliding windows."""

CONTEXT_TYPE_MTP: int = _library.LLAMA_CONTEXT_TYPE_MTP
HAS_NEXT_TOKEN_ROWS: bool = _extension is not None
"""Whether libllama can give the rows that multi-token-prediction heads are fed; without, the
following functions don't exist. They are in llama-ext.h, which is no public API."""
llama_set_embeddings_nextn: Callable[[int, bool, bool], None]
llama_get_embeddings_nextn: Callable[[int], Any]
llama_set_nextn_layer_offset: Callable[[int, int], None]
if HAS_NEXT_TOKEN_ROWS:
    llama_set_embeddings_nextn = _extension.llama_set_embeddings_nextn
    llama_get_embeddings_nextn = _extension.llama_get_embeddings_nextn
    llama_set_nextn_layer_offset = _extension.llama_set_nextn_layer_offset

FTYPE_F32: int = _library.LLAMA_FTYPE_ALL_F32
FTYPE_F16: int = _library.LLAMA_FTYPE_MOSTLY_F16
FTYPE_BF16: int = _library.LLAMA_FTYPE_MOSTLY_BF16
FTYPE_Q8_0: int = _library.LLAMA_FTYPE_MOSTLY_Q8_0
FTYPE_GUESSED: int = _library.LLAMA_FTYPE_GUESSED

CACHE_TYPES: Mapping[str, int] = {
    "f32": _library.GGML_TYPE_F32,
    "f16": _library.GGML_TYPE_F16,
    "bf16": 30,  # GGML_TYPE_BF16, which llama_cpp does not bind
    "q8_0": _library.GGML_TYPE_Q8_0,
    "q5_1": _library.GGML_TYPE_Q5_1,
    "q5_0": _library.GGML_TYPE_Q5_0,
    "q4_1": _library.GGML_TYPE_Q4_1,
    "q4_0": _library.GGML_TYPE_Q4_0,
    "iq4_nl": _library.GGML_TYPE_IQ4_NL,
}
"""Number types that attention can keep keys and values in, by llama-server's names."""
UNQUANTIZED = frozenset({"f32", "f16", "bf16"})
"""Those of them that lose next to nothing."""
FLASH_ATTENTION: Mapping[str, int] = {
    "auto": _library.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": _library.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": _library.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}
LOAD_MODES: Mapping[str, int] = {
    "auto": _library.LLAMA_LOAD_MODE_AUTO,
    "none": _library.LLAMA_LOAD_MODE_NONE,
    "mmap": _library.LLAMA_LOAD_MODE_MMAP,
    "mlock": _library.LLAMA_LOAD_MODE_MLOCK,
    "mmap+mlock": _library.LLAMA_LOAD_MODE_MMAP_MLOCK,
    "dio": _library.LLAMA_LOAD_MODE_DIRECT_IO,
}
"""How weights get into memory, by llama-server's names."""


class _GgufParameters(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


def _ggml(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A function of gguf.h or ggml.h, which llama_cpp doesn't bind; libllama brings it along."""
    function: Callable[..., Any] = _library._lib[name]
    function.restype, function.argtypes = result, arguments  # type: ignore[attr-defined]
    return function


_handle, _index = ctypes.c_void_p, ctypes.c_int64
_gguf_init_from_file = _ggml("gguf_init_from_file", _handle, ctypes.c_char_p, _GgufParameters)
gguf_free: Callable[[int], None] = _ggml("gguf_free", None, _handle)
gguf_find_key: Callable[[int, bytes], int] = _ggml(
    "gguf_find_key", _index, _handle, ctypes.c_char_p
)
gguf_find_tensor: Callable[[int, bytes], int] = _ggml(
    "gguf_find_tensor", _index, _handle, ctypes.c_char_p
)
gguf_get_kv_type: Callable[[int, int], int] = _ggml(
    "gguf_get_kv_type", ctypes.c_int, _handle, _index
)
gguf_get_val_u32: Callable[[int, int], int] = _ggml(
    "gguf_get_val_u32", ctypes.c_uint32, _handle, _index
)
gguf_get_val_str: Callable[[int, int], bytes] = _ggml(
    "gguf_get_val_str", ctypes.c_char_p, _handle, _index
)
GGUF_TYPE_UINT32 = 4
GGUF_TYPE_STRING = 8


def build_and_devices() -> tuple[str, ...]:
    """Which build of ggml runs, and on what: version, commit, CPU features, names of devices.

    ggml's own functions are not bound by llama_cpp; what a build does not have is left out.
    """
    facts = [llama_print_system_info().decode(errors="replace")]
    try:
        facts += [
            _ggml(name, ctypes.c_char_p)().decode(errors="replace")
            for name in ("ggml_version", "ggml_commit")
        ]
        device = _ggml("ggml_backend_dev_get", _handle, ctypes.c_size_t)
        description = _ggml("ggml_backend_dev_description", ctypes.c_char_p, _handle)
        count = _ggml("ggml_backend_dev_count", ctypes.c_size_t)()
        facts += [description(device(i)).decode(errors="replace") for i in range(count)]
    except AttributeError:
        pass
    return tuple(facts)


def gguf_init_from_file(path: bytes) -> int | None:
    """Read what stands before the weights in a GGUF file; None if it can't be read."""
    handle: int | None = _gguf_init_from_file(path, _GgufParameters(True, None))
    return handle


def kv_overrides(numbers: Mapping[str, int]) -> Structure:
    """Other values for whole numbers in a file's metadata, as `llama_model_params` takes them."""
    overrides = (_library.llama_model_kv_override * (len(numbers) + 1))()  # the last one is empty
    for override, (key, number) in zip(overrides, numbers.items(), strict=False):
        override.tag = _library.LLAMA_KV_OVERRIDE_TYPE_INT
        override.key = key.encode()
        override.value.val_i64 = number
    return overrides


def llama_batch(**arrays: Any) -> Structure:
    """A `llama_batch` over arrays that the caller keeps alive.

    Args:
        arrays: an address for each of token, pos, n_seq_id, seq_id and logits, and for embd if
            rows go in beside the tokens.
    """
    batch = _library.llama_batch()
    kinds = dict(_library.llama_batch._fields_)
    for name, address in arrays.items():
        setattr(batch, name, ctypes.cast(address, kinds[name]))
    return batch


def address_of(pointer: Structure) -> int:
    """The address in a ctypes pointer; 0 for null."""
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0
