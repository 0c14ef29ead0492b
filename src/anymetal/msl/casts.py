"""Casts to half, bfloat and types that templates leave open go through am_cast.

clang has no conversion between _Float16 and __bf16, which Metal's casts do. Only casts whose target
may be one of the two are touched: the two names, template parameters, and aliases.

A cast of a product to the type that it has is the product still: `T(a * b) + c` is fused. A
function would hide that from clang, and a vector's constructor from anymetal/vector.h. So where a
product is cast and then added to something, its type decides whether there is a cast at all.
"""

from __future__ import annotations

from anymetal.msl.aliases import aliases_in
from anymetal.msl.builtins import KNOWN_TYPES
from anymetal.msl.edits import Edits
from anymetal.msl.structure import Structure
from anymetal.msl.tokens import TokenRange

_ALWAYS = frozenset({"half", "bfloat", "float16_t", "bfloat16_t"})
_PREFIX_OPERATORS = frozenset({"-", "+", "!", "~", "*", "&", "++", "--"})
_ENDS_EXPRESSION = frozenset({")", "]", "}"})
_ADDING = frozenset({"+", "-", "+=", "-="})
_VECTORS = frozenset(
    {"vec", *(f"{name}{size}" for name in ("float", "half", "bfloat") for size in (2, 3, 4))}
)


class CastRewriter:
    def __init__(self, structure: Structure, edits: Edits) -> None:
        self.structure = structure
        self.tokens = structure.tokens
        self.edits = edits
        self.base_initialisers = _base_initialisers(structure)
        # What may stand for half or bfloat.
        self.open_types = _ALWAYS | structure.type_parameters | aliases_in(self.tokens).keys()

    def run(self) -> None:
        for index, text in enumerate(self.tokens.texts):
            if text == "static_cast":
                self._static_cast(index)
            elif text in self.open_types and self.tokens.is_name(index):
                self._named(index)
            elif text in _VECTORS:
                self._vector(index)

    def _static_cast(self, index: int) -> None:
        """`static_cast<T>(x)`; pointers and references are casts of another kind."""
        close = self.tokens.angle_end(index + 1) if self.tokens.text(index + 1) == "<" else None
        if close is None:
            return
        words = self.tokens.texts[index + 2 : close]
        if any(word in ("*", "&", "&&") for word in words):
            return
        type_ = " ".join(words)
        if self._keep_product(index, close + 1, type_, f"am_cast<{type_}>"):
            return
        if not all(word in KNOWN_TYPES and word not in _ALWAYS for word in words):
            self.edits.word(index, "am_cast")

    def _named(self, index: int) -> None:
        """`T(x)` or `(T)x`, where T may stand behind `typename` and a qualified name."""
        tokens = self.tokens
        following = tokens.text(index + 1)
        if following == "(":
            self._functional(index)
        elif following == ")" and tokens.text(index - 1) == "(":
            self._c_style(index)

    def _functional(self, index: int) -> None:
        tokens = self.tokens
        if tokens.text(index - 1) in ("operator", "::", ".", "->", "template", "~"):
            return
        if tokens.is_name(index - 1) and tokens.text(index - 1) not in _BEFORE_EXPRESSIONS:
            return  # a declaration: `uint T(...)`
        if index in self.base_initialisers:
            return
        close = tokens.partner.get(index + 1, index + 2)
        arguments = tokens.split_commas(index + 2, close)
        is_function_type = close == index + 3 and tokens.text(index + 2) in KNOWN_TYPES
        is_declarator = tokens.text(index + 2) in ("*", "&") and tokens.text(close + 1) in "[("
        if len(arguments) == 1 and not is_function_type and not is_declarator:
            type_ = tokens.text(index)
            if not self._keep_product(index, index + 1, type_, f"am_cast<{type_}>"):
                self.edits.word(index, f"am_cast<{type_}>")

    def _c_style(self, index: int) -> None:
        tokens = self.tokens
        before = index - 2
        follows_value = (
            tokens.text(before) in _ENDS_EXPRESSION
            or (tokens.text(before) == ">" and _closes_template(tokens, before))
            or (tokens.is_name(before) and tokens.text(before) not in _BEFORE_EXPRESSIONS)
        )
        if follows_value and not _closes_cast(tokens, before, self.open_types):
            return  # `f(T)`: an argument or a parameter
        type_ = tokens.text(index)
        end = operand_end(tokens, index + 2)
        if end is None:
            return
        if end == tokens.partner.get(index + 2, -1) + 1 and self._keep_product(
            index - 1, index + 2, type_, f"am_cast<{type_}>"
        ):
            return
        self.edits.replace(index - 1, end, [f"am_cast<{type_}>(", range(index + 2, end), ")"])

    def _vector(self, index: int) -> None:
        """`float4(a * b) + c`, `(vec<T, 2>)(a * b) + c`; all other casts to vectors stand as they
        are."""
        tokens, end = self.tokens, index + 1
        if tokens.text(end) == "<":
            end = (tokens.angle_end(end) or end) + 1
        while tokens.text(index - 1) == "::":
            index -= 2 if tokens.is_name(index - 2) else 1
        type_ = " ".join(tokens.texts[index:end])
        follows_name = tokens.is_name(index - 1)
        if follows_name and tokens.text(index - 1) not in _BEFORE_EXPRESSIONS:
            return  # a declaration
        if tokens.text(end) == "(":
            self._keep_product(index, end, type_, type_)
        elif tokens.text(end) == ")" and tokens.text(index - 1) == "(":
            self._keep_product(index - 1, end + 1, type_, type_)

    def _keep_product(self, start: int, opening: int, type_: str, cast: str) -> bool:
        """Whether a cast that starts here is of a product in brackets that is then added to
        something: it becomes a choice between the product and the cast."""
        tokens = self.tokens
        close = tokens.partner.get(opening)
        if tokens.text(opening) != "(" or close is None:
            return False
        is_added = tokens.text(start - 1) in _ADDING or tokens.text(close + 1) in ("+", "-")
        if not is_added or not _has_product(tokens, opening + 1, close):
            return False
        inside = range(opening, close + 1)
        plain = f"__remove_cvref({type_})"
        self.edits.replace(
            start,
            close + 1,
            [
                *("_Generic(", inside, f", {plain}: ", inside),
                *(f", const {plain}: ", inside, f", default: {cast}", inside, ")"),
            ],
        )
        return True


