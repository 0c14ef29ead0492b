"""The tokenizer keeps every character and knows which brackets belong together."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anymetal.msl.tokens import Token, TokenRange, tokenize_line

SYMBOLS = [*"()[]{}<>*&=+-;,.?:!~%^|", "->", "<<=", ">>", "::", "&&"]
WORDS = st.sampled_from(
    [*SYMBOLS, "float", "x", "1.0h", "0x1p-3f", "1e+5", ".5", "'a'", '"s t"'],
)


def tokens_of(text: str) -> TokenRange:
    return TokenRange(list(tokenize_line(text)))


@given(st.lists(WORDS, max_size=40))
def test_tokens_hold_every_character(words: list[str]) -> None:
    text = " ".join(words)
    assert "".join(token.text for token in tokenize_line(text)) == "".join(
        re.sub(r" (?!t\")", "", word) for word in words
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a->b.c", ["a", "->", "b", ".", "c"]),
        ("1.5e-3h+x", ["1.5e-3h", "+", "x"]),
        ("0x1.8p+3f", ["0x1.8p+3f"]),
        ("1'000'000u", ["1'000'000u"]),
        ("vec<vec<T,2>>=3", ["vec", "<", "vec", "<", "T", ",", "2", ">", ">", "=", "3"]),
        ('f("a\\"b", \'\\n\')', ["f", "(", '"a\\"b"', ",", "'\\n'", ")"]),
        ("x<<=2", ["x", "<<=", "2"]),
        ("int...", ["int", "..."]),
    ],
)
def test_tokens_of_text(text: str, expected: list[str]) -> None:
    assert [token.text for token in tokenize_line(text)] == expected


def test_space_before_a_token_is_remembered() -> None:
    assert [token.space for token in tokenize_line("a b  c(d")] == [False, True, True, False, False]


def test_brackets_know_their_partners() -> None:
    tokens = tokens_of("f(a[1], {2})")
    assert tokens.unmatched is None
    assert tokens.partner[1] == len(tokens) - 1
    assert tokens.after(1) == len(tokens)


@pytest.mark.parametrize(
    ("text", "place"), [("f(a]", 3), ("f(a", 1), ("a)", 1), ("{(})", 1), ("{)}", 1)]
)
def test_bracket_without_a_partner_is_found(text: str, place: int) -> None:
    assert tokens_of(text).unmatched == place


@pytest.mark.parametrize(
    ("text", "end"),
    [("<a, b>", 4), ("<a<b>, c>", 7), ("<(a > b), c>", 8), ("<a; b>", None), ("<a) > b", None)],
)
def test_end_of_template_arguments(text: str, end: int | None) -> None:
    assert tokens_of(text).angle_end(0) == end


def test_commas_inside_brackets_do_not_split() -> None:
    tokens = tokens_of("device T* a, vec<T, 4> b = f(1, 2), c[2]")
    parts = [tokens.spell(*part) for part in tokens.split_commas(0, len(tokens))]
    assert parts == ["device T* a", "vec<T, 4> b = f(1, 2)", "c[2]"]


def test_comparison_does_not_hide_a_comma() -> None:
    tokens = tokens_of("a < b, c")
    assert [tokens.spell(*p) for p in tokens.split_commas(0, len(tokens))] == ["a < b", "c"]


def test_attributes_are_double_brackets() -> None:
    assert tokens_of("[[buffer(0)]]").is_attribute(0)
    assert not tokens_of("[a[0]]").is_attribute(0)


def test_text_outside_the_range_is_empty() -> None:
    tokens = TokenRange([Token("name", "a", False, 0, 0)])
    assert (tokens.text(-1), tokens.text(0), tokens.text(1)) == ("", "a", "")
