"""Tokens -> the declarations they form: namespaces, classes, functions, variables, instantiations.

This is no C++ parser. It knows where declarations start and end and which bracket holds parameters
or a body; expressions and types stay token ranges. That is enough for every rewrite, and survives
code it has never seen.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from anymetal.msl.tokens import TokenRange

_CLASS_WORDS = frozenset({"struct", "class", "union"})
_SKIPPED_WITH_BRACKET = frozenset({"alignas", "decltype", "__attribute__", "noexcept"})
_CONTROL_WORDS = frozenset({"if", "for", "while", "switch"})
_ACCESS_WORDS = frozenset({"public", "private", "protected"})


@dataclass(frozen=True)
class Scope:
    """The namespaces and classes around a declaration."""

    kind: str = "namespace"  # or "class"
    path: tuple[str, ...] = ()
    template_parameters: frozenset[str] = frozenset()
    opening: int = -1  # the brace of a class body: specialisations share a name, not a scope

    def namespace(self, name: str) -> Scope:
        return Scope("namespace", (*self.path, name), self.template_parameters)

    def class_body(self, name: str, parameters: frozenset[str], opening: int) -> Scope:
        inner = self.template_parameters | parameters
        return Scope("class", (*self.path, name), inner, opening)


@dataclass
class Declaration:
    """A range of tokens; `head` is where it starts behind `template <...>`."""

    start: int
    head: int
    end: int
    scope: Scope


@dataclass
class Function(Declaration):
    """A function declaration, or definition when it has a body."""

    name: tuple[int, int]
    parameters: tuple[int, int]  # the parentheses
    body: tuple[int, int] | None  # the braces
    initialisers: int | None  # the `:` of a constructor
    template_parameters: frozenset[str]

    @property
    def is_template(self) -> bool:
        return self.head > self.start


@dataclass
class Class(Declaration):
    """A class definition; specialisations keep their template arguments in the head."""

    name: str
    body: tuple[int, int]


@dataclass
class Variable(Declaration):
    """Anything else that ends with a semicolon and declares names: variables, fields."""


@dataclass
class Instantiation(Declaration):
    """`template ... ;` without angle brackets: an explicit instantiation."""


@dataclass
class Enum(Declaration):
    """An enumeration and its braces."""

    body: tuple[int, int]


@dataclass
class Structure:
    """All declarations of a translation unit, in the order of the text."""

    tokens: TokenRange
    functions: list[Function] = field(default_factory=list)
    classes: list[Class] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    instantiations: list[Instantiation] = field(default_factory=list)
    enums: list[Enum] = field(default_factory=list)
    aliases: list[Declaration] = field(default_factory=list)
    type_parameters: set[str] = field(default_factory=set)


def read_structure(tokens: TokenRange) -> Structure:
    """Walks the whole translation unit once."""
    structure = Structure(tokens)
    _Walker(structure).walk(0, len(tokens), Scope())
    return structure


class _Walker:
    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self.tokens = structure.tokens

    # ---- scopes ----------------------------------------------------------------------------------

    def walk(self, index: int, end: int, scope: Scope) -> None:
        """Reads the declarations of a namespace or class body."""
        while index < end:
            following = self._declaration(index, end, scope)
            index = max(following, index + 1)

    def _declaration(self, start: int, end: int, scope: Scope) -> int:
        """Reads one declaration and returns the index behind it."""
        tokens = self.tokens
        if tokens.text(start) in (";", "}") or tokens.tokens[start].kind == "pragma":
            return start + 1
        if tokens.text(start) in _ACCESS_WORDS and tokens.text(start + 1) == ":":
            return start + 2
        if tokens.text(start) == "template" and tokens.text(start + 1) != "<":
            stop = self._semicolon(start, end)
            self.structure.instantiations.append(Instantiation(start, start + 1, stop, scope))
            return stop
        head, parameters = self._template_heads(start, end)
        first = self._skip_attributes(head, end)
        word = tokens.text(first)
        if word == "inline" and tokens.text(first + 1) == "namespace":
            first, word = first + 1, "namespace"
        is_block = word == "extern" and tokens.texts[first + 1 : first + 3] == ['""', "{"]
        if word == "namespace" or is_block:
            return self._namespace(first, end, scope)
        if word in ("using", "typedef"):
            stop = self._semicolon(first, end)
            self.structure.aliases.append(Declaration(start, head, stop, scope))
            self._local_class(first, stop, scope, parameters)
            return stop
        if word in ("static_assert", "friend") and tokens.text(first + 1) in ("(", *_CLASS_WORDS):
            return self._semicolon(first, end)
        return self._class_or_declarator(start, head, end, scope, parameters)

    def _namespace(self, first: int, end: int, scope: Scope) -> int:
        tokens = self.tokens
        index = first
        while index < end and tokens.text(index) not in ("{", ";"):
            index = tokens.after(index)
        if tokens.text(index) != "{":
            return index + 1  # a namespace alias
        close = tokens.partner.get(index, end)
        inner = scope
        if tokens.text(first) == "namespace":
            names = [tokens.text(i) for i in range(first + 1, index) if tokens.is_name(i)]
            for name in names or [""]:
                inner = inner.namespace(name)
        self.walk(index + 1, close, inner)
        return close + 1

    # ---- classes, enums --------------------------------------------------------------------------

    def _class_or_declarator(
        self, start: int, head: int, end: int, scope: Scope, parameters: frozenset[str]
    ) -> int:
        keyword, brace = self._class_brace(head, end)
        if brace is None:
            return self._declarator(start, head, end, scope, parameters)
        stop = self._semicolon(self.tokens.partner.get(brace, end - 1) + 1, end)
        close = self.tokens.partner.get(brace, end)
        if self.tokens.text(keyword) == "enum":
            self.structure.enums.append(Enum(start, head, stop, scope, (brace, close)))
            return stop
        name = self._class_name(keyword, brace)
        self.structure.classes.append(Class(start, head, stop, scope, name, (brace, close)))
        self.walk(brace + 1, close, scope.class_body(name, parameters, brace))
        return stop

    def _class_brace(self, index: int, end: int) -> tuple[int, int | None]:
        """The class keyword and the `{` of its body; None when this declares no class."""
        tokens = self.tokens
        keyword = -1
        while index < end:
            text = tokens.text(index)
            if text in _CLASS_WORDS or text == "enum":
                keyword = index if keyword < 0 else keyword
            elif text == "{":
                return keyword, index if keyword >= 0 else None
            elif text in _SKIPPED_WITH_BRACKET and tokens.text(index + 1) == "(":
                index += 1
            elif text in (";", "=", "(", "}") or (text == "operator"):
                return keyword, None
            elif text == "<" and tokens.is_name(index - 1):
                index = tokens.angle_end(index) or index
            index = tokens.after(index)
        return keyword, None

    def _class_name(self, keyword: int, brace: int) -> str:
        """The last name before the specialisation's arguments, the bases or the body."""
        tokens = self.tokens
        name = ""
        index = keyword + 1
        while index < brace and tokens.text(index) not in (":", "<"):
            if tokens.text(index) in _SKIPPED_WITH_BRACKET:
                index += 1
            elif tokens.is_name(index) and tokens.text(index) not in _CLASS_WORDS | {"final"}:
                name = tokens.text(index)
            index = tokens.after(index)
        return name

    def _local_class(self, first: int, stop: int, scope: Scope, parameters: frozenset[str]) -> None:
        """`typedef struct {...} Name;` holds a class body too."""
        keyword, brace = self._class_brace(first + 1, stop)
        if brace is None or self.tokens.text(keyword) == "enum":
            return
        close = self.tokens.partner.get(brace, stop)
        name = self._class_name(keyword, brace)
        self.structure.classes.append(
            Class(keyword, keyword, close + 1, scope, name, (brace, close))
        )
        self.walk(brace + 1, close, scope.class_body(name, parameters, brace))

    # ---- functions and variables -----------------------------------------------------------------

    def _declarator(
        self, start: int, head: int, end: int, scope: Scope, parameters: frozenset[str]
    ) -> int:
        opening = self._parameter_list(head, end)
        if opening is None:
            return self._variable(start, head, end, scope)
        close = self.tokens.partner.get(opening, end)
        initialisers, brace = self._behind_parameters(close + 1, end)
        name = (self._name_start(opening, head), opening)
        if brace is None:
            stop = self._semicolon(close + 1, end)
            body = None
        else:
            body = (brace, self.tokens.partner.get(brace, end))
            stop = body[1] + 1
        self.structure.functions.append(
            Function(
                start,
                head,
                stop,
                scope,
                name,
                (opening, close),
                body,
                initialisers,
                parameters | scope.template_parameters,
            )
        )
        if body is not None:
            self._function_body(body, scope, parameters)
        return stop

    def _variable(self, start: int, head: int, end: int, scope: Scope) -> int:
        stop = self._semicolon(start, end)
        self.structure.variables.append(Variable(start, head, stop, scope))
        index = head
        while index < stop:  # a lambda in the initialiser has statements
            following = index + 1
            if self.tokens.text(index) == "{":
                following = self.tokens.after(index)
                self._function_body((index, following - 1), scope, frozenset())
            index = following
        return stop

    def _parameter_list(self, index: int, end: int) -> int | None:
        """The `(` of a function's parameters; None when a variable is declared."""
        tokens = self.tokens
        while index < end:
            text = tokens.text(index)
            if text in (";", "{", "=", "}"):
                return None
            if text == "operator":
                return self._operator_parameters(index, end)
            if text == "(":
                previous = tokens.text(index - 1)
                if previous in _SKIPPED_WITH_BRACKET or tokens.text(index + 1) in ("*", "&", "("):
                    index = tokens.after(index)
                    continue
                named = tokens.is_name(index - 1) or previous == ">"
                return index if named else None
            if text == "<" and tokens.is_name(index - 1):
                index = tokens.angle_end(index) or index
            index = tokens.after(index)
        return None

    def _operator_parameters(self, index: int, end: int) -> int | None:
        """Behind `operator` stands its symbol, which may itself be `()`."""
        tokens = self.tokens
        index += 1
        if tokens.text(index) == "(" and tokens.text(index + 1) == ")":
            index += 2
        while index < end and tokens.text(index) not in ("(", ";", "{"):
            index += 1
        return index if tokens.text(index) == "(" else None

    def _name_start(self, opening: int, head: int) -> int:
        """The first token of a function's name: qualifiers, `operator`, `~` and all."""
        tokens = self.tokens
        for index in range(opening - 1, max(head, opening - 12) - 1, -1):
            if tokens.text(index) == "operator":
                return self._qualified_start(index, head)
        index = opening - 1
        if tokens.text(index) == ">":
            index = self._angle_start(index, head) - 1
        return self._qualified_start(index, head)

    def _qualified_start(self, index: int, head: int) -> int:
        tokens = self.tokens
        while index > head:
            if tokens.text(index - 1) == "~":
                index -= 1
            elif tokens.text(index - 1) == "::" and tokens.is_name(index - 2):
                index -= 2
            elif tokens.text(index - 1) == "::" and tokens.text(index - 2) == ">":
                index = self._angle_start(index - 2, head) - 1
            else:
                break
        return index

    def _angle_start(self, index: int, head: int) -> int:
        """The `<` that the `>` at index closes."""
        depth = 0
        while index > head:
            text = self.tokens.text(index)
            depth += (text == ">") - (text == "<")
            if depth == 0:
                return index
            index = self.tokens.partner[index] - 1 if text in (")", "]", "}") else index - 1
        return index

    def _behind_parameters(self, index: int, end: int) -> tuple[int | None, int | None]:
        """The constructor's `:` and the body's `{`, each if there."""
        tokens = self.tokens
        initialisers = None
        while index < end:
            text = tokens.text(index)
            if text == "{":
                if initialisers is None or not self._is_member_name(index - 1):
                    return initialisers, index
            elif text in (";", "=", ",", "}"):
                if text != "," or initialisers is None:
                    return None, None
            elif text == ":" and initialisers is None:
                initialisers = index
            index = tokens.after(index)
        return None, None

    def _is_member_name(self, index: int) -> bool:
        """In `: a(x), b{y} {` the brace behind a name initialises that member."""
        text = self.tokens.text(index)
        return self.tokens.is_name(index) or text == ">"

    # ---- bodies ----------------------------------------------------------------------------------

    def _function_body(
        self, body: tuple[int, int], scope: Scope, parameters: frozenset[str]
    ) -> None:
        """Finds the classes declared inside a function."""
        tokens = self.tokens
        index = body[0] + 1
        while index < body[1]:
            if tokens.text(index) in _CLASS_WORDS and starts_statement(tokens, index):
                keyword, brace = self._class_brace(index, body[1])
                if brace is not None:
                    close = tokens.partner.get(brace, body[1])
                    name = self._class_name(keyword, brace)
                    inner = scope.class_body(name, parameters, brace)
                    self.structure.classes.append(
                        Class(index, index, close + 1, inner, name, (brace, close))
                    )
                    self.walk(brace + 1, close, inner)
                    index = close
            index += 1

    # ---- small steps -----------------------------------------------------------------------------

    def _template_heads(self, index: int, end: int) -> tuple[int, frozenset[str]]:
        """Skips `template <...>` heads; the index behind, and the names of type parameters."""
        tokens = self.tokens
        names: set[str] = set()
        while tokens.text(index) == "template" and tokens.text(index + 1) == "<":
            close = tokens.angle_end(index + 1)
            if close is None or close >= end:
                break
            names |= self._type_parameters(index + 2, close)
            index = close + 1
            if tokens.text(index) == "requires" and tokens.text(index + 1) == "(":
                index = tokens.after(index + 1)
        self.structure.type_parameters |= names
        return index, frozenset(names)

    def _type_parameters(self, start: int, close: int) -> set[str]:
        tokens = self.tokens
        names = set()
        for first, last in tokens.split_commas(start, close):
            if tokens.text(first) not in ("typename", "class"):
                continue
            name = first + 2 if tokens.text(first + 1) == "..." else first + 1
            if name < last and tokens.is_name(name):
                names.add(tokens.text(name))
        return names

    def _skip_attributes(self, index: int, end: int) -> int:
        while index < end and self.tokens.is_attribute(index):
            index = self.tokens.after(index)
        return index

    def _semicolon(self, index: int, end: int) -> int:
        """The index behind the next semicolon of this level."""
        while index < end:
            if self.tokens.text(index) == ";":
                return index + 1
            index = self.tokens.after(index)
        return end


def starts_statement(tokens: TokenRange, index: int) -> bool:
    """Does a statement start at this token of a function's body?"""
    previous = tokens.text(index - 1)
    if previous in ("{", "}", ";", "else", "do") or tokens.tokens[index - 1].kind == "pragma":
        return True
    if previous == ")":
        opening = tokens.partner.get(index - 1, 0)
        word = tokens.text(opening - 1)
        return word in _CONTROL_WORDS or (word == "constexpr" and tokens.text(opening - 2) == "if")
    if previous == "]":  # behind an attribute
        opening = tokens.partner.get(index - 1, 0)
        return tokens.is_attribute(opening) and starts_statement(tokens, opening)
    if previous == ":":
        return _is_label_colon(tokens, index - 1)
    return False


def _is_label_colon(tokens: TokenRange, colon: int) -> bool:
    """The colon of `case x:`, `default:` or `label:`, not that of `a ? b : c`."""
    index = colon - 1
    while index >= 0:
        text = tokens.text(index)
        if text in ("case", "default"):
            return True
        if text in (";", "{", "}", "?"):
            return text != "?" and index == colon - 2
        index = tokens.partner[index] - 1 if text in (")", "]") else index - 1
    return False
