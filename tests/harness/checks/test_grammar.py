"""Laws of the grammar's own reading."""

from __future__ import annotations

import pytest

from eval_suites.feature_cases import GRAMMARS
from harness.checks.scope.grammar import GrammarError, obeys_grammar

NESTED = 'root ::= "(" root ")" root | ""\n'


@pytest.mark.parametrize(
    ("text", "grammar", "obeys"),
    [
        ("1+2", GRAMMARS[0], True),
        ("(1*2)+((3*4)*5)", GRAMMARS[0], True),
        ("1+2+3+4", GRAMMARS[0], False),
        ("1+", GRAMMARS[0], False),
        ("(1*2+3", GRAMMARS[0], False),
        ("set ad = on;", GRAMMARS[1], True),
        ("set a0f = 123;", GRAMMARS[1], True),
        ("set a0f = 1;", GRAMMARS[1], False),
        ("et a0f = on;s", GRAMMARS[1], False),
        ("(()())()", NESTED, True),
        ("(()", NESTED, False),
        ('a"\n', 'root ::= [^b] "\\"" "\\n"', True),
        ("aaab", 'root ::= "a"* "b"+', True),
        ("", 'root ::= ("a"?)*', True),
    ],
)
def test_a_text_obeys_exactly_if_it_derives_from_the_root(text: str, grammar: str, obeys: bool) -> None:
    assert obeys_grammar(text, grammar) is obeys


@pytest.mark.parametrize(
    "grammar", ['root ::= "a', "root ::= other", 'other ::= "a"', 'root ::= ("a"', "root ::= root", '"a"']
)
def test_what_is_no_grammar_is_said(grammar: str) -> None:
    with pytest.raises(GrammarError):
        obeys_grammar("a", grammar)
