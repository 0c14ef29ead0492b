"""What Apple's compiler refuses and clang would let pass: found in tokens, said in Apple's words.

What passes here is meant to compile on a Mac. Each check leaves problems; all are reported at once.
"""

from __future__ import annotations

from anymetal.msl.builtins import SPACES, UNSUPPORTED_FUNCTIONS, UNSUPPORTED_TYPES
from anymetal.msl.diagnostics import Problem
from anymetal.msl.reflect import (
    Reflection,
    attributes_in,
    declared_name,
    has_specifier,
    without_attributes,
)
from anymetal.msl.source_map import Origins
from anymetal.msl.strict_attributes import AttributeChecker
from anymetal.msl.strict_host import HostChecker
from anymetal.msl.strict_kernels import KernelChecker
from anymetal.msl.strict_language import LanguageChecker
from anymetal.msl.strict_pointers import PointerChecker
from anymetal.msl.strict_spaces import SpaceChecker
from anymetal.msl.structure import Function, Structure, Variable, starts_statement
from anymetal.msl.threadgroup import find_declarations
from anymetal.msl.tokens import TokenRange
from anymetal.nouns import Language, Position

# Words of C++ that Metal does not have, and what Apple's compiler says to them.
_REFUSED_WORDS = {
    **{
        word: f"'{word}' is not supported in Metal"
        for word in [
            "double",
            "goto",
            "try",
            "catch",
            "throw",
            "new",
            "virtual",
            "dynamic_cast",
            "typeid",
        ]
    },
    "asm": "illegal asm statement",
    "__asm__": "illegal asm statement",
    "register": "Metal does not support the 'register' storage class specifier",
    "thread_local": "Metal does not support the 'thread_local' storage class specifier",
}
_FORWARD_WORDS = frozenset({"struct", "class", "union", "enum", "friend", "concept"})


