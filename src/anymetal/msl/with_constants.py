"""Source text + values of function constants -> source text without them.

torch.mps.compile_shader builds pipelines without values for function constants: a kernel that needs
one fails on a Mac. Text in which the values stand runs there, and means the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from anymetal.msl.prepare import prepare
from anymetal.nouns import ConstantValue, GivenValue, Scalar, Source

_DECLARED = re.compile(
    r"\bconstant\s+(?:constexpr\s+|const\s+)?"
    r"(?P<type>[\w:]+(?:\s*<[^<>;]*>)?(?:\s+[\w:]+)*?)\s+(?P<name>\w+)\s*"
    r"\[\[\s*function_constant\s*\(\s*(?P<index>[^()]*?)\s*\)\s*\]\]\s*;"
)
_ASKED = re.compile(r"(?:metal\s*::\s*)?\bis_function_constant_defined\s*\(\s*(\w+)\s*\)")
# On a parameter: alone, or beside another attribute.
_CONDITION = re.compile(
    r"\[\[\s*function_constant\s*\([^()]*\)\s*\]\]"
    r"|\s*,\s*function_constant\s*\([^()]*\)"
    r"|\bfunction_constant\s*\([^()]*\)\s*,\s*"
)


def with_constants(source: str, constants: Mapping[int | str, GivenValue]) -> str:
    """The source with these function constants, by index or name, as plain constants.

    `torch.mps.compile_shader` takes the result, and so does `anymetal.compile_shader`. Parameters
    that a function constant would remove stay: what a kernel does not read need not be bound.

    ```python
    import anymetal
    import torch

    source = '''
    constant int by [[function_constant(0)]];
    kernel void add(device int* x, uint i [[thread_position_in_grid]]) { x[i] += by; }
    '''
    x = torch.zeros(3, dtype=torch.int32)
    anymetal.compile_shader(anymetal.with_constants(source, {"by": 5})).add(x)
    assert x.tolist() == [5, 5, 5]
    ```
    """
    declared = list(_DECLARED.finditer(source))
    indices = {found["name"]: found["index"] for found in declared}
    names = _by_index(source, indices) if any(isinstance(key, int) for key in constants) else {}
    values: dict[str, ConstantValue] = {}
    for key, given in constants.items():
        name = names.get(key) if isinstance(key, int) else key
        if name is None or name not in indices:
            known = ", ".join(f"{name} ({index})" for name, index in indices.items())
            raise ValueError(
                f"with_constants: the source has no function constant {key!r}; it has"
                f" {known or 'none'}"
            )
        value = tuple(given) if isinstance(given, Sequence) else given
        if not all(isinstance(one, Scalar) for one in _elements(value)):
            raise TypeError(
                f"with_constants: {name!r} is {given!r}, expected a number, or a vector's numbers"
            )
        values[name] = value
    asked = set(_ASKED.findall(source))

    def definition(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in values and name not in asked:
            return found[0]
        kind, value = found["type"], values.get(name, 0)
        listed = ", ".join(map(_spelled, _elements(value)))
        made = kind if isinstance(value, tuple) else f"static_cast<{kind}>"
        return f"constant {kind} {name} = {made}({listed});"

    # What is left of a declaration keeps its attribute; those of parameters go.
    parts = _DECLARED.split(_ASKED.sub(lambda found: str(found[1] in values).lower(), source))
    plain = [_CONDITION.sub("", part) for part in parts[:: _DECLARED.groups + 1]]
    definitions = [definition(found) for found in declared]
    pairs = zip(plain, [*definitions, ""], strict=True)
    return "".join(text for pair in pairs for text in pair)


def _by_index(source: str, indices: Mapping[str, str]) -> dict[int, str]:
    """Names by indices; the front end knows those that are computed, or called by a macro."""
    if all(index.isdigit() for index in indices.values()):
        return {int(index): name for name, index in indices.items()}
    found = prepare(Source(source)).function_constants
    return {found[name].index: name for name in indices if name in found}


def _elements(value: ConstantValue) -> tuple[Scalar, ...]:
    return value if isinstance(value, tuple) else (value,)


def _spelled(value: Scalar) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value}ul" if value >= 2**63 else str(value)
    if math.isfinite(value):
        return f"{value!r}f"
    return "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
