"""GBNF is read as llama.cpp reads it: libllama's own grammar sampler allows the same tokens."""

import random
import re
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from surefoot import models
from surefoot.constraints import Controls, ControlSpec, Grammar, GrammarError
from surefoot.decoding import Control, ControlError, SurefootError
from surefoot.engine.vocabulary import controls_for
from surefoot.runtime.libllama import LibllamaRuntime, LoadSettings, load
from tests.constraints.llama_grammar import LlamaGrammar
from tests.constraints.toy import allowed_of

JSON = r"""
# A subset of JSON
root   ::= ws object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( pair ("," ws pair)* )? "}" ws
pair   ::= string ":" ws value
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= "-"? ("0" | [1-9] [0-9]{0,9}) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws     ::= | " " | "\n" [ \t]{0,8}
"""
GRAMMARS = [
    JSON,
    'root ::= (expr "=" term "\\n")+\nexpr ::= term ([-+*/] term)*\n'
    'term ::= ident | num | "(" expr ")"\nident ::= [a-z] [a-z0-9_]*\nnum ::= [0-9]+',
    'root ::= "a" ("b" | "c"){2,4} [^x-z\\n]',
    'root ::= ("- " [^\\n]+ "\\n")+',
    'root ::= [\\u3040-\\u309F\\x41]{1,3} "\\U0001F600"? . [^\\u0000-\\uFFFF]?',
    'root ::= "\\"\\\\\\[\\]\\t\\r\\n" [\\]\\[^-] [a-] [^-a]',
    "root ::= item-1\n\n  # rule names have dashes\nitem-1 ::=\n  (\n [a-z] | # comment\n  tail )\n"
    'tail ::= "!" "" | "?"',
    # Where a greedy lexer goes wrong
    'root ::= nest\nnest ::= [a-z]+ "b" | "(" nest ")"',
    'root ::= nest\nnest ::= ("a" | "ab") ("bc" | "c") | "(" nest ")"',
    'root ::= nest\nnest ::= [a-z]* [b-d]{2} nest? "." | "x"{0,3} "xy"',
    'root ::= block\nblock ::= "if" ws name block? "end" | name ws "=" ws name\n'
    'name ::= [a-z]+\nws ::= " "*',
    'root ::= "a" root? "a" | "aa"',
    'root ::= (("a" | "b" root) [ab]?){1,3}',
    'root ::= "x" | root2\nroot2 ::= [x-z] root [x-z]?',
]


@pytest.fixture(scope="module")
def runtime() -> Iterator[LibllamaRuntime]:
    with load(LoadSettings(models.TARGET, context_length=64, threads=1)) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def controls(runtime: LibllamaRuntime) -> Controls:
    return controls_for(runtime)


NEVER_IN_UTF8 = {0xC0, 0xC1, *range(0xF5, 0x100)}
"""Bytes that libllama takes for the beginning of a character all the same."""

LlamaReading = Callable[[str], LlamaGrammar]


@pytest.fixture(scope="module")
def llama_reading(runtime: LibllamaRuntime) -> LlamaReading:
    vocabulary, size = runtime.model.vocabulary, runtime.vocabulary_size
    return lambda source: LlamaGrammar(vocabulary, size, source)


def assert_same_tokens(
    runtime: LibllamaRuntime, control: Control, other: LlamaGrammar, said: list[int]
) -> list[int]:
    """Compare what may come next; returns the tokens with text that may."""
    ends = runtime.tokenizer.end_of_generation
    pieces = [runtime.tokenizer.piece(token) for token in range(runtime.vocabulary_size)]
    plain = [t for t, piece in enumerate(pieces) if piece and not NEVER_IN_UTF8 & set(piece)]
    theirs = other.allowed()
    text = b"".join(map(runtime.tokenizer.piece, said))
    if control.finished:
        assert theirs <= ends, text
        return []
    ours = set(allowed_of(control, runtime.vocabulary_size))
    assert bool(ours & ends) == bool(theirs & ends), text
    following = {t for t in plain if t in theirs}
    if control.forced():
        assert control.forced()[0] in following, text
        refused = [t for t in following if control.permitted([t]) == 0]
        assert not refused, (text, refused[:9])
    else:
        differing = following.symmetric_difference(t for t in plain if t in ours)
        assert not differing, (text, [runtime.tokenizer.piece(t) for t in sorted(differing)[:9]])
    return sorted(t for t in following if pieces[t].decode(errors="ignore").encode() == pieces[t])


def assert_same_walk(
    runtime: LibllamaRuntime, control: Control, other: LlamaGrammar, rng: random.Random, most: int
) -> None:
    said: list[int] = []
    while len(said) < most:
        following = assert_same_tokens(runtime, control, other, said)
        if not following:
            return
        short = [t for t in following if len(runtime.tokenizer.piece(t)) < 3]
        token = rng.choice(short if short and rng.random() < 0.7 else following)
        control.advance(token)
        other.accept(token)
        said.append(token)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("number", range(len(GRAMMARS)))
def test_the_same_tokens_as_llama_cpp(
    runtime: LibllamaRuntime,
    controls: Controls,
    llama_reading: LlamaReading,
    number: int,
    seed: int,
) -> None:
    source = GRAMMARS[number]
    control = controls.control(ControlSpec(Grammar("gbnf", source)))
    assert_same_walk(runtime, control, llama_reading(source), random.Random(seed), 12)