class StrictChecker:
    """Runs every check over one translation unit."""

    def __init__(
        self,
        structure: Structure,
        reflection: Reflection,
        origins: Origins,
        language: Language = "3.2",
    ) -> None:
        self.language = language
        self.structure = structure
        self.tokens = structure.tokens
        self.reflection = reflection
        self.origins = origins
        self.problems: list[Problem] = []
        self.unsupported: list[Problem] = []
        self.warnings: list[Problem] = []

    def run(self, headers: tuple[str, ...]) -> None:
        self._words()
        self._namespace_metal(headers)
        for variable in self.structure.variables:
            if variable.scope.kind == "namespace":
                self._program_scope_variable(variable)
        self._functions()
        kernels = KernelChecker(self.structure, self.origins)
        for kernel in self.reflection.kernels:
            kernels.check(kernel)
        pointers = PointerChecker(self.structure, self.origins)
        pointers.run()
        spaces = SpaceChecker(self.structure, self.origins)
        spaces.run()
        host = HostChecker(self.structure, self.origins)
        host.run()
        attributes = AttributeChecker(self.structure, self.origins)
        attributes.run(self.reflection.kernels)
        language = LanguageChecker(self.structure, self.origins, self.language)
        language.run()
        for checker in (attributes, kernels, pointers, spaces, host, language):
            self.problems += checker.problems
        self.unsupported += kernels.unsupported
        self.warnings += [*attributes.warnings, *kernels.warnings]

    def _refuse(self, index: int, text: str) -> None:
        self.problems.append(Problem(self._position_of(index), "error", text))

    def _position_of(self, index: int) -> Position:
        return self.origins.position(self.tokens.tokens[index])

    # ---- words -----------------------------------------------------------------------------------

    def _words(self) -> None:
        for index, token in enumerate(self.tokens.tokens):
            if token.kind != "name":
                continue
            text = token.text
            if text in _REFUSED_WORDS:
                self._refused_word(index, text)
            elif text == "long" and self.tokens.text(index + 1) == "long":
                self._refuse(index, "'long long' is not supported in Metal")
            elif text == "delete" and self.tokens.text(index - 1) != "=":
                self._refuse(index, "'delete' is not supported in Metal")
            elif text == "noexcept" and _is_noexcept_operator(self.tokens, index):
                self._refuse(index, "'noexcept' is not supported in Metal")
            elif text in UNSUPPORTED_TYPES and _names_type(self.tokens, index):
                self._unsupported(index, UNSUPPORTED_TYPES[text])

    def _refused_word(self, index: int, text: str) -> None:
        if text == "double" and self.tokens.text(index - 1) == "long":
            self._refuse(index - 1, "'long double' is not supported in Metal")
        else:
            self._refuse(index, _REFUSED_WORDS[text])

    def _unsupported(self, index: int, what: str) -> None:
        text = f"anymetal does not support {what}"
        self.unsupported.append(Problem(self._position_of(index), "error", text))

    def _namespace_metal(self, headers: tuple[str, ...]) -> None:
        """Without one of Metal's headers there is no namespace `metal`."""
        if headers:
            return
        for index, text in enumerate(self.tokens.texts):
            if text != "metal" or not self.tokens.is_name(index):
                continue
            if self.tokens.text(index - 1) == "namespace":
                if self.tokens.text(index - 2) == "using":
                    self._refuse(index, "expected namespace name")
            elif self.tokens.text(index + 1) == "::":
                self._refuse(index, "use of undeclared identifier 'metal'")

    # ---- program scope ---------------------------------------------------------------------------

    def _program_scope_variable(self, variable: Variable) -> None:
        tokens = self.tokens
        plain = without_attributes(tokens, variable.head, variable.end)
        texts = [tokens.text(index) for index in plain]
        if not texts or texts[0] in _FORWARD_WORDS or "operator" in texts or "extern" in texts:
            return
        name = _variable_name(tokens, variable.head, variable.end - 1)
        if name not in plain:
            return
        if "constant" not in texts[: plain.index(name)]:
            self._refuse(name, "program scope variable must reside in constant address space")
            return
        is_function_constant = any(
            attribute.name == "function_constant"
            for attribute in attributes_in(tokens, variable.head, variable.end)
        )
        following = texts[plain.index(name) + 1 :]
        if not is_function_constant and not any(text in ("=", "{", "(") for text in following):
            self._refuse(name, "variable in constant address space must be initialized")

    # ---- functions -------------------------------------------------------------------------------

    def _functions(self) -> None:
        kernels = {id(kernel.function) for kernel in self.reflection.kernels}
        class_braces = {class_.body[0] for class_ in self.structure.classes}
        for function in self.structure.functions:
            is_kernel = id(function) in kernels
            self._stage(function)
            name = function.name
            if not is_kernel and name[1] - name[0] == 1 and self.tokens.text(name[0]) == "main":
                self._refuse(name[0], "non-qualified function cannot be called 'main'")
            if function.body is None:
                continue
            if not is_kernel:
                self._threadgroup_variables(function)
            self._statements(function.body, class_braces)

    def _stage(self, function: Function) -> None:
        """Functions of the graphics pipeline."""
        for word, what in UNSUPPORTED_FUNCTIONS.items():
            if has_specifier(self.tokens, function, word):
                self._unsupported(function.name[0], what)

    def _threadgroup_variables(self, function: Function) -> None:
        for declaration in find_declarations(self.tokens, function):
            self._refuse(
                declaration.declarators[0].name,
                "non-kernel function variable cannot be declared in threadgroup address space",
            )

    def _statements(self, body: tuple[int, int], class_braces: set[int]) -> None:
        """Labels and static locals."""
        tokens = self.tokens
        index = body[0] + 1
        braces = [body[0]]
        while index < body[1]:
            text = tokens.text(index)
            if text == "{":
                braces.append(index)
            elif text == "}":
                braces.pop()
            elif braces[-1] not in class_braces and tokens.is_name(index):
                if text == "static":
                    self._static_local(index)
                elif (
                    tokens.text(index + 1) == ":"
                    and text != "default"
                    and starts_statement(tokens, index)
                ):
                    self._refuse(index, "labeled statements are not supported in Metal")
            index += 1

    def _static_local(self, index: int) -> None:
        """`static constant` tables have one copy in any case, and are accepted."""
        start = index
        while self.tokens.text(start - 1) in ("const", "constexpr", "constant", "inline"):
            start -= 1
        if not starts_statement(self.tokens, start):
            return
        end = start
        while self.tokens.text(end) not in (";", "=", "{", ""):
            if self.tokens.text(end) == "constant":
                return
            end += 1
        self._refuse(index, "variables in function scope cannot be declared static")


def _is_noexcept_operator(tokens: TokenRange, index: int) -> bool:
    """`noexcept(f())` in an expression, not behind a function's parameters."""
    if tokens.text(index + 1) != "(":
        return False
    before = tokens.text(index - 1)
    return before not in SPACES and before not in (")", "const", "volatile", "&")


def _names_type(tokens: TokenRange, index: int) -> bool:
    """Is the word used as a type, not as somebody's own name?"""
    before, after = tokens.text(index - 1), tokens.text(index + 1)
    if before in (".", "->", "struct", "class", "namespace", "enum") or after in ("=", ";"):
        return False
    if before == "::" and tokens.text(index - 2) not in ("metal", "raytracing"):
        return False
    if after == "<" and tokens.text(index) != "sampler":
        return tokens.angle_end(index + 1) is not None
    return tokens.is_name(index + 1) and not tokens.is_name(index - 1)


def _variable_name(tokens: TokenRange, start: int, end: int) -> int | None:
    """The first declared name: what stands in front of `=`, `[`, `{`, `,` or the end."""
    index = start
    while index < end:
        text = tokens.text(index)
        if tokens.is_attribute(index):
            break
        if text in ("=", "{", ",") or (text == "[" and tokens.is_name(index - 1)):
            break
        if text == "<" and tokens.is_name(index - 1):
            close = tokens.angle_end(index)
            index = close if close is not None and close < end else index
        index = tokens.after(index)
    return declared_name(tokens, start, index)
