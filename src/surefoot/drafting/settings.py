"""How to speculate, as users ask for it: which drafters, and the parameters of each.

Fields are named after llama-server's options without their `--spec-`. Defaults and ranges are
those of its build 11434 (`common/common.h`, `common/arg.cpp`), except that it speculates only when
told to, and sets no upper limit to the draft's length for drafters that run a model, or to hits.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from surefoot.decoding import InvalidParameterError

LIMITS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "draft_n_max": (0, 1024),
        "draft_n_min": (0, 1024),
        "ngram_simple_size_n": (1, 1024),
        "ngram_simple_size_m": (1, 1024),
        "ngram_simple_min_hits": (1, 1 << 16),
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
        types: names of drafters, to be tried in this order; `none` among them turns all off.
        draft_n_max: most tokens in a draft, for drafters that run a model.
        draft_n_min: a shorter draft is not used, for drafters that run a model.
        ngram_simple_size_n: tokens in the n-gram that is looked up.
        ngram_simple_size_m: most tokens in a draft.
        ngram_simple_min_hits: how often the n-gram must have occurred before.
        ngram_mod_n_match: tokens in the n-gram that is looked up.
        ngram_mod_n_min: a run of fewer predictable tokens is not used.
        ngram_mod_n_max: most tokens in a draft.
        ngram_mod_shared: whether requests may be drafted for from each other's text.

    Raises:
        InvalidParameterError: a number is outside its range.
    """

    types: tuple[str, ...] = ("ngram-simple",)
    draft_n_max: int = 3
    draft_n_min: int = 0
    ngram_simple_size_n: int = 12
    ngram_simple_size_m: int = 48
    ngram_simple_min_hits: int = 1
    ngram_mod_n_match: int = 24
    ngram_mod_n_min: int = 48
    ngram_mod_n_max: int = 64
    ngram_mod_shared: bool = False

    def __post_init__(self) -> None:
        """Check the ranges."""
        for field in LIMITS:
            check_limits(field, field, getattr(self, field))

    @property
    def chosen(self) -> tuple[str, ...]:
        """The types to use, each once, in order; empty for no speculation."""
        return () if "none" in self.types else tuple(dict.fromkeys(self.types))

    @property
    def n_max(self) -> int:
        """The longest draft that any of the chosen drafters proposes; 0 for no speculation."""
        longest = {
            "ngram-simple": self.ngram_simple_size_m,
            "ngram-mod": self.ngram_mod_n_max,
        }
        return max((longest.get(kind, self.draft_n_max) for kind in self.chosen), default=0)


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
