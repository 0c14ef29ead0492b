"""Swizzles in sources that define operators: `v.xy` becomes a call.

In our headers a swizzle is a property. Where a template sees any namespace-scope operator of the
same name, clang 22 takes `v.xy * 2` and `v.xy += 2` for built-in arithmetic and refuses them.
Without such operators nothing is rewritten, so that clang's messages show what the author wrote.
"""

from __future__ import annotations

from anymetal.msl.edits import Edits
from anymetal.msl.tokens import TokenRange

_COMPOUND = frozenset({"+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", "++", "--"})


def rewrite_swizzles(tokens: TokenRange, edits: Edits) -> None:
    if not _defines_operators(tokens):
        return
    declared = _declared_names(tokens)
    for index, text in enumerate(tokens.texts):
        if not _is_member(tokens, index) or text in declared:
            continue
        places = _components(text)
        if places is not None and tokens.text(index + 1) not in ("(", "="):
            edits.word(index, _call(places, _is_changed(tokens, index)))


def _defines_operators(tokens: TokenRange) -> bool:
    """Function objects do not count: `operator()` is always a member."""
    return any(
        text == "operator" and tokens.text(index + 1) != "("
        for index, text in enumerate(tokens.texts)
    )


def _is_member(tokens: TokenRange, index: int) -> bool:
    return tokens.is_name(index) and tokens.text(index - 1) in (".", "->")


def _declared_names(tokens: TokenRange) -> frozenset[str]:
    """Names that stand elsewhere than behind a dot, too: perhaps members of the author's own."""
    return frozenset(
        text
        for index, text in enumerate(tokens.texts)
        if len(text) <= 4 and tokens.is_name(index) and not _is_member(tokens, index)
    )


def _components(name: str) -> tuple[int, ...] | None:
    """The components a swizzle selects; None for other names, and for x to w, which are members."""
    if len(name) > 4:
        return None
    for letters in ("xyzw", "rgba"):
        if all(letter in letters for letter in name):
            return tuple(map(letters.index, name)) if name not in ("x", "y", "z", "w") else None
    return None


def _is_changed(tokens: TokenRange, index: int) -> bool:
    behind = tokens.texts[index + 1 : index + 4]
    return behind[0] in _COMPOUND or behind == [">", ">", "="]


def _call(places: tuple[int, ...], is_changed: bool) -> str:
    letters = "".join("xyzw"[place] for place in places)
    if len(places) == 1:
        return letters
    if is_changed:
        return f"template am_at<{', '.join(map(str, places))}>()"
    return f"am_get_{letters}()"
