"""Function constants: values in, every variable of program scope that follows from them out.

Apple's compiler copies the constants into variables, and computes what depends on them, in a static
constructor. LLVM evaluates it here once the values are there; the code that is compiled has plain
constants.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence

from anymetal.air.llvm import evaluated
from anymetal.air.metadata import NotedConstant
from anymetal.air.needed import Needed
from anymetal.air.rewrite import Line, Rewritten, RewrittenFunction
from anymetal.errors import MetallibError, UnsetConstantError
from anymetal.ir import Float, Integer, Module, Type, Vector, parse
from anymetal.ir.tokens import Reader
from anymetal.nouns import ConstantValue

_CONSTRUCTORS = "@llvm.global_ctors"
_CALLED = re.compile(r'@("[^"]*"|[-\w.$]+)\(')
_VARIABLE = re.compile(r'^(@(?:"[^"]*"|[-\w.$]+)) = .*?\b(global|constant) ')


def settle(
    rewritten: Rewritten,
    noted: Sequence[NotedConstant],
    values: Mapping[str, ConstantValue],
    needed: Needed,
    kernel: str,
) -> dict[str, str]:
    """Puts values into the module's variables and takes its constructors out. Returns type and
    value of each variable that they computed."""
    _refuse_unset(noted, values, kernel)
    given = {one.variable: values[one.constant.name] for one in noted}
    lines = [_filled(line, given, kernel) for line in rewritten.lines]
    listed = next((line for line in lines if line.text.startswith(_CONSTRUCTORS)), None)
    rewritten.lines = [line for line in lines if line is not listed]
    if listed is None or "zeroinitializer" in listed.text:
        return {}
    constructors = _reachable(rewritten.functions, re.findall(r"ptr @([^,\s]+)", listed.text))
    parts = [*(line.text for line in lines), *(_plain(one) for one in constructors)]
    text = "\n".join([needed.header, *parts, *needed.definitions])
    module = parse(evaluated(text, needed.modules()))
    if any(line.startswith(_CONSTRUCTORS) and "[0 x" not in line for line in module.lines):
        raise MetallibError(f"kernel '{kernel}': initial values that need a running kernel")
    computed = _values(module)
    rewritten.lines = [_settled(line, computed) for line in rewritten.lines]
    names = {one.signature.name for one in constructors}
    rewritten.functions = [f for f in rewritten.functions if f.signature.name not in names]
    return computed


def _refuse_unset(
    noted: Iterable[NotedConstant], values: Mapping[str, ConstantValue], kernel: str
) -> None:
    unset = [one.constant for one in noted if one.constant.name not in values]
    if unset:
        listed = ", ".join(f"'{one.name}' (index {one.index})" for one in unset)
        raise UnsetConstantError(
            f"Failed to create function state object for: {kernel}. "
            f"It uses function constants without a value: {listed}"
        )


def _filled(line: Line, given: Mapping[str, ConstantValue], kernel: str) -> Line:
    match = _VARIABLE.match(line.text)
    if match is None or match[1] not in given:
        return line
    kind = Reader(line.text[match.end() :]).type()
    value = _literal(kind, given[match[1]], kernel)
    return Line(f"{match[1]} = internal constant {kind} {value}", line.number)


def _literal(kind: Type, value: ConstantValue, kernel: str) -> str:
    if isinstance(kind, Vector) and isinstance(value, tuple) and len(value) == kind.count:
        elements = (_literal(kind.element, one, kernel) for one in value)
        return f"<{', '.join(f'{kind.element} {element}' for element in elements)}>"
    if isinstance(value, tuple):
        raise MetallibError(f"kernel '{kernel}': {value} for a function constant of type {kind}")
    if isinstance(kind, Integer):
        return str(int(value))
    if isinstance(kind, Float):
        match kind.text:
            case "float":
                rounded = struct.unpack("<f", struct.pack("<f", value))[0]
                return "0x" + struct.pack(">d", rounded).hex().upper()
            case "half":
                return "0xH" + struct.pack(">e", value).hex().upper()
            case "bfloat":
                bits = struct.unpack("<I", struct.pack("<f", value))[0]
                rounded_bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
                return f"0xR{rounded_bits:04X}"
    raise MetallibError(f"kernel '{kernel}': a function constant of the type {kind}")


def _reachable(
    functions: Sequence[RewrittenFunction], names: Iterable[str]
) -> list[RewrittenFunction]:
    by_name = {one.signature.name: one for one in functions}
    found: dict[str, RewrittenFunction] = {}
    waiting = [name.strip('"') for name in names]
    while waiting:
        name = waiting.pop()
        if name in by_name and name not in found:
            found[name] = by_name[name]
            text = "\n".join(line.text for line in by_name[name].body)
            waiting += [called.strip('"') for called in _CALLED.findall(text)]
    return list(found.values())


def _plain(function: RewrittenFunction) -> str:
    signature = function.signature
    given = ", ".join(f"{p.type} {p.name}" for p in signature.parameters)
    words = "fastcc " if "fastcc" in signature.words else ""
    head = f'define internal {words}{signature.type} @"{signature.name}"({given}) {{'
    return "\n".join([head, *(line.text for line in function.body), "}"])


def _values(module: Module) -> dict[str, str]:
    """Type and value of every variable."""
    found = {}
    for line in module.lines:
        match = _VARIABLE.match(line)
        if match is not None:
            reader = Reader(line[match.end() :])
            start = reader.at
            reader.type()
            reader.value()
            found[match[1]] = reader.since(start)
    return found


def _settled(line: Line, computed: Mapping[str, str]) -> Line:
    match = _VARIABLE.match(line.text)
    if match is None or match[2] == "constant" or match[1] not in computed:
        return line
    align = re.search(r", align \d+$", line.text)
    text = f"{match[1]} = internal constant {computed[match[1]]}{align[0] if align else ''}"
    return Line(text, line.number)
