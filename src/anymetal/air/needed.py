"""The functions that a kernel leaves to the driver -> IR to link it with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from anymetal.air import vectors
from anymetal.air.library import GROUP_MAIN, Family, family, family_name
from anymetal.errors import MetallibError
from anymetal.ir import Signature
from anymetal.nouns import Target

_STORAGE = "declare ptr @am_threadgroup_storage(i32, i64, i64) nounwind willreturn memory(none)"


class Needed:
    """What one kernel needs of our headers."""

    def __init__(self, kernel: str, target: Target, *, lines: bool) -> None:
        self._kernel = kernel
        self._target = target
        self._lines = lines
        self._names: dict[str, dict[str, None]] = {"machine": {GROUP_MAIN: None}}
        self._declared: dict[str, str] = {}
        self._written: list[str] = []
        machine = self._family("machine")
        self.header = machine.header
        self.attributes = machine.target

    def _family(self, name: str) -> Family:
        return family(name, self._target, lines=self._lines)

    def add(self, declared: Mapping[str, Signature]) -> None:
        """Every function that a module declares and LLVM does not know itself."""
        for name, signature in declared.items():
            if name.startswith("llvm."):
                continue
            if self._take([name]):
                self._declare(signature)
            else:
                self._write(signature)

    def take(self, names: Iterable[str]) -> None:
        """Functions whose declarations the caller writes."""
        names = list(names)
        if not self._take(names):
            raise self._unknown(names[0])

    def _take(self, names: Iterable[str]) -> bool:
        """Whether our headers have all of these functions."""
        for name in names:
            place = family_name(name)
            if not place or name not in self._family(place).functions:
                return False
            self._names.setdefault(place, {})[name] = None
        return True

    def _declare(self, signature: Signature) -> None:
        types = ", ".join(str(parameter.type) for parameter in signature.parameters)
        text = f"declare {signature.type} @{signature.name}({types}) convergent nounwind"
        self._declared[signature.name] = text

    def _write(self, signature: Signature) -> None:
        made = vectors.write(signature, f"alwaysinline convergent nounwind {self.attributes}")
        if made is None or not self._take(made[0].needs):
            raise self._unknown(signature.name)
        written, declarations = made
        self._written.append(written.text)
        self._declared |= dict(zip(written.needs, declarations, strict=True))

    def _unknown(self, name: str) -> MetallibError:
        return MetallibError(f"kernel '{self._kernel}' calls {name}, which anymetal does not know")

    @property
    def definitions(self) -> list[str]:
        """Declarations and functions that belong into the kernel's own module."""
        return [*self._declared.values(), *self._written, _STORAGE]

    def modules(self) -> Iterator[str]:
        """The modules to link with."""
        for place, names in self._names.items():
            yield self._family(place).taken(names)