def rewrite_decltypes(tokens: TokenRange, edits: Edits) -> None:
    """`decltype(a * b)` without the const that tells a product of vectors (anymetal/vector.h)."""
    for index, text in enumerate(tokens.texts):
        close = tokens.partner.get(index + 1) if text == "decltype" else None
        if close is None or tokens.text(close + 1) == "::":
            continue
        if "*" in tokens.texts[index:close]:
            edits.word(index, "__remove_cv(decltype")
            edits.word(close, "))")


def _has_product(tokens: TokenRange, start: int, end: int) -> bool:
    """Whether there is a `*` between two operands outside of all brackets, and no comma."""
    found, index = False, start
    while index < end:
        text = tokens.text(index)
        if text == ",":
            return False
        if text == "*" and index > start:
            before = tokens.tokens[index - 1]
            found |= before.kind in ("name", "number") or before.text in _ENDS_EXPRESSION
        index = tokens.after(index)
    return found


_BEFORE_EXPRESSIONS = frozenset({"return", "case", "else", "do", "co_return"})


def _closes_cast(tokens: TokenRange, index: int, types: frozenset[str]) -> bool:
    """In `(float)(T)x` the bracket before `(T)` closes another cast."""
    if tokens.text(index) != ")":
        return False
    opening = tokens.partner.get(index, index)
    before = tokens.text(opening - 1)
    if tokens.is_name(opening - 1) and before in ("if", "while", "for", "switch"):
        return True
    inside = tokens.texts[opening + 1 : index]
    is_type = bool(inside) and all(
        word in types or word in _SCALARS or word in ("const", "unsigned") for word in inside
    )
    return is_type and not tokens.is_name(opening - 1)


def _closes_template(tokens: TokenRange, index: int) -> bool:
    """Does this `>` close template arguments, as in `f<int>(T)`, or compare, as in `a > (T)b`?"""
    start = index - 1
    while start > 0 and tokens.text(start) not in (";", "{", "}"):
        is_opening = tokens.text(start) == "<" and tokens.is_name(start - 1)
        if is_opening and tokens.angle_end(start) == index:
            return True
        start -= 1
    return False


def _base_initialisers(structure: Structure) -> frozenset[int]:
    """The names initialised in `: Base(x), member(y) {`: no casts."""
    tokens = structure.tokens
    found = set()
    for function in structure.functions:
        if function.initialisers is None or function.body is None:
            continue
        index = function.initialisers
        while index < function.body[0]:
            if tokens.text(index) in (":", ","):
                found.add(index + 1)
            index = tokens.after(index)
    return frozenset(found)


_SCALARS = frozenset(
    [
        "bool",
        "char",
        "uchar",
        "short",
        "ushort",
        "int",
        "uint",
        "long",
        "ulong",
        "float",
        "half",
        "bfloat",
    ]
)


def operand_end(tokens: TokenRange, index: int) -> int | None:
    """The index behind the operand of a cast that starts at index; None when none starts there."""
    while tokens.text(index) in _PREFIX_OPERATORS:
        index += 1
    if index >= len(tokens):
        return None
    kind, text = tokens.tokens[index].kind, tokens.text(index)
    if text == "(":
        end = tokens.after(index)
        if _starts_operand(tokens, end):  # a cast in turn: `(T)(float)x`
            return operand_end(tokens, end)
        return _postfix_end(tokens, end)
    if kind in ("number", "string", "char"):
        return index + 1
    if kind == "name" or text == "::":
        return _postfix_end(tokens, _name_end(tokens, index))
    return None


def _starts_operand(tokens: TokenRange, index: int) -> bool:
    """Directly behind a closing bracket, what can only be the operand of a cast."""
    return index < len(tokens) and tokens.tokens[index].kind in ("name", "number")


def _name_end(tokens: TokenRange, index: int) -> int:
    """Behind a qualified name with its template arguments."""
    while True:
        if tokens.text(index) == "::":
            index += 1
        index += 1
        if tokens.text(index) == "<":
            close = tokens.angle_end(index)
            if close is not None and tokens.text(close + 1) in ("(", "::", "{"):
                index = close + 1
        if tokens.text(index) != "::":
            return index


def _postfix_end(tokens: TokenRange, index: int) -> int:
    """Behind subscripts, calls, members and increments."""
    while True:
        text = tokens.text(index)
        if text in ("(", "[", "{"):
            if text == "{" and tokens.text(index - 1) == ")":
                return index
            index = tokens.after(index)
        elif text in (".", "->"):
            index += 1 + (tokens.text(index + 1) == "template")
            index = _name_end(tokens, index)
        elif text in ("++", "--"):
            index += 1
        else:
            return index
