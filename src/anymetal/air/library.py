"""Names of air.* functions -> IR of those functions, made of our own Metal headers.

`functions/` has a file for each family. A family is compiled when a kernel first calls one of its
functions, and kept on disk; a kernel is linked with the functions it calls and with nothing else.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

from anymetal.errors import ToolchainError
from anymetal.ir import Extract, Function, Module, parse
from anymetal.msl import clang
from anymetal.msl.contract import contract
from anymetal.nouns import Dialect, Target
from anymetal.store.cache import default_store, digest_of
from anymetal.store.fingerprint import fingerprint

_FOLDER = Path(__file__).parent / "functions"
GROUP_MAIN = "am_group_main"
# The family of a name: the first that fits.
_FAMILIES = (
    (re.compile(r"__tensorops_impl_matmul2d_|air\.\w+_tensor(\.|$)"), "tensor"),
    (re.compile(r"air\.convert\."), "convert"),
    (re.compile(r"(am\.)?air\.simdgroup_matrix_"), "matrix"),
    (re.compile(r"air\.(simd|quad)_"), "collective"),
    (re.compile(r"air\.atomic\.(global|local)\."), "atomic"),
    (re.compile(r"am\.air\.dot\."), "math"),
    (
        re.compile(r"am\.air\.|air\.(wg|simdgroup|get|is_uniform|normalize|load|store)[._]"),
        "machine",
    ),
    (re.compile(r"air\.atomic\.fence$|am_group_main$"), "machine"),
    (re.compile(r"air\.\w+(\.[su])?\.i\d+$"), "integer"),
    (re.compile(r"air\."), "math"),
)


class Family:
    """The functions of one file, as text that can be linked with a kernel."""

    def __init__(self, module: Module) -> None:
        self._extract = Extract(module)
        self.functions = self._extract.functions
        group = self.functions.get(GROUP_MAIN) or next(iter(self.functions.values()))
        words = [w for g in group.signature.groups for w in module.attribute_group(g)]
        kept = ('"target-cpu"', '"target-features"', '"no-builtins"', '"no-trapping-math"')
        self.target = " ".join(word for word in words if word.startswith(kept))

    @property
    def header(self) -> str:
        """Lines that say what machine the code is for."""
        lines = self._extract.header
        return "\n".join(line for line in lines if line.startswith("target "))

    def taken(self, names: Iterable[str]) -> str:
        """A module of these functions and of all that they need."""
        return self._extract.taken(names, _linkable)


def _linkable(function: Function) -> str:
    """A definition that one module brings and others may bring as well."""
    text = str(function)
    if function.name == GROUP_MAIN:
        return text
    return text.replace("define dso_local ", "define linkonce_odr dso_local ", 1)


def family_name(name: str) -> str:
    """The family that a function belongs to, if there is such a function."""
    return next((family for pattern, family in _FAMILIES if pattern.match(name)), "")


@functools.cache
def family(name: str, target: Target, *, lines: bool) -> Family:
    """A family for a target; with `lines` its code knows its places in our headers."""
    parts = fingerprint("tools", "processor", "compiler", _FOLDER, *target.include_dirs)
    key = digest_of(parts, target.name, name, str(lines))
    entry = default_store().get("air", key)
    if entry is not None:
        return Family(parse(entry.payload.decode()))
    text = f'#include "{_FOLDER / name}.h"\n'
    result = clang.compile_to_ir(text, target, dialect=Dialect(), lines=lines)
    if not result.ok:
        raise ToolchainError(f"air/functions/{name}.h does not compile:\n{result.messages[:2000]}")
    module = parse(result.output)
    contract(module)
    default_store().put("air", key, {}, str(module).encode())
    return Family(module)
