"""IR with a static constructor -> IR without: the values it computes become constants.

`constant float4 E = exp(float4(0, 1, 2, 3))` is more than clang folds, so it leaves code to run
before the kernel. That code runs here once, in a process of its own: it may loop for ever or crash,
and every engine and the checker then see plain constant tables.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from anymetal import settings
from anymetal.ir import Function, Global, Module, named_global, parse
from anymetal.ir.tokens import Reader
from anymetal.msl.contract import OPEN, contract
from anymetal.msl.spelling import author_name

_CONSTRUCTORS = "@llvm.global_ctors"
_UNSET = "@am_unset_constant_"
_EVALUATOR = Path(__file__).parent / "evaluate.py"
_TARGET = "target "
# What NVIDIA's processors compute by an instruction: a function of the same type.
_HOST_FUNCTIONS = {
    "llvm.nvvm.sqrt.approx.f": "llvm.sqrt.f32",
    "llvm.nvvm.ex2.approx.ftz.f32": "llvm.exp2.f32",
    "llvm.nvvm.lg2.approx.f": "llvm.log2.f32",
    "llvm.nvvm.sin.approx.f": "llvm.sin.f32",
    "llvm.nvvm.cos.approx.f": "llvm.cos.f32",
    "llvm.nvvm.fmax.f": "llvm.maxnum.f32",
    "llvm.nvvm.fmin.f": "llvm.minnum.f32",
    "llvm.nvvm.rsqrt.approx.f": "am_host_rsqrt_f",
    "llvm.nvvm.rsqrt.approx.d": "am_host_rsqrt_d",
}
_DEFINITIONS = {
    f"am_host_rsqrt_{letter}": f"""define internal {kind} @am_host_rsqrt_{letter}({kind} %x) {{
  %root = call {kind} @llvm.sqrt.f{bits}({kind} %x)
  %result = fdiv {kind} 1.0, %root
  ret {kind} %result
}}"""
    for letter, kind, bits in (("f", "float", 32), ("d", "double", 64))
}
_PROCESSOR = re.compile(r' "target-(?:cpu|features)"="[^"]*"')


class UnknownValue(Exception):
    """The initial value of program-scope variables cannot be computed; `names` are the author's."""

    def __init__(self, names: list[str], reason: str) -> None:
        super().__init__(reason)
        self.names = names


def evaluate_initialisers(module: Module) -> Module:
    """The same program with each variable's value in place of the code that computes it."""
    listed = module.globals.get(_CONSTRUCTORS)
    if listed is None:
        return module
    constructors = [token for token in Reader(listed.initialiser).tokens if token[:1] == "@"]
    variables = [one for one in module.globals.values() if _is_computed(one)]
    needed = _reachable(module, constructors)
    values = _evaluated(module, constructors, variables, needed)
    _name_unset_constants(module, variables, needed)
    return _with_values(module, variables, values, constructors)


def _is_computed(one: Global) -> bool:
    """What an author declares at program scope is constant, unless a constructor fills it."""
    return not one.is_constant and not one.name.startswith(("@llvm.", _UNSET))


def _reachable(module: Module, constructors: list[str]) -> list[Function]:
    """The constructors and all functions of the module that they call."""
    functions = {function.name: function for function in module.functions}
    found: dict[str, Function] = {}
    waiting = [name.removeprefix("@") for name in constructors]
    while waiting:
        name = waiting.pop()
        if name in functions and name not in found:
            found[name] = functions[name]
            waiting += [i.callee for i in functions[name].instructions() if i.callee]
    return list(found.values())


