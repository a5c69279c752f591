"""From a drafter's name to the drafter: the registry.

A new kind needs one line in `FACTORIES`; `docs/adding-a-drafter.md` has the rest.
"""

from collections.abc import Callable, Iterable

from surefoot.decoding import Drafter, InvalidParameterError
from surefoot.drafting.chain import Chain
from surefoot.drafting.draft_model import DraftModel
from surefoot.drafting.lookup_file import load_counts, open_counts
from surefoot.drafting.mtp import MtpDrafter
from surefoot.drafting.ngram_cache import NgramCache
from surefoot.drafting.ngram_counts import NgramCounts
from surefoot.drafting.ngram_map_k import NgramMapK
from surefoot.drafting.ngram_map_k4v import NgramMapK4V
from surefoot.drafting.ngram_mod import NgramMod
from surefoot.drafting.ngram_simple import NgramSimple
from surefoot.drafting.ngram_table import NgramTable
from surefoot.drafting.resources import Resources
from surefoot.drafting.settings import SpeculationSettings

__all__ = [
    "FACTORIES",
    "KINDS",
    "MODEL_FACTORIES",
    "Drafter",
    "Resources",
    "SpeculationSettings",
    "check_types",
    "make_drafter",
]


def _ngram_simple(settings: SpeculationSettings) -> Drafter:
    return NgramSimple(
        size_n=settings.ngram_simple_size_n,
        size_m=settings.ngram_simple_size_m,
        min_hits=settings.ngram_simple_min_hits,
    )


def _ngram_mod(settings: SpeculationSettings) -> Drafter:
    return NgramMod(
        n_match=settings.ngram_mod_n_match,
        n_min=settings.ngram_mod_n_min,
        n_max=settings.ngram_mod_n_max,
        shared=NgramTable() if settings.ngram_shared else None,
    )


def _ngram_map_k(settings: SpeculationSettings) -> Drafter:
    return NgramMapK(
        size_n=settings.ngram_map_k_size_n,
        size_m=settings.ngram_map_k_size_m,
        min_hits=settings.ngram_map_k_min_hits,
    )


def _ngram_map_k4v(settings: SpeculationSettings) -> Drafter:
    return NgramMapK4V(
        size_n=settings.ngram_map_k4v_size_n,
        size_m=settings.ngram_map_k4v_size_m,
        min_hits=settings.ngram_map_k4v_min_hits,
    )


def _ngram_cache(settings: SpeculationSettings, resources: Resources) -> Drafter:
    static, dynamic = settings.lookup_cache_static, settings.lookup_cache_dynamic
    shared = NgramCounts() if settings.ngram_shared else None
    size = resources.vocabulary_size
    return NgramCache(
        static=load_counts(static, size) if static else None,
        dynamic=open_counts(dynamic, size) if dynamic else shared,
        save_to=dynamic,
    )


def _draft_simple(settings: SpeculationSettings, resources: Resources) -> Drafter:
    if resources.draft_model is None:
        raise InvalidParameterError(
            "--spec-type", "draft-simple needs a draft model; name its file with -md"
        )
    return DraftModel(
        resources.draft_model,
        n_max=settings.draft_n_max,
        n_min=settings.draft_n_min,
        p_min=settings.draft_p_min,
        shared=resources.shared_tokens,
    )


def _draft_mtp(settings: SpeculationSettings, resources: Resources) -> Drafter:
    if resources.head is None:
        raise InvalidParameterError(
            "--spec-type", "draft-mtp needs a model with a multi-token-prediction head"
        )
    return MtpDrafter(
        resources.head,
        n_max=settings.draft_n_max,
        n_min=settings.draft_n_min,
        p_min=settings.draft_p_min,
        shared=resources.head_tokens,
    )


FACTORIES: dict[str, Callable[[SpeculationSettings], Drafter]] = {
    "ngram-simple": _ngram_simple,
    "ngram-map-k": _ngram_map_k,
    "ngram-map-k4v": _ngram_map_k4v,
    "ngram-mod": _ngram_mod,
}
"""What makes each kind that has to know no model, by the name that `--spec-type` takes."""

MODEL_FACTORIES: dict[str, Callable[[SpeculationSettings, Resources], Drafter]] = {
    "ngram-cache": _ngram_cache,
    "draft-simple": _draft_simple,
    "draft-mtp": _draft_mtp,
}
"""What makes each kind that runs a model or has to know the target, likewise."""

KINDS: tuple[str, ...] = (*FACTORIES, *MODEL_FACTORIES)
"""The names of all kinds."""


def make_drafter(
    settings: SpeculationSettings, resources: Resources | None = None
) -> Drafter | None:
    """The drafter that the settings ask for; None for no speculation.

    Args:
        settings: what is asked for.
        resources: the models that it takes; None for no models.

    Raises:
        InvalidParameterError: a type's name is unknown, or it needs a model that is not there.
        LookupFileError: a lookup file can't be used.
    """
    check_types("types", settings.types)
    drafters = [_make(kind, settings, resources or Resources()) for kind in settings.chosen]
    if len(drafters) > 1:
        return Chain(drafters)
    return drafters[0] if drafters else None


def _make(kind: str, settings: SpeculationSettings, resources: Resources) -> Drafter:
    if kind in MODEL_FACTORIES:
        return MODEL_FACTORIES[kind](settings, resources)
    return FACTORIES[kind](settings)


def check_types(name: str, types: Iterable[str]) -> None:
    """Check names of drafters.

    Args:
        name: what the user called the parameter.
        types: the names; `none` is one.

    Raises:
        InvalidParameterError: one of them is unknown; the text lists the known ones.
    """
    known = ["none", *KINDS]
    for kind in types:
        if kind not in known:
            raise InvalidParameterError(
                name, f"there is no drafter called {kind!r}; known are {', '.join(known)}"
            )
