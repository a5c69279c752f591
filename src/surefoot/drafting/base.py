"""From a drafter's name to the drafter: the registry.

A new kind needs one line in `FACTORIES`; `docs/adding-a-drafter.md` has the rest.
"""

from collections.abc import Callable, Iterable

from surefoot.decoding import Drafter, InvalidParameterError
from surefoot.drafting.chain import Chain
from surefoot.drafting.ngram_mod import NgramMod
from surefoot.drafting.ngram_simple import NgramSimple
from surefoot.drafting.ngram_table import NgramTable
from surefoot.drafting.settings import SpeculationSettings

__all__ = ["FACTORIES", "Drafter", "SpeculationSettings", "check_types", "make_drafter"]


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
        shared=NgramTable() if settings.ngram_mod_shared else None,
    )


FACTORIES: dict[str, Callable[[SpeculationSettings], Drafter]] = {
    "ngram-simple": _ngram_simple,
    "ngram-mod": _ngram_mod,
}
"""What makes each kind of drafter, by the name that `--spec-type` takes."""


def make_drafter(settings: SpeculationSettings) -> Drafter | None:
    """The drafter that the settings ask for; None for no speculation.

    Raises:
        InvalidParameterError: a type's name is unknown.
    """
    check_types("types", settings.types)
    drafters = [FACTORIES[kind](settings) for kind in settings.chosen]
    if len(drafters) > 1:
        return Chain(drafters)
    return drafters[0] if drafters else None


def check_types(name: str, types: Iterable[str]) -> None:
    """Check names of drafters.

    Args:
        name: what the user called the parameter.
        types: the names; `none` is one.

    Raises:
        InvalidParameterError: one of them is unknown; the text lists the known ones.
    """
    known = ["none", *FACTORIES]
    for kind in types:
        if kind not in known:
            raise InvalidParameterError(
                name, f"there is no drafter called {kind!r}; known are {', '.join(known)}"
            )
