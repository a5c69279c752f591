"""What the n-gram drafters mean, written down as plainly as possible: search everything."""

from collections.abc import Iterable

from surefoot.drafting.ngram_cache import LAX, STRICT
from surefoot.drafting.ngram_counts import Threshold


def ngram_simple(text: list[int], most: int, size_n: int, size_m: int, min_hits: int) -> list[int]:
    """Copy what follows the last earlier occurrence of the last n tokens."""
    if len(text) < size_n:
        return []
    ngram = text[-size_n:]
    ends = [end for end in range(size_n, len(text)) if text[end - size_n : end] == ngram]
    if len(ends) < min_hits:
        return []
    copied = list(text)
    for offset in range(min(most, size_m)):
        copied.append(copied[ends[-1] + offset])
    return copied[len(text) :]


def ngram_mod(text: list[int], most: int, n_match: int, n_min: int, n_max: int) -> list[int]:
    """Append what last followed the last n tokens, again and again; the last token is unread."""
    read = text[:-1]
    guessed = list(text)
    while len(guessed) < len(text) + n_max and len(guessed) >= n_match:
        ngram = guessed[-n_match:]
        ends = [end for end in range(n_match, len(read)) if read[end - n_match : end] == ngram]
        if not ends:
            break
        guessed.append(read[ends[-1]])
    run = guessed[len(text) :]
    return run[:most] if len(run) >= min(n_min, n_max) else []


def ngram_map_k(
    text: list[int],
    most: int,
    size_n: int,
    size_m: int,
    min_hits: int,
    limits: dict[tuple[int, ...], int],
) -> list[int]:
    """Copy what follows the first occurrence of the last n tokens, no further than it was right."""
    if len(text) < size_n:
        return []
    ngram = text[-size_n:]
    ends = [end for end in range(size_n, len(text)) if text[end - size_n : end] == ngram]
    if len(ends) < min_hits:
        return []
    copied = list(text)
    for offset in range(min(most, size_m, limits.get(tuple(ngram), size_m))):
        copied.append(copied[ends[0] + offset])
    return copied[len(text) :]


def ngram_map_k4v(text: list[int], size_n: int, size_m: int, min_hits: int) -> list[int]:
    """What followed the last n tokens at least twice as often as all else, of four values."""
    ngram = text[-size_n:]
    values: dict[tuple[int, ...], int] = {}
    for end in range(size_n, len(text) - size_m + 1):
        value = tuple(text[end : end + size_m])
        if text[end - size_n : end] == ngram and (value in values or len(values) < 4):
            values[value] = values.get(value, 0) + 1
    if sum(values.values()) < min_hits:
        return []
    best = max(values, key=lambda value: values[value])
    others = sum(values.values()) - values[best]
    return list(best) if values[best] >= 2 * others else []


def ngram_cache(
    text: list[int], most: int, corpus: list[int], others: list[list[int]] | None
) -> list[int]:
    """Append the token that followed the longest n-gram often enough, again and again.

    Args:
        text: the sequence's own text.
        most: most tokens.
        corpus: the text that the static counts were made from.
        others: texts of other sequences, all earlier; None for no dynamic counts.
    """
    drafted = list(text)
    while len(drafted) < len(text) + most and len(drafted) >= 2:
        static = _followers([corpus], drafted[-2:])
        guesses = []
        for texts, thresholds in (([text], LAX), (others and [*others, text], STRICT)):
            for size in (4, 3, 2, 1):
                if texts and len(drafted) >= size:
                    followers = _followers(texts, drafted[-size:])
                    guesses.append(_likely(followers, static, thresholds[size - 1]))
        guesses.append(_likely(static, [], LAX[1]))
        found = [guess for guess in guesses if guess is not None]
        if not found:
            break
        drafted.append(found[0])
    return drafted[len(text) :]


def _followers(texts: Iterable[list[int]], ngram: list[int]) -> list[int]:
    """The tokens behind each occurrence."""
    size = len(ngram)
    return [
        text[end]
        for text in texts
        for end in range(size, len(text))
        if text[end - size : end] == ngram
    ]


def _likely(followers: list[int], static: list[int], threshold: Threshold) -> int | None:
    if len(followers) < threshold.samples:
        return None
    leader = max(
        followers,
        # Of several with the highest count the one that got there first.
        key=lambda token: (followers.count(token), -_place_of_last(followers, token)),
    )
    weights = {
        token: followers.count(token) * (100 * static.count(token) or 1)
        for token in [leader, *followers]
    }
    token = max(weights, key=lambda token: weights[token])
    share = 100 * followers.count(token) / len(followers)
    return token if share >= threshold.percent else None


def _place_of_last(followers: list[int], token: int) -> int:
    return max(place for place, other in enumerate(followers) if other == token)
