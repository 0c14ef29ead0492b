"""Structure -> kernels, their parameters and the names they can be asked for by."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from anymetal.msl.builtins import BUILTINS, SPACES
from anymetal.msl.fields import Fields
from anymetal.msl.integers import Integers
from anymetal.msl.source_map import Origins
from anymetal.msl.structure import Function, Instantiation, Scope, Structure, Variable
from anymetal.msl.tokens import TokenRange
from anymetal.nouns import Parameter, Position, Role


@dataclass(frozen=True)
class Attribute:
    """One attribute of a `[[...]]` list: its name, and the tokens of its argument."""

    name: str
    index: int
    argument: tuple[int, int] | None


@dataclass(frozen=True)
class KernelParameter:
    """A parameter with the token ranges that the checks and the rewrite need."""

    noun: Parameter
    tokens: tuple[int, int]
    name: int | None
    attributes: tuple[Attribute, ...]
    given_index: bool = False  # the index is ours, not the author's


@dataclass
class Kernel:
    """A function that carries `kernel`."""

    function: Function
    name: str
    host_name: str | None
    parameters: list[KernelParameter]
    attributes: tuple[Attribute, ...]
    max_total_threads: tuple[int, int] | None  # the attribute's argument
    limit: int | None = None  # its value, in a kernel that is no template


@dataclass(frozen=True)
class Instance:
    """An explicit instantiation of a kernel template under a host name."""

    declaration: Instantiation
    name: str
    expression: tuple[int, int]  # `f<float>`, qualified as written
    parameters: tuple[int, int] | None  # the parentheses of the `void f<float>(...)` form
    kernel: Kernel
    max_total_threads: int | None


@dataclass(frozen=True)
class ConstantDeclaration:
    """`constant T name [[function_constant(index)]];`"""

    variable: Variable
    name: int
    index: int
    type: tuple[int, ...]


@dataclass
class Reflection:
    """Everything the tokens tell about the program's doors."""

    kernels: list[Kernel] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)
    constants: list[ConstantDeclaration] = field(default_factory=list)


def reflect(structure: Structure, origins: Origins) -> Reflection:
    """Finds kernels, named instances and function constants."""
    return _Reflector(structure, origins).run()


def attributes_in(tokens: TokenRange, start: int, end: int) -> list[Attribute]:
    """The attributes of all `[[...]]` at the outer level of a range."""
    found = []
    index = start
    while index < end:
        if tokens.is_attribute(index):
            inner = tokens.partner[index + 1]
            for first, last in tokens.split_commas(index + 2, inner):
                name = first + 2 if tokens.text(first + 1) == "::" else first
                argument = None
                if tokens.text(name + 1) == "(":
                    argument = (name + 2, min(tokens.partner.get(name + 1, last), last))
                found.append(Attribute(tokens.text(name), name, argument))
        index = tokens.after(index)
    return found


def without_attributes(tokens: TokenRange, start: int, end: int) -> list[int]:
    """The indices of a range outside its outer attributes."""
    indices = []
    index = start
    while index < end:
        if tokens.is_attribute(index):
            index = tokens.after(index)
        else:
            indices.append(index)
            index += 1
    return indices


def is_kernel(tokens: TokenRange, function: Function) -> bool:
    """Does `kernel` or `[[kernel]]` stand among the specifiers?"""
    return has_specifier(tokens, function, "kernel")


def has_specifier(tokens: TokenRange, function: Function, word: str) -> bool:
    """A word among the specifiers or the attributes in front of a function's name."""
    start, end = function.head, function.name[0]
    plain = any(tokens.text(index) == word for index in without_attributes(tokens, start, end))
    return plain or any(a.name == word for a in attributes_in(tokens, start, end))


def declared_name(tokens: TokenRange, start: int, end: int) -> int | None:
    """The name a parameter or variable declares, or None when it has none.

    It is the last token outside brackets, attributes and template arguments, behind a type.
    """
    last, has_type = -1, False
    index = start
    while index < end and tokens.text(index) != "=":
        text = tokens.text(index)
        if text == "(" and tokens.text(index + 1) in ("*", "&"):
            return next((i for i in range(index, tokens.partner[index]) if tokens.is_name(i)), None)
        if text == "<" and (close := tokens.angle_end(index)) is not None and close < end:
            index = close
        if text not in ("[", "(", "{"):
            has_type = has_type or (last >= 0 and tokens.text(last) not in _QUALIFIERS)
            last = index
        index = tokens.after(index)
    is_name = last >= 0 and tokens.is_name(last) and tokens.text(last) not in _NEVER_NAMES
    return last if is_name and has_type and tokens.text(last - 1) != "::" else None