def nodes() -> st.SearchStrategy[str]:
    """Random right-hand sides over few letters, so that much is ambiguous."""
    leaves = st.sampled_from(
        ['"a"', '"b"', '"ab"', '"aba"', "[ab]", "[^a]", "[a-c]", '"("', "other", "root", "third"]
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(" ".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda got: f"({' | '.join(got)})"),
            st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}"])).map(
                lambda got: f"({got[0]}){got[1]}"
            ),
        ),
        max_leaves=7,
    )


def too_costly(error: SurefootError) -> bool:
    """Whether a grammar was refused for what it costs; random ones may be very ambiguous."""
    return any(said in str(error) for said in ("Too many items", "max is", "goes on for ever"))


# No shrinking: llama.cpp takes minutes for some of the simpler grammars that it leads to.
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(root=nodes(), other=nodes(), third=nodes(), seed=st.integers(0, 1000))
def test_random_grammars_allow_the_same_tokens_as_in_llama_cpp(
    runtime: LibllamaRuntime,
    controls: Controls,
    llama_reading: LlamaReading,
    root: str,
    other: str,
    third: str,
    seed: int,
) -> None:
    source = f'root ::= {root}\nother ::= "x" | {other}\nthird ::= "y" {third} | "z"\n'
    try:
        theirs = llama_reading(source)
    except ValueError:
        return
    try:
        control = controls.control(ControlSpec(Grammar("gbnf", source)))
        assert_same_walk(runtime, control, theirs, random.Random(seed), 8)
    except (GrammarError, ControlError) as error:
        if not too_costly(error):
            raise


def test_tokens_can_be_named(runtime: LibllamaRuntime, controls: Controls) -> None:
    [think] = runtime.tokenizer.encode("<think>")
    [a] = runtime.tokenizer.encode("a")
    spec = ControlSpec(Grammar("gbnf", f'root ::= "a" <think> <[{a}]> !<[{a}]> "a"'))
    control = controls.control(spec)
    assert control.permitted([a, think, a, think, a]) == 5
    assert control.permitted([a, think, a, a]) == 3
    assert control.permitted([a, a]) == 1


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('root ::= "a" nothing', 'line 1, column 14: no rule is named "nothing"'),
        ('root ::= "a"\nb ::= c', 'line 2, column 7: no rule is named "c"'),
        ('root ::= root "a" | "b"', 'line 1, column 1: the rule "root" begins with itself'),
        ('root ::= "x"? b\nb ::= root', "begins with itself"),
        ('root ::= "a" root', 'line 1, column 1: the rule "root" goes on for ever'),
        ('root ::= "b" | x\nx ::= "a" x', 'line 1, column 16: the rule "x" goes on for ever'),
        ('a ::= "a"', 'no rule named "root"'),
        ("root = 1", 'line 1, column 6: expected "::="'),
        ('root ::= "a', "line 1, column 10: this text is not closed"),
        ("root ::= [a", "line 1, column 10: this set is not closed"),
        ('root ::= ("a" | "b"', "line 1, column 10: this group is not closed"),
        ('root ::= "a")', "line 1, column 13: ')' is not expected here"),
        ('root ::= "\\q"', "line 1, column 11: there is no escape \\q"),
        ('root ::= "\\u12"', "line 1, column 11: \\u needs 4 hexadecimal digits"),
        ('root ::= "\\ud800"', "line 1, column 11: \\ud800 is no character"),
        ("root ::= [z-a]", "line 1, column 11: the range ends before it begins"),
        ("root ::= *", "line 1, column 10: there is nothing in front of '*'"),
        ('root ::= "a"{x}', "expected a number of repetitions"),
        ('root ::= "a"{3,2}', "the most is less than the least"),
        ('root ::= "a"{2001}', "more than 2000 repetitions"),
        ('root ::= ("a"{100}){100}', "line 1, column 20: repetitions come to more than 2000"),
        ("root ::= <no-such-token>", "the model has no token <no-such-token>"),
        ("root ::= <[99999999]>", "the model has no token <[99999999]>"),
        ("root ::= " + "(" * 5000, "more than 100 groups inside each other"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(controls: Controls, source: str, said: str) -> None:
    with pytest.raises(GrammarError, match=re.escape(said)):
        controls.check(ControlSpec(Grammar("gbnf", source)))


def test_many_rules_are_read_in_short_time(controls: Controls) -> None:
    """Written out they would be 2 ** 60 characters, and 900 levels deep."""
    doubled = [f"r{n} ::= r{n + 1} r{n + 1}" for n in range(60)]
    chained = [f'c{n} ::= "a" c{n + 1}' for n in range(900)]
    rules = ['root ::= "x" | r0 | c0', *doubled, 'r60 ::= "a"', *chained, 'c900 ::= "b"']
    assert controls.check(ControlSpec(Grammar("gbnf", "\n".join(rules)))) == []
    more = [f'd{n} ::= "a"' for n in range(900)]
    with pytest.raises(GrammarError, match="of which 1000 may be"):
        controls.check(ControlSpec(Grammar("gbnf", "\n".join([*rules, *more]))))
