"""From a model file to a runtime."""

from dataclasses import replace

from surefoot.decoding import DecodeError
from surefoot.runtime.base import ModelLoadError
from surefoot.runtime.libllama import binding
from surefoot.runtime.libllama.context import ContextPlan, context_parameters, open_context
from surefoot.runtime.libllama.head_file import HeadFile
from surefoot.runtime.libllama.model import Model, model_parameters
from surefoot.runtime.libllama.model_file import check_model_file
from surefoot.runtime.libllama.need import check_memory
from surefoot.runtime.libllama.noise import default_logit_noise
from surefoot.runtime.libllama.runtime import LibllamaRuntime
from surefoot.runtime.libllama.settings import LoadSettings


def load(settings: LoadSettings) -> LibllamaRuntime:
    """Load a model file, make memory for its sequences, and find out what can be rolled back.

    Raises:
        ModelLoadError: the text says what was asked, what is wrong and what to do. Nothing
            stays behind.
    """
    check_model_file(settings.file)
    file = HeadFile.of(settings.file)
    if file.alone:
        raise ModelLoadError(
            f"can't load {settings.file}: it holds a multi-token-prediction head and nothing else. "
            "Load the model that it belongs to (-m), and let the head draft for it "
            "(-md, --spec-type draft-mtp)."
        )
    problem = file.problem if settings.mtp else "its heads have not been loaded"
    model = Model(
        settings.file,
        model_parameters(file, settings.gpu_layers, settings.load_mode, mtp=problem is None),
    )
    if settings.chat_template is not None:
        model.info = replace(model.info, chat_template=settings.chat_template)
    try:
        return _with_context(settings, model, file, problem)
    except BaseException:
        model.close()
        raise


def _with_context(
    settings: LoadSettings, model: Model, file: HeadFile, head_problem: str | None
) -> LibllamaRuntime:
    if binding.llama_model_has_encoder(model.handle):
        raise ModelLoadError(
            f"can't run {settings.file}: {model.info.architecture} is an encoder-decoder model or "
            "an encoder, which surefoot doesn't support. Use a decoder-only model."
        )
    plan = ContextPlan.of(settings, model.training_context)
    check_memory(settings, plan, model, file)
    context = open_context(model, context_parameters(settings, plan, model))
    noise = settings.logit_noise
    if noise is None:
        file_type = binding.llama_model_ftype(model.handle)
        noise = default_logit_noise(
            file_type, on_gpu=settings.on_gpu, cache_types=settings.cache_types
        )
    try:
        return LibllamaRuntime(model, context, plan, settings, noise, head_problem)
    except DecodeError as error:
        binding.llama_free(context)
        raise ModelLoadError(
            f"can't run {settings.file}: its first pass failed ({error}). Run with -v to see what "
            "libllama has to say; a smaller batch (-ub) or fewer layers on the GPU (-ngl) may help."
        ) from error
    except BaseException:
        binding.llama_free(context)
        raise
