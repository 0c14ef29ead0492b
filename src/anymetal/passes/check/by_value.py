"""A function copies the structures that it is given by value itself.

Otherwise LLVM does when it inlines the function, as bytes, and their padding is not to be told from
their members any more.
"""

from __future__ import annotations

from dataclasses import replace

from anymetal.ir import I1, I64, PTR, VOID, Builder, Function, Module, Operand, boolean, i64
from anymetal.ir.tokens import Reader
from anymetal.passes.check.unset import locate

_BY_VALUE = "byval("
_COPY = "llvm.memcpy.p0.p0.i64"


def copy_arguments(module: Module) -> None:
    """Takes `byval` from all functions and calls, and puts copies where the functions begin."""
    takers = [function for function in module.functions if _BY_VALUE in function.header]
    if not takers:
        return
    module.declare(_COPY, VOID, [PTR, PTR, I64, I1])
    for function in takers:
        _copy_in(function, module)
    for function in module.functions:
        for call in function.instructions():
            if call.opcode == "call" and _BY_VALUE in call.text:
                call.attributes = tuple(_without(own) for own in call.attributes)


def _copy_in(function: Function, module: Module) -> None:
    build, parameters = Builder(function.fresh), []
    for parameter in function.parameters:
        kinds = [a for a in parameter.attributes if a.startswith(_BY_VALUE)]
        parameters.append(replace(parameter, attributes=_without(parameter.attributes)))
        if not kinds:
            continue
        kind = Reader(kinds[0].removeprefix(_BY_VALUE).removesuffix(")")).type()
        align = next((int(a.split()[1]) for a in parameter.attributes if a[:6] == "align "), 1)
        own = Operand(PTR, function.fresh("own"))
        for instruction in function.instructions():
            instruction.replace(parameter.name, own)
        build.alloca(kind, align, name=own.text)
        operands = [own, parameter.operand(), i64(module.layout().size(kind)), boolean(False)]
        attributes = ((f"align {align}",), (f"align {align}",), (), ())
        build.call(VOID, _COPY, operands, attributes=attributes)
    function.signature.parameters = parameters
    variables = [made for made in build.made if made.opcode == "alloca"]
    copies = [made for made in build.made if made.opcode != "alloca"]
    locate(function, copies)
    function.at_entry([*variables, *copies])


def _without(attributes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(a for a in attributes if not a.startswith(_BY_VALUE))
