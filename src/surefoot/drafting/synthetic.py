"""Synthetic acceptance as the settings ask for it; `decoding.synthetic` says what it is."""

import logging

from surefoot.decoding import InvalidParameterError, SyntheticAcceptance, rates_for_length
from surefoot.drafting.settings import SpeculationSettings

_LOG = logging.getLogger(__name__)


def synthetic_acceptance(
    settings: SpeculationSettings, longest_draft: int | None = None
) -> SyntheticAcceptance | None:
    """What judges drafts by chance; None for real verification.

    Args:
        settings: with either rates, a mean length, or neither.
        longest_draft: most tokens in a draft; None for what the settings say.

    Raises:
        InvalidParameterError: the rates or the length don't fit the longest draft.
    """
    longest = settings.n_max if longest_draft is None else longest_draft
    if not settings.synth_rates and settings.synth_len is None:
        return None
    if settings.synth_len is None:
        acceptance = _with_rates(settings.synth_rates, longest)
    else:
        acceptance = _with_length(settings.synth_len, longest)
    _LOG.warning(
        "synthetic acceptance is on, with a mean length of %.3f: the text is not the model's",
        acceptance.mean_length,
    )
    return acceptance


def _with_rates(rates: tuple[float, ...], longest: int) -> SyntheticAcceptance:
    if len(rates) != longest:
        raise InvalidParameterError(
            "--spec-synth-rates",
            f"must have one rate for each of the {longest} tokens of the longest draft, and has "
            f"{len(rates)}",
        )
    return SyntheticAcceptance(rates)


def _with_length(length: float, longest: int) -> SyntheticAcceptance:
    if longest == 0:
        raise InvalidParameterError("--spec-synth-len", "needs a drafter; give a --spec-type")
    if not 1 <= length <= longest + 1:
        raise InvalidParameterError(
            "--spec-synth-len",
            f"must be between 1 and {longest + 1}, one more than the longest draft, and is "
            f"{length:g}",
        )
    return SyntheticAcceptance(rates_for_length(length, longest))
