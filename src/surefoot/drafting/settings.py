"""How to speculate, as users ask for it: which drafters, and the parameters of each.

Fields are named after llama-server's options without their `--spec-`. Defaults and ranges are
those of its build 11434 (`common/common.h`, `common/arg.cpp`), except that it speculates only when
told to, and sets no upper limit to the draft's length for drafters that run a model, or to hits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from surefoot.decoding import InvalidParameterError, check_rates
from surefoot.drafting import ngram_cache

LIMITS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "draft_n_max": (0, 1024),
        "draft_n_min": (0, 1024),
        "ngram_simple_size_n": (1, 1024),
        "ngram_simple_size_m": (1, 1024),
        "ngram_simple_min_hits": (1, 1 << 16),
        "ngram_map_k_size_n": (1, 1024),
        "ngram_map_k_size_m": (1, 1024),
        "ngram_map_k_min_hits": (1, 1 << 16),
        "ngram_map_k4v_size_n": (1, 1024),
        "ngram_map_k4v_size_m": (1, 1024),
        "ngram_map_k4v_min_hits": (1, 1 << 16),
        "ngram_mod_n_match": (1, 1024),
        "ngram_mod_n_min": (0, 1024),
        "ngram_mod_n_max": (0, 1024),
    }
)
"""Smallest and largest value of each number."""


@dataclass(frozen=True, slots=True)
class SpeculationSettings:
    """The drafters to use, and how.

    Attributes:
        types: names of drafters; `none` among them turns all off.
        draft_n_max: most tokens in a draft, for drafters that run a model.
        draft_n_min: a shorter draft is not used, for drafters that run a model.
        draft_p_min: a draft ends before the first token that is less probable to the model that
            drafts, for drafters that run one.
        draft_model: the file of the model that drafts; None for none.
        ctx_size_draft: its tokens of context for each slot; 0 for as many as it was trained with,
            None for as many as the target has.
        draft_ngl: its layers to put on a GPU; None for all, if there is one.
        draft_threads: its CPU threads; None for as many as the target has.
        ngram_simple_size_n: tokens in the n-gram that is looked up.
        ngram_simple_size_m: most tokens in a draft.
        ngram_simple_min_hits: how often the n-gram must have occurred before.
        ngram_map_k_size_n: tokens in the n-gram that is looked up.
        ngram_map_k_size_m: most tokens in a draft.
        ngram_map_k_min_hits: how often the n-gram must have occurred before.
        ngram_map_k4v_size_n: tokens in the n-gram that is looked up.
        ngram_map_k4v_size_m: tokens behind it that are told apart, and most tokens in a draft.
        ngram_map_k4v_min_hits: how often the n-gram must have occurred before.
        ngram_mod_n_match: tokens in the n-gram that is looked up.
        ngram_mod_n_min: a run of fewer predictable tokens is not used.
        ngram_mod_n_max: most tokens in a draft.
        ngram_shared: whether requests may be drafted for from each other's text.
        lookup_cache_static: lookup file of a corpus, which `ngram-cache` reads.
        lookup_cache_dynamic: lookup file that `ngram-cache` reads, and to which it adds the text of
            all requests.
        synth_rates: for benchmarks, the probabilities that a draft is accepted up to each token,
            one for each token of the longest draft; none for real verification.
        synth_len: the same, given as the mean tokens that a round commits.

    Raises:
        InvalidParameterError: a number is outside its range, or both kinds of synthetic acceptance
            are asked for.
    """

    types: tuple[str, ...] = ("ngram-simple",)
    draft_n_max: int = 3
    draft_n_min: int = 0
    draft_p_min: float = 0.0
    draft_model: Path | None = None
    ctx_size_draft: int | None = None
    draft_ngl: int | None = None
    draft_threads: int | None = None
    ngram_simple_size_n: int = 12
    ngram_simple_size_m: int = 48
    ngram_simple_min_hits: int = 1
    ngram_map_k_size_n: int = 12
    ngram_map_k_size_m: int = 48
    ngram_map_k_min_hits: int = 1
    ngram_map_k4v_size_n: int = 12
    ngram_map_k4v_size_m: int = 48
    ngram_map_k4v_min_hits: int = 1
    ngram_mod_n_match: int = 24
    ngram_mod_n_min: int = 48
    ngram_mod_n_max: int = 64
    ngram_shared: bool = False
    lookup_cache_static: Path | None = None
    lookup_cache_dynamic: Path | None = None
    synth_rates: tuple[float, ...] = ()
    synth_len: float | None = None

    def __post_init__(self) -> None:
        """Check the ranges."""
        for field in LIMITS:
            check_limits(field, field, getattr(self, field))
        check_draft_lengths("draft_n_min", self.draft_n_min, "draft_n_max", self.draft_n_max)
        check_probability("draft_p_min", self.draft_p_min)
        if self.synth_rates:
            check_rates("synth_rates", self.synth_rates)
        if self.synth_rates and self.synth_len is not None:
            raise InvalidParameterError("synth_len", "can't go together with synth_rates")

    @property
    def chosen(self) -> tuple[str, ...]:
        """The types to use, each once, in the order in which they are asked; none: no speculation.

        As in llama-server those that run a model come last: they have a draft for every text, so
        whoever came behind them would never be asked. Otherwise the order is the user's.
        """
        if "none" in self.types:
            return ()
        return tuple(sorted(dict.fromkeys(self.types), key=runs_a_model))

    @property
    def n_max(self) -> int:
        """The longest draft that any of the chosen drafters proposes; 0 for no speculation."""
        longest = {
            "ngram-simple": self.ngram_simple_size_m,
            "ngram-map-k": self.ngram_map_k_size_m,
            "ngram-map-k4v": self.ngram_map_k4v_size_m,
            "ngram-mod": self.ngram_mod_n_max,
            "ngram-cache": ngram_cache.N_MAX,
        }
        return max((longest.get(kind, self.draft_n_max) for kind in self.chosen), default=0)


def runs_a_model(kind: str) -> bool:
    """Whether a kind of drafter runs a model; the others look up text."""
    return kind.startswith("draft-")


def check_limits(name: str, field: str, value: int) -> None:
    """Check one number.

    Args:
        name: what the user called it.
        field: the field of `SpeculationSettings` that it is meant for.
        value: what the user asked for.

    Raises:
        InvalidParameterError: it is outside its range.
    """
    least, most = LIMITS[field]
    if not least <= value <= most:
        raise InvalidParameterError(name, f"must be between {least} and {most}, and is {value}")


def check_draft_lengths(name: str, least: int, name_of_most: str, most: int) -> None:
    """Check that a draft can be long enough to be used, for drafters that run a model.

    Args:
        name: what the user called the smallest length.
        least: that length.
        name_of_most: what the user called the largest length.
        most: that length.

    Raises:
        InvalidParameterError: nothing would ever be drafted.
    """
    if least > most:
        raise InvalidParameterError(
            name, f"must be at most {name_of_most}, which is {most}, and is {least}"
        )


def check_probability(name: str, value: float) -> None:
    """Check a probability.

    Args:
        name: what the user called it.
        value: what the user asked for.

    Raises:
        InvalidParameterError: it is none.
    """
    if not 0 <= value <= 1:
        raise InvalidParameterError(name, f"must lie between 0 and 1, and is {value}")
