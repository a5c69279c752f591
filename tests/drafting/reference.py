"""What the n-gram drafters mean, written down as plainly as possible: search everything."""


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
