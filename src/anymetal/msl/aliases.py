"""What the names stand for that `using X = ...;` and `typedef ... X;` give to plain types."""

from __future__ import annotations

from anymetal.msl.tokens import TokenRange


def aliases_in(tokens: TokenRange) -> dict[str, str]:
    """Types by the names that they have anywhere in a text; none of pointers and functions."""
    found = {}
    for index, text in enumerate(tokens.texts):
        is_using = text == "using" and tokens.text(index + 2) == "=" and tokens.is_name(index + 1)
        if not is_using and text != "typedef":
            continue
        end = index
        while end < len(tokens) and tokens.text(end) != ";":
            end = tokens.after(end)
        if any(word in ("*", "&", "(", "{") for word in tokens.texts[index:end]):
            continue
        if is_using:
            found[tokens.text(index + 1)] = tokens.spell(index + 3, end)
        else:
            found[tokens.text(end - 1)] = tokens.spell(index + 1, end - 1)
    return found


def resolved(type_: str, aliases: dict[str, str]) -> str:
    """A type without aliases."""
    seen = set()
    while type_ in aliases and type_ not in seen:
        seen.add(type_)
        type_ = aliases[type_]
    return type_
