"""llama-server's options that are none here: those accepted without effect, and advice on others.

`docs/llama-server.md` tells the same to users.
"""

import argparse

ANYWAY: dict[tuple[str, ...], str] = {
    ("-cb", "--cont-batching"): "requests share passes in any case",
    ("--cache-prompt",): "what was absorbed is kept for the next turn in any case",
    ("--jinja",): "chat templates are Jinja2 in any case",
    ("--metrics",): "there is GET /metrics in any case",
    ("--no-context-shift",): "a text ends with its context unless --context-shift is given",
    ("--slots",): "there is GET /slots in any case",
    ("--no-ui", "--no-webui"): "there is no web page to chat in",
    ("--offline",): "nothing is ever downloaded",
    ("--warmup",): "a model is tried out when it is loaded, in any case",
}
"""Options that ask for what is done anyway, and why they have no effect."""

_GPUS = "layers are shared out to all GPUs as llama.cpp does by default; CUDA_VISIBLE_DEVICES hides"
_DOWNLOAD = "surefoot downloads nothing; name a file that is there with -m"
_DRAFT_DOWNLOAD = "surefoot downloads nothing; name a file that is there with -md"
_LOG = "-v logs what is done, -vv libllama's log, too"
_UNIFIED = "each slot has its share of -c for itself"
_CHECKPOINTS = "--cache-device has room for them, and --checkpoint-every sets their distance"
_MEDIA = "surefoot reads text alone"
_PROXY = "a proxy in front of surefoot, such as nginx, can do that"
_PAGE = "there is no web page to chat in"
_ONE_MODEL = "a server has one model; start one server for each"
_PER_REQUEST = "requests to a server carry it"

INSTEAD: dict[tuple[str, ...], str] = {
    ("-sm", "--split-mode"): f"{_GPUS} one",
    ("-ts", "--tensor-split"): f"{_GPUS} one",
    ("-mg", "--main-gpu"): f"{_GPUS} the others",
    ("-dev", "--device"): f"{_GPUS} one, -ngl 0 uses none",
    ("-cmoe", "--cpu-moe", "-ncmoe", "--n-cpu-moe"): "-ngl keeps whole layers on the CPU",
    ("-ncffn", "--n-cpu-ffn", "-ot", "--override-tensor"): "-ngl keeps whole layers on the CPU",
    ("-fit", "--fit", "-fitt", "--fit-target", "-fitc", "--fit-ctx"): "-c, -np and -ngl say what "
    "is to fit, and an error says what would",
    ("-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-hft", "--hf-token"): _DOWNLOAD,
    ("-mu", "--model-url", "-dr", "--docker-repo"): _DOWNLOAD,
    ("-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf"): _DRAFT_DOWNLOAD,
    ("-lv", "--verbosity", "--log-verbosity", "--log-verbose"): _LOG,
    ("--log-disable", "--log-file", "--log-colors"): f"{_LOG}; it all goes to stderr",
    ("-j", "--json-schema", "-jf", "--json-schema-file"): f"{_PER_REQUEST}, as json_schema",
    ("--grammar", "--grammar-file"): f"{_PER_REQUEST}, as grammar",
    ("-p", "--prompt", "-f", "--file"): "surefoot run answers one prompt",
    ("--usage",): "--help lists the options",
    ("--version",): "surefoot --version tells it",
    ("-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified", "--kv-unified-per-slot"): _UNIFIED,
    ("-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"): _CHECKPOINTS,
    ("-cms", "--checkpoint-min-step"): _CHECKPOINTS,
    ("-cram",): "--cache-ram does that, with a unit, such as 8G",
    ("-ctkd", "--cache-type-k-draft", "--spec-draft-type-k"): "a draft model's keys are f16",
    ("-ctvd", "--cache-type-v-draft", "--spec-draft-type-v"): "a draft model's values are f16",
    ("-tbd", "--threads-batch-draft", "--spec-draft-threads-batch"): "-td counts for both",
    ("-mm", "--mmproj", "-mmu", "--mmproj-url", "--media-path"): _MEDIA,
    ("-nocb", "--no-cont-batching"): "-np 1 serves one request at a time",
    ("--no-cache-prompt",): "--cache-device 0 --cache-ram 0 keeps no more than what slots hold",
    ("--no-jinja",): "chat templates are Jinja2; --chat-template-file names another one",
    ("--chat-template-kwargs",): "requests carry them, as chat_template_kwargs",
    ("-rea", "--reasoning"): "--reasoning-budget 0 ends it at once, and requests may carry "
    "enable_thinking",
    ("--reasoning-effort",): f"{_PER_REQUEST}, as reasoning_effort",
    ("--reasoning-budget-message",): f"{_PER_REQUEST}, as reasoning_budget_message",
    ("-sp", "--special"): "return_token_ids in a request tells all tokens",
    ("-r", "--reverse-prompt"): f"{_PER_REQUEST}, as stop",
    ("--no-slots",): "GET /slots can't be turned off; it tells no texts",
    ("--props",): "GET /props is there, and nothing can be changed by a POST",
    ("--no-warmup",): "a model is tried out when it is loaded; that takes one short pass",
    ("--ssl-key-file", "--ssl-cert-file", "--api-prefix", "-to", "--timeout"): _PROXY,
    ("--ui", "--webui", "--path"): _PAGE,
    ("--models-dir", "--models-preset", "--models-max"): _ONE_MODEL,
    ("--keep",): "requests carry it, as n_keep; see --context-shift",
    ("--lora", "--lora-scaled"): "merge the adapter into the model file with llama-export-lora",
    ("--embedding", "--embeddings", "--rerank", "--reranking", "--pooling"): "surefoot writes "
    "text, and makes no embeddings",
}
"""What to do in the place of options that surefoot has not, or why it is without."""

_ADVICE = {name: text for names, text in (ANYWAY | INSTEAD).items() for name in names}


def advice_on(option: str) -> str | None:
    """What to do instead of giving an option of llama-server's; None if there is nothing to say."""
    return _ADVICE.get(option)


def add_ineffective_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that ask for what is done anyway."""
    group = parser.add_argument_group(
        "accepted without effect", "as llama-server's; surefoot does that anyway"
    )
    for names, why in ANYWAY.items():
        # No default, so that nothing can come to depend on them.
        group.add_argument(
            *names, action="store_true", default=argparse.SUPPRESS, help=why, dest="ineffective"
        )
