"""The rules for kernels: what they return, which parameters they take and where those are bound."""

from __future__ import annotations

import re

from anymetal.msl.builtins import (
    BUILTIN_SCALARS,
    BUILTINS,
    KNOWN_TYPES,
    MOST_BUFFERS,
    SPACES,
    UNSUPPORTED_ATTRIBUTES,
)
from anymetal.msl.diagnostics import Problem
from anymetal.msl.reflect import Attribute, Kernel, KernelParameter, without_attributes
from anymetal.msl.source_map import Origins
from anymetal.msl.structure import Structure

_NO_TYPE = frozenset({"kernel", "inline", "static", "constexpr", "extern"})
_CANONICAL = {
    "uint": "unsigned int",
    "ushort": "unsigned short",
    "uchar": "unsigned char",
    "ulong": "unsigned long",
}


_TENSOR = re.compile(r"\btensor\s*<")
_BOUND_TENSOR = (
    "anymetal does not support tensors that the host binds: pass a pointer, and make a tensor of it"
    " in the kernel"
)


class KernelChecker:
    def __init__(self, structure: Structure, origins: Origins) -> None:
        self.tokens = structure.tokens
        self.origins = origins
        self.classes = {class_.name for class_ in structure.classes if class_.name}
        self.problems: list[Problem] = []
        self.unsupported: list[Problem] = []
        self.warnings: list[Problem] = []

    def check(self, kernel: Kernel) -> None:
        self._return_type(kernel)
        for parameter in kernel.parameters:
            self._parameter(parameter)
        self._locations(kernel)
        self._vector_lengths(kernel)

    def _refuse(self, index: int, text: str) -> None:
        position = self.origins.position(self.tokens.tokens[index])
        self.problems.append(Problem(position, "error", text))

    def _return_type(self, kernel: Kernel) -> None:
        function = kernel.function
        words = [
            self.tokens.text(index)
            for index in without_attributes(self.tokens, function.head, function.name[0])
        ]
        type_ = " ".join(word for word in words if word not in _NO_TYPE and "__" not in word)
        type_ = type_.replace("( ( always_inline ) )", "").strip()
        if type_ not in ("void", ""):
            self._refuse(function.name[0], f"invalid return type '{type_}' for kernel function")

    # ---- one parameter ---------------------------------------------------------------------------

    def _parameter(self, parameter: KernelParameter) -> None:
        for attribute in parameter.attributes:
            if attribute.name in UNSUPPORTED_ATTRIBUTES:
                what = UNSUPPORTED_ATTRIBUTES[attribute.name]
                position = self.origins.position(self.tokens.tokens[attribute.index])
                text = f"anymetal does not support {what}"
                self.unsupported.append(Problem(position, "error", text))
                return
        if _TENSOR.search(parameter.noun.declared):
            position = self.origins.position(self.tokens.tokens[self._place(parameter)])
            self.unsupported.append(Problem(position, "error", _BOUND_TENSOR))
            return
        by_name = {attribute.name: attribute for attribute in parameter.attributes}
        builtin = next((a for a in parameter.attributes if a.name in BUILTINS), None)
        if builtin is not None:
            self._builtin(parameter, builtin)
        elif "buffer" in by_name:
            self._buffer(parameter, by_name["buffer"])
        elif "threadgroup" in by_name:
            self._threadgroup(parameter, by_name["threadgroup"])
        elif not _is_indirect(parameter):
            if self._is_closed(parameter):
                type_ = _type_text(parameter)
                name = self._place(parameter)
                self._refuse(
                    name, f"invalid type '{type_}' for input declaration in a kernel function"
                )
        elif parameter.noun.space == "thread":
            self._wrong_space(parameter)

    def _builtin(self, parameter: KernelParameter, attribute: Attribute) -> None:
        type_ = _type_text(parameter)
        if _is_indirect(parameter) or (
            self._is_closed(parameter) and not builtin_takes(attribute.name, type_)
        ):
            self._refuse(attribute.index, invalid_type_text(type_, attribute.name))

    def _buffer(self, parameter: KernelParameter, attribute: Attribute) -> None:
        if not self._index(parameter, attribute):
            return
        if not _is_indirect(parameter):
            if self._is_closed(parameter):
                text = invalid_type_text(_type_text(parameter), "buffer")
                self._refuse(attribute.index, text)
        elif parameter.noun.space in ("threadgroup", "thread"):
            self._wrong_space(parameter)

    def _threadgroup(self, parameter: KernelParameter, attribute: Attribute) -> None:
        if not self._index(parameter, attribute):
            return
        if not _is_indirect(parameter) or parameter.noun.space != "threadgroup":
            space = f"{parameter.noun.space} " if parameter.noun.space else ""
            text = invalid_type_text(space + _type_text(parameter), "threadgroup")
            self._refuse(attribute.index, text)

    def _index(self, parameter: KernelParameter, attribute: Attribute) -> bool:
        index = parameter.noun.index
        if attribute.argument is None or parameter.given_index:
            self._refuse(
                attribute.index, f"'{attribute.name}' attribute requires an integer constant"
            )
            return False
        if index is not None and not 0 <= index < MOST_BUFFERS:
            self._refuse(attribute.index, out_of_bounds_text(attribute.name))
            return False
        return True

    def _wrong_space(self, parameter: KernelParameter) -> None:
        pointee = _type_text(parameter).rstrip("*& ").strip()
        self._refuse(
            self._place(parameter),
            "invalid address space qualification for buffer pointee type "
            f"'{parameter.noun.space} {pointee}'",
        )

    def _place(self, parameter: KernelParameter) -> int:
        return parameter.name if parameter.name is not None else parameter.tokens[0]

    def _is_closed(self, parameter: KernelParameter) -> bool:
        """Is the type one whose nature we see, not an alias or a template parameter?"""
        words = _type_text(parameter).removeprefix("metal::").split()
        return bool(words) and all(word in KNOWN_TYPES or word in self.classes for word in words)

    # ---- all parameters --------------------------------------------------------------------------

    def _locations(self, kernel: Kernel) -> None:
        """One parameter an index; those that a function constant may remove are not counted."""
        taken: set[tuple[str, int]] = set()
        for parameter in kernel.parameters:
            noun = parameter.noun
            if noun.role == "builtin" or noun.index is None:
                continue
            if noun.index >= MOST_BUFFERS and parameter.given_index:
                self._refuse(self._place(parameter), out_of_bounds_text(noun.role))
            if noun.function_constant is not None:
                continue
            if (noun.role, noun.index) in taken:
                self._refuse(
                    self._place(parameter),
                    f"cannot reserve '{noun.role}' resource location at index {noun.index}",
                )
            taken.add((noun.role, noun.index))

    def _vector_lengths(self, kernel: Kernel) -> None:
        """Not confirmed for every version of the compiler, so only a warning."""
        lengths: dict[str, KernelParameter] = {}
        for parameter in kernel.parameters:
            type_ = _type_text(parameter)
            if BUILTINS.get(parameter.noun.builtin or "", False) and type_[-1:] in ("2", "3"):
                lengths.setdefault(type_[-1], parameter)
        if len(lengths) > 1:
            second = list(lengths.values())[1]
            self.warnings.append(
                Problem(
                    second.noun.position,
                    "warning",
                    "vectors of built-in positions should have the same length in one kernel",
                )
            )


def _is_indirect(parameter: KernelParameter) -> bool:
    return any(symbol in parameter.noun.declared for symbol in "*&[")


def _type_text(parameter: KernelParameter) -> str:
    words = [word for word in parameter.noun.declared.split() if word not in SPACES | {"const"}]
    return " ".join(words).replace(" :: ", "::").replace(" *", " *")


def builtin_takes(attribute: str, type_: str) -> bool:
    """May a parameter of this type have this built-in value?"""
    type_ = type_.removeprefix("metal::")
    if type_ in BUILTIN_SCALARS:
        return True
    return BUILTINS[attribute] and type_ in ("uint2", "uint3", "ushort2", "ushort3")


def invalid_type_text(type_: str, attribute: str) -> str:
    canonical = f" (aka '{_CANONICAL[type_]}')" if type_ in _CANONICAL else ""
    return f"type '{type_}'{canonical} is not valid for attribute '{attribute}'"


def out_of_bounds_text(attribute: str) -> str:
    return (
        f"'{attribute}' attribute parameter is out of bounds: must be between 0 and "
        f"{MOST_BUFFERS - 1}"
    )