_QUALIFIERS = SPACES | {"const", "volatile", "constexpr", "struct", "typename"}
_NEVER_NAMES = _QUALIFIERS | {"unsigned", "signed", "int", "long", "short", "char", "float", "half"}


class _Reflector:
    def __init__(self, structure: Structure, origins: Origins) -> None:
        self.structure = structure
        self.tokens = structure.tokens
        self.origins = origins
        self.integers = Integers(structure)
        self.fields = Fields(structure, self.integers)
        self.result = Reflection()

    def run(self) -> Reflection:
        for variable in self.structure.variables:
            self._function_constant(variable)
        for function in self.structure.functions:
            if function.body is not None and is_kernel(self.tokens, function):
                kernel = self._kernel(function)
                kernel.limit = self.max_total_threads(kernel, None)
                self.result.kernels.append(kernel)
        by_name: dict[str, list[Kernel]] = {}
        for kernel in self.result.kernels:
            by_name.setdefault(kernel.name, []).append(kernel)
        for instantiation in self.structure.instantiations:
            self._instance(instantiation, by_name)
        return self.result

    def _position(self, index: int) -> Position:
        return self.origins.position(self.tokens.tokens[index])

    # ---- kernels ---------------------------------------------------------------------------------

    def _kernel(self, function: Function) -> Kernel:
        attributes = tuple(attributes_in(self.tokens, function.head, function.body[0]))  # type: ignore[index]
        name = self.tokens.spell(*function.name).split("::")[-1].split("<")[0].strip()
        opening, close = function.parameters
        ranges = self.tokens.split_commas(opening + 1, close)
        if len(ranges) == 1 and self.tokens.spell(*ranges[0]) == "void":
            ranges = []
        parameters = [self._parameter(*tokens, function.scope) for tokens in ranges]
        by_name = {attribute.name: attribute.argument for attribute in attributes}
        host_name = by_name.get("host_name")
        return Kernel(
            function,
            name,
            self._string(*host_name) if host_name is not None else None,
            self._give_indices(parameters),
            attributes,
            by_name.get("max_total_threads_per_threadgroup"),
        )

    def _parameter(self, start: int, end: int, scope: Scope) -> KernelParameter:
        tokens = self.tokens
        attributes = tuple(attributes_in(tokens, start, end))
        name = declared_name(tokens, start, end)
        plain = without_attributes(tokens, start, end)
        declared = " ".join(
            tokens.text(i) for i in plain if i != name and tokens.text(i) not in SPACES
        )
        space = next((tokens.text(i) for i in plain if tokens.text(i) in SPACES), None)
        role, index, builtin = self._role(attributes, space)
        constant = next((a for a in attributes if a.name == "function_constant"), None)
        condition = (
            tokens.spell(*constant.argument) if constant is not None and constant.argument else None
        )
        noun = Parameter(
            name=tokens.text(name) if name is not None else "",
            declared=declared,
            role=role,
            index=index,
            builtin=builtin,
            space=space,
            function_constant=condition,
            position=self._position(name if name is not None else start),
            fields=self.fields.of_type([i for i in plain if i != name], scope),
        )
        return KernelParameter(noun, (start, end), name, attributes)

    def _role(
        self, attributes: tuple[Attribute, ...], space: str | None
    ) -> tuple[Role, int | None, str | None]:
        """Role, index (None: still to be given) and built-in value of a parameter."""
        for attribute in attributes:
            if attribute.name in BUILTINS:
                return "builtin", None, attribute.name
            if attribute.name in ("buffer", "threadgroup") and attribute.argument is not None:
                index = self.integers.evaluate(*attribute.argument)
                role: Role = "buffer" if attribute.name == "buffer" else "threadgroup"
                return role, index, None
        return ("threadgroup" if space == "threadgroup" else "buffer"), None, None

    def _give_indices(self, parameters: list[KernelParameter]) -> list[KernelParameter]:
        """Parameters without an index take the lowest free one, in order."""
        taken = {(p.noun.role, p.noun.index) for p in parameters if p.noun.index is not None}
        result = []
        for parameter in parameters:
            noun = parameter.noun
            if noun.role != "builtin" and noun.index is None:
                index = next(i for i in range(len(taken) + 1) if (noun.role, i) not in taken)
                taken.add((noun.role, index))
                noun = replace(noun, index=index)
                result.append(replace(parameter, noun=noun, given_index=True))
            else:
                result.append(parameter)
        return result

    # ---- instances -------------------------------------------------------------------------------

    def _instance(self, declaration: Instantiation, by_name: dict[str, list[Kernel]]) -> None:
        tokens = self.tokens
        last = declaration.end - 2  # in front of the semicolon
        plain = without_attributes(tokens, declaration.start, declaration.end - 1)
        attributes = attributes_in(tokens, declaration.start, declaration.end)
        named = [a for a in attributes if a.name == "host_name"]
        marked = any(a.name == "kernel" for a in attributes)
        if not (named or marked or any(tokens.text(i) == "kernel" for i in plain)):
            return
        last = plain[-1]
        parameters = None
        if tokens.text(last) == ")":
            parameters = (tokens.partner[last], last)
            last = parameters[0] - 1
        first = self._template_name(last, declaration.start)
        kernels = by_name.get(tokens.text(self._base_name(first, last)), [])
        if not kernels or not named or named[0].argument is None:
            return
        name = self._string(*named[0].argument)
        kernel = _nearest(kernels, declaration.scope, parameters, tokens)
        expression = (first, last + 1)
        self.result.instances.append(
            Instance(
                declaration,
                name,
                expression,
                parameters,
                kernel,
                self.max_total_threads(kernel, expression),
            )
        )

    def max_total_threads(self, kernel: Kernel, expression: tuple[int, int] | None) -> int | None:
        """The attribute's value; in a template its argument may name template parameters."""
        if kernel.max_total_threads is None:
            return None
        given = {} if expression is None else self._template_values(kernel, *expression)
        return self.integers.evaluate(*kernel.max_total_threads, given)

    def _template_values(self, kernel: Kernel, first: int, end: int) -> dict[str, int]:
        """Integer template parameters of a kernel and what an instance gives for them."""
        tokens = self.tokens
        opening = next((i for i in range(first, end) if tokens.text(i) == "<"), None)
        arguments = [] if opening is None else tokens.split_commas(opening + 1, end - 1)
        head = kernel.function.start + 1  # the `<` behind `template`
        values: dict[str, int] = {}
        parameters = tokens.split_commas(head + 1, tokens.angle_end(head) or head + 1)
        for number, (start, stop) in enumerate(parameters):
            name = declared_name(tokens, start, stop)
            default = next((i for i in range(start, stop) if tokens.text(i) == "="), stop)
            argument = arguments[number] if number < len(arguments) else (default + 1, stop)
            value = self.integers.evaluate(*argument, values)
            if name is not None and value is not None:
                values[tokens.text(name)] = value
        return values

    def _template_name(self, last: int, start: int) -> int:
        """The first token of `a::f<x>` that ends at `last`."""
        tokens = self.tokens
        index = last
        if tokens.text(index) == ">":
            depth = 0
            while index > start:
                text = tokens.text(index)
                depth += (text == ">") - (text == "<")
                if depth == 0:
                    break
                index = tokens.partner[index] - 1 if text in (")", "]", "}") else index - 1
            index -= 1
        while tokens.text(index - 1) == "::" and tokens.is_name(index - 2):
            if tokens.text(index - 2) == "void":  # `kernel void ::a::f<x>`: the return type
                break
            index -= 2
        return index

    def _base_name(self, first: int, last: int) -> int:
        index = first
        while index + 2 <= last and self.tokens.text(index + 1) == "::":
            index += 2
        return index

    def _string(self, start: int, end: int) -> str:
        """Adjacent string literals joined, as the language does."""
        literals = [self.tokens.tokens[i] for i in range(start, end)]
        texts = [token.text.partition('"')[2][:-1] for token in literals if token.kind == "string"]
        return re.sub(r"\\(.)", r"\1", "".join(texts))

    # ---- function constants ----------------------------------------------------------------------

    def _function_constant(self, variable: Variable) -> None:
        tokens = self.tokens
        attributes = attributes_in(tokens, variable.head, variable.end)
        found = next((a for a in attributes if a.name == "function_constant"), None)
        if found is None or found.argument is None:
            return
        index = self.integers.evaluate(*found.argument)
        name = found.index
        while not tokens.is_attribute(name):
            name -= 1
        name -= 1
        type_ = tuple(
            i
            for i in without_attributes(tokens, variable.head, name)
            if tokens.text(i) not in _STORAGE_WORDS
        )
        if index is not None:
            self.result.constants.append(ConstantDeclaration(variable, name, index, type_))


_STORAGE_WORDS = SPACES | {"static", "constexpr", "const", "inline", "extern"}


def _nearest(
    kernels: list[Kernel], scope: Scope, parameters: tuple[int, int] | None, tokens: TokenRange
) -> Kernel:
    """Among kernels of one name, the one an instantiation means."""
    if parameters is not None:
        count = len(tokens.split_commas(parameters[0] + 1, parameters[1]))
        kernels = [k for k in kernels if len(k.parameters) == count] or kernels
    return next((k for k in kernels if k.function.scope == scope), kernels[-1])