def _evaluated(
    module: Module, constructors: list[str], variables: list[Global], needed: list[Function]
) -> dict[str, bytes]:
    layout = module.layout()
    names = [author_name(variable.name[1:]) for variable in variables]
    _refuse_open_calls(module, needed, names)
    extracted = parse(str(_extracted(module, variables, needed)))
    _call_host_functions(extracted)
    contract(extracted)
    question = {
        "ir": str(extracted),
        "constructors": [name.removeprefix("@") for name in constructors],
        "sizes": {variable.name[1:]: layout.size(variable.type) for variable in variables},
    }
    limit = settings.COMPILE_LIMIT.value()
    try:
        done = subprocess.run(
            [sys.executable, str(_EVALUATOR)],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            check=False,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        raise UnknownValue(names, f"computing it takes longer than {limit:g} s") from None
    if done.returncode != 0:
        raise UnknownValue(names, "the code that computes it crashes")
    return {f"@{name}": bytes.fromhex(text) for name, text in json.loads(done.stdout).items()}


def _refuse_open_calls(module: Module, needed: list[Function], names: list[str]) -> None:
    defined = {function.name for function in module.functions}
    for function in needed:
        for call in function.instructions():
            callee = call.callee
            if callee and callee not in defined | OPEN and not callee.startswith("llvm."):
                raise UnknownValue(names, "the code that computes it needs a running kernel")


def _extracted(module: Module, variables: list[Global], needed: list[Function]) -> Module:
    """What the constructors need, with every variable visible from outside. It is for the processor
    that this runs on, whatever the kernel is for."""
    visible = {one.name: f"{one.name} = global {one.type} {one.initialiser}" for one in variables}
    parts: list[str | Function] = []
    for part in module.parts:
        if isinstance(part, Function):
            parts += [part] if part in needed else []
        elif part.startswith(_UNSET):
            one = module.globals[part.split(" ", 1)[0]]
            parts.append(f"{one.name} = constant {one.type} zeroinitializer")
        elif not part.startswith((_CONSTRUCTORS, _TARGET)):
            parts.append(visible.get(part.split(" ", 1)[0], _PROCESSOR.sub("", part)))
    return Module(parts)


def _call_host_functions(module: Module) -> None:
    """Functions of another processor's become such as this one has. LLVM declares its own."""
    wanted = set()
    for function in module.functions:
        for call in function.instructions():
            name = _HOST_FUNCTIONS.get(call.callee or "")
            if name is not None:
                call.target = f"@{name}"
                wanted.add(name)
    module.parts += [text for name, text in _DEFINITIONS.items() if name in wanted]


def _name_unset_constants(module: Module, variables: list[Global], needed: list[Function]) -> None:
    """A variable made from a function constant without a value is that constant to its readers.

    Code that still reads it when all is optimised is then refused under the constant's name.
    """
    unset = {one.name: one.name for one in module.globals.values() if one.name.startswith(_UNSET)}
    makers = [_globals_of(function) for function in needed] if unset else []
    names = {variable.name for variable in variables}
    while found := {
        name: unset[min(made & unset.keys())]
        for made in makers
        if made & unset.keys()
        for name in (made & names) - unset.keys()
    }:
        unset |= found
    for function in module.functions:
        for instruction in function.instructions():
            for index, operand in enumerate(instruction.operands):
                if operand.text in unset:
                    instruction.set_operand(index, named_global(unset[operand.text][1:]))


def _globals_of(function: Function) -> set[str]:
    used = (operand for i in function.instructions() for operand in i.operands)
    return {operand.text for operand in used if operand.is_global}


def _with_values(
    module: Module, variables: list[Global], values: dict[str, bytes], constructors: list[str]
) -> Module:
    """The module's variables as constants. Their type is bytes: accesses name their own."""
    lines = {variable.name: _constant(variable, values[variable.name]) for variable in variables}
    left = [one for one in module.functions if f"@{one.name}" not in constructors]
    lines |= {
        name: ""
        for name in module.globals
        if name.startswith(_UNSET) and not any(re.search(rf"{name}\b", str(one)) for one in left)
    }
    parts: list[str | Function] = []
    for part in module.parts:
        if isinstance(part, Function):
            parts += [] if f"@{part.name}" in constructors else [part]
        elif not part.startswith(_CONSTRUCTORS):
            parts.append(lines.get(part.split(" ", 1)[0], part))
    return Module(parts)


def _constant(variable: Global, value: bytes) -> str:
    text = "".join(f"\\{byte:02X}" for byte in value)
    _, comma, tail = variable.initialiser.partition(", align")
    return f'{variable.name} = internal constant [{len(value)} x i8] c"{text}"{comma}{tail}'
