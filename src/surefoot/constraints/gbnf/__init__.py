"""GBNF, the language of llama.cpp's grammars, turned into llguidance's Lark.

Both describe the same texts, but Lark cuts a text greedily into lexemes before it parses, which
GBNF does not. So the lexemes are chosen such that greed can't do harm.
"""

from surefoot.constraints.gbnf.writing import lark_from_gbnf

__all__ = ["lark_from_gbnf"]
