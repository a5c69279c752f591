"""Case O1: whether a draft model means the same tokens as the target, and what differs if not."""

import pytest

from surefoot.drafting.vocabulary import Vocabulary, VocabularyMismatchError, shared_tokens
from surefoot.runtime.simulated import SimulatedTokenizer

WORDS = [b"a", b"b", b" the", b"\xc3", b"\xa9", b"def", b"<|end|>"]


def target(texts: list[bytes] = WORDS, *special: int) -> Vocabulary:
    return Vocabulary("big", texts, frozenset(special))


def drafter(texts: list[bytes], *special: int) -> Vocabulary:
    return Vocabulary("small", texts, frozenset(special))


def refusal(one: Vocabulary, other: Vocabulary) -> str:
    with pytest.raises(VocabularyMismatchError) as caught:
        shared_tokens(one, other)
    return str(caught.value)


def test_equal_tokens_are_all_shared() -> None:
    assert shared_tokens(target(), drafter(list(WORDS))) == 7


def test_a_tail_on_either_side_is_left_out() -> None:
    longer = [*WORDS, b"<tool>", b"more"]
    assert shared_tokens(target(), drafter(longer)) == 7
    assert shared_tokens(target(longer), drafter(WORDS)) == 7


def test_padding_is_no_token() -> None:
    """Qwen2.5 pads where Qwen3 has its thinking marks."""
    assert shared_tokens(target([*WORDS, b"<think>"]), drafter([*WORDS, b"", b"", b""])) == 7


def test_the_same_width_but_another_tokenizer_is_refused() -> None:
    text = refusal(target(), drafter([b"b", b"a", *WORDS[2:]]))
    assert text == (
        "can't draft for big with small: their tokens differ. Token 0 is 'a' to the target and 'b' "
        "to the draft model; 1 more differ, of 7 that could be the same (the target has 7 tokens, "
        "the draft model 7). Use a draft model of the target's own family, with the same tokenizer "
        "(-md)."
    )


def test_the_first_difference_is_told_with_both_texts_and_the_sizes() -> None:
    text = refusal(target(), drafter([*WORDS[:3], b"\xc4", *WORDS[4:], b"x"]))
    assert r"Token 3 is b'\xc3' to the target and b'\xc4' to the draft model, of 7" in text
    assert "(the target has 7 tokens, the draft model 8)" in text


def test_a_special_token_is_called_one() -> None:
    text = refusal(target(WORDS, 6), drafter([*WORDS[:6], b"</s>"], 6))
    assert "Token 6 is the special token '<|end|>' to the target and" in text
    assert "the special token '</s>' to the draft model" in text


def test_a_hole_is_a_difference() -> None:
    text = refusal(target(), drafter([b"a", b"", *WORDS[2:]]))
    assert "Token 1 is 'b' to the target and nothing to the draft model" in text


def test_the_same_text_is_the_same_token_whether_it_is_called_special_or_not() -> None:
    assert shared_tokens(target(WORDS, 6), drafter(WORDS)) == 7


@pytest.mark.parametrize("texts", [[], [b""] * 7])
def test_a_file_without_tokenizer_is_refused(texts: list[bytes]) -> None:
    assert "the draft model's file carries no tokenizer" in refusal(target(), drafter(texts))
    assert "the target's file carries no tokenizer" in refusal(target(texts), drafter(WORDS))


def test_a_vocabulary_is_read_from_a_tokenizer_special_tokens_as_they_are_written() -> None:
    vocabulary = Vocabulary.of("toy", 64, SimulatedTokenizer(64))
    assert vocabulary.texts[62:] == [b"<|im_start|>", b"<|im_end|>"]
    assert vocabulary.special == {62, 63}
    assert vocabulary.used == len(set(vocabulary.texts)) == 64
    assert shared_tokens(vocabulary, Vocabulary.of("twin", 64, SimulatedTokenizer(64))) == 64
