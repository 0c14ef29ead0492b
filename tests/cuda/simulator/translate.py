"""A kernel's instructions become C++ that a thread runs up to where it waits for others.

An operation is a function of waiting.h that has the opcode's name, with its operands as they
stand. What looks at memory, jumps or waits is written here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.cuda.simulator.flow import Flow, label_of, rounds_of
from tests.cuda.simulator.ptx import (
    PREDICATE,
    Address,
    Instruction,
    Kernel,
    Label,
    Operand,
    Unknown,
    Vector,
)

_TYPES = {PREDICATE: "u8", "b8": "u8", "b16": "u16", "b32": "u32", "b64": "u64"}
_TYPES |= {"f32": "u32", "f64": "u64", "s16": "u16", "u16": "u16", "u32": "u32", "u64": "u64"}
_TYPES |= {"s32": "u32", "s64": "u64", "f16": "u16", "bf16": "u16"}
_SPECIAL = {
    "%tid.x": "t.index",
    "%tid.y": "0",
    "%tid.z": "0",
    "%laneid": "t.index % 32",
    "%ntid.x": "t.block->width",
    "%ntid.y": "1",
    "%ntid.z": "1",
    **{f"%ctaid.{axis}": f"t.block->position[{n}]" for n, axis in enumerate("xyz")},
    **{f"%nctaid.{axis}": f"t.block->groups[{n}]" for n, axis in enumerate("xyz")},
    "%clock": "u32(now())",
    "%clock64": "now()",
    "%globaltimer": "now()",
}
# Opcodes that say something to the hardware alone; what they name is of no account.
_SILENT = ("griddepcontrol.", "prefetch", "membar", "fence", "nanosleep")
_WAIT = ["griddepcontrol", "wait"]
_TAKE_CARRY = ("addc", "subc", "madc")
# Shared memory begins here, so that address 0 is nobody's.
SHARED_BASE = 1024
_DYNAMIC_ALIGN = 16


@dataclass
class Layout:
    """Where the module's variables of shared memory lie, and where those end."""

    places: dict[str, int]
    end: int


def shared_layout(kernel: Kernel) -> Layout:
    """Static variables, then the one whose size the launch says."""
    places, end = {}, SHARED_BASE
    shared = [one for one in kernel.variables if one.space == "shared"]
    for variable in sorted(shared, key=lambda one: one.size == 0):
        align = variable.align if variable.size else max(variable.align, _DYNAMIC_ALIGN)
        end = -(-end // align) * align
        places[variable.name] = end
        end += variable.size
    return Layout(places, -(-end // _DYNAMIC_ALIGN) * _DYNAMIC_ALIGN)


def translate(kernel: Kernel) -> str:
    return _Translator(kernel).text()


class _Translator:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._layout = shared_layout(kernel)
        self._globals = {one.name: one for one in kernel.variables if one.space != "shared"}
        self._flow = Flow(kernel)
        self._block = ""
        self._stops = 0
        self._behind: set[str] = set()  # labels that the code has passed: jumps to them go back

    def text(self) -> str:
        body = self._body()
        opcodes = [one.parts for one in self._kernel.code if isinstance(one, Instruction)]
        waits, watches = _WAIT in opcodes, any("nc" in parts for parts in opcodes)
        stops = [f"    case {number}: goto stop_{number};" for number in range(self._stops)]
        return "\n".join(
            [
                f"constexpr bool watches_writes = {_says(watches)};",
                '#include "waiting.h"',
                *self._variables(),
                *self._registers(),
                'extern "C" {',
                "u64 registers_size() { return sizeof(Registers); }",
                "void step(Thread& t, Registers& r) {",
                "  u16 nowhere16; u32 nowhere32; u64 nowhere64;",
                "  switch (t.at) {",
                f"    case at_start: t.has_waited = {_says(not waits)}; break;",
                *stops,
                "  }",
                *body,
                "  return end(t);",
                "}",
                "}",
            ]
        )

    def _body(self) -> list[str]:
        lines = []
        for item in self._kernel.code:
            if isinstance(item, Label):
                self._behind.add(item.name)
                lines.append(f"  {self._counted(item.name)}{label_of(item.name)}:;")
                self._block = item.name
            else:
                lines.append(self._statement(item))
        return lines

    def _registers(self) -> list[str]:
        """What is a thread's own: it comes back to all of it when it has waited."""
        arrays = self._kernel.arrays.items()
        return [
            "struct Registers {",
            *(f"  {_TYPES[kind]} {name};" for name, kind in self._kernel.registers.items()),
            *(f"  alignas(16) u8 {name}[{max(size, 1)}];" for name, size in arrays),
            *(f"  u32 {rounds_of(name)};" for name in self._flow.headers),
            "};",
        ]

    def _variables(self) -> list[str]:
        lines = []
        for one in self._globals.values():
            count, kind = max(one.size // one.element, 1), f"u{one.element * 8}"
            given = ", ".join(f"{kind}({_literal(value)})" for value in one.values)
            name = variable_name(one.name)
            lines.append(f"alignas({max(one.align, 16)}) {kind} {name}[{count}] = {{{given}}};")
            lines.append(f'extern "C" u64 address_of_{name}() {{ return u64({name}); }}')
        return lines

    # --- operands ---------------------------------------------------------------------------------

    def _value(self, operand: Operand, sibling: str = "") -> str:
        """`sibling` stands beside an operand that nobody wants, and is as wide."""
        if not isinstance(operand, str):
            raise Unknown(f"operand {operand}")
        if operand in self._kernel.registers:
            return f"r.{operand}"
        if operand == "_":
            return f"nowhere{self._width(sibling)}"
        if operand in _SPECIAL:
            return _SPECIAL[operand]
        name, _, offset = operand.partition("+")
        if name in self._layout.places:
            return f"{self._layout.places[name] + int(offset or 0)}"
        if name in self._globals:
            return f"u64({variable_name(name)}) + {int(offset or 0)}"
        if name in self._kernel.arrays:
            return f"u64(r.{name}) + {int(offset or 0)}"
        if name == self._kernel.parameter:
            return f"u64(t.block->parameter) + {int(offset or 0)}"
        return _literal(operand)

    def _width(self, register: str) -> str:
        return _TYPES[self._kernel.registers[register]][1:]

    def _values(self, operand: Operand) -> list[str]:
        if isinstance(operand, Vector):
            known = next((p for p in operand.parts if p in self._kernel.registers), "")
            return [self._value(part, known) for part in operand.parts]
        return [self._value(operand)]

    def _address(self, operand: Operand) -> str:
        if not isinstance(operand, Address):
            raise Unknown(f"address {operand}")
        return f"{self._value(operand.base)} + {operand.offset}"

    # --- statements -------------------------------------------------------------------------------

    def _statement(self, one: Instruction) -> str:
        line = f"  {self._plain(one)}"
        if not one.guard:
            return line
        condition = f"r.{one.guard}" if one.guard[0] != "!" else f"!r.{one.guard[1:]}"
        if "stop_" in line:
            # A label stands behind what is skipped, since threads come back to where they waited.
            self._stops += 1
            skip = f"stop_{self._stops - 1}"
            return f"  if (!({condition})) goto {skip};\n{line}\n  {skip}:;"
        return f"  if ({condition}) {{ {line.strip()} }}"

    def _plain(self, one: Instruction) -> str:
        first = one.parts[0]
        special = getattr(self, f"_{first}_", None)
        if one.parts == _WAIT:
            return "t.has_waited = true;"
        if one.opcode.startswith(_SILENT):
            return ";"
        if special is not None:
            return str(special(one))
        if "sync" in one.parts:
            return self._collective(one)
        if first == "cvt":
            return self._conversion(one)
        values = self._listed(one)
        if "cc" in one.parts or first in _TAKE_CARRY:
            values.append("t.carry")
        return f"{'_'.join(one.parts)}({', '.join(values)});"

    def _listed(self, one: Instruction) -> list[str]:
        return [value for operand in one.operands for value in self._values(operand)]

    def _stop(self, call: str, one: Instruction) -> str:
        """The thread leaves here, and comes back when what it waits for is there."""
        number = self._stops
        self._stops += 1
        return f"t.at = {number}; return {call.format(place=one.place)}; stop_{number}:;"

    def _ret_(self, one: Instruction) -> str:
        return "return end(t);"

    _exit_ = _ret_

    def _trap_(self, one: Instruction) -> str:
        return f'return fail(t, {one.place}, "trap");'

    def _call_(self, one: Instruction) -> str:
        name = next(str(o) for o in one.operands if isinstance(o, str))
        return f'return fail(t, {one.place}, "call of {name}");'

    def _counted(self, label: str) -> str:
        """Counts the rounds of a loop whose first block control comes to."""
        if label not in self._flow.headers:
            return ""
        if self._flow.is_round(self._block, label):
            return f"++r.{rounds_of(label)}; "
        return f"r.{rounds_of(label)} = 0; "

    def _jump(self, label: str) -> str:
        return f"{self._counted(label)}goto {label_of(label)};"

    def _bra_(self, one: Instruction) -> str:
        label = str(one.operands[0])
        jump = self._jump(label)
        if label not in self._behind:
            return jump
        # Others may be waited for in a loop, so that nobody goes round for ever.
        number = self._stops
        self._stops += 1
        return (
            f"if (--t.rounds == 0) {{ t.at = {number}; return rest(t, {one.place}); "
            f"stop_{number}:; }} {jump}"
        )

    def _brx_(self, one: Instruction) -> str:
        index, table = one.operands
        labels = self._kernel.tables[str(table)]
        cases = " ".join(f"case {n}: {self._jump(name)}" for n, name in enumerate(labels))
        wrong = f'default: return fail(t, {one.place}, "brx beyond its table");'
        return f"switch ({self._value(index)}) {{ {cases} {wrong} }}"

    def _ld_(self, one: Instruction) -> str:
        into, address, *_ = one.operands
        values = self._values(into)
        return self._access("load", one, address, values)

    def _st_(self, one: Instruction) -> str:
        address, values, *_ = one.operands
        return self._access("store", one, address, self._values(values))

    def _access(self, what: str, one: Instruction, address: Operand, values: list[str]) -> str:
        kind = _memory_type(one.parts[-1])
        return (
            f"{what}<{_space(one)}, {kind}, {len(values)}>(t, {one.place}, "
            f"{self._address(address)}, {', '.join(values)});"
        )

    def _atom_(self, one: Instruction) -> str:
        into, address, *values = one.operands
        target = self._value(into) if into != "_" else f"nowhere{one.parts[-1][-2:]}"
        return self._atomic(one, target, address, values)

    def _red_(self, one: Instruction) -> str:
        address, *values = one.operands
        return self._atomic(one, f"nowhere{one.parts[-1][-2:]}", address, values)

    def _atomic(self, one: Instruction, into: str, address: Operand, values: list[Operand]) -> str:
        names = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
        (name,) = (part for part in one.parts if part in names)
        given = ", ".join(self._value(value) for value in values)
        kind = one.parts[-1]
        return (
            f"atomic<{_space(one)}, {kind}>(t, {one.place}, {self._address(address)}, {into}, "
            f"[&](auto old) {{ return {name}_{kind}(old, {given}); }});"
        )

    def _bar_(self, one: Instruction) -> str:
        if one.parts[1] == "warp":
            return self._stop(f"warp_barrier(t, {{place}}, {self._value(one.operands[0])})", one)
        return self._barrier_(one)

    def _barrier_(self, one: Instruction) -> str:
        if one.parts[1:] not in (["sync"], ["cta", "sync"], ["sync", "aligned"]):
            raise Unknown(one.opcode)
        number, *count = (self._value(operand) for operand in one.operands)
        return self._stop(f"barrier(t, {{place}}, {number}, {''.join(count) or '0'})", one)

    def _activemask_(self, one: Instruction) -> str:
        into = self._value(one.operands[0])
        when = ", ".join(self._flow.when(self._block, one.place))
        return self._stop(f"active(t, {{place}}, {into}, {when})", one)

    def _collective(self, one: Instruction) -> str:
        aligned = [part for part in one.parts if part not in ("sync", "aligned")]
        name = "_".join(aligned)
        if one.parts[0] == "ldmatrix":
            into, address = one.operands
            values = [*self._values(into), self._address(address)]
        else:
            values = self._listed(one)
        return self._stop(f"{name}(t, {{place}}, {', '.join(values)})", one)

    def _cp_(self, one: Instruction) -> str:
        kind = one.parts[2]
        if one.parts[1] != "async":
            raise Unknown(one.opcode)
        if kind == "commit_group":
            return "commit(t);"
        if kind == "wait_all":
            return "arrive(t, 0);"
        if kind == "wait_group":
            return f"arrive(t, {self._value(one.operands[0])});"
        if kind not in ("ca", "cg"):
            raise Unknown(one.opcode)
        to, source, size, *_ = one.operands
        return (
            f"copy(t, {one.place}, {self._address(to)}, {self._address(source)}, "
            f"{self._value(size)});"
        )

    def _conversion(self, one: Instruction) -> str:
        """cvt{.rounding}.TO.FROM"""
        *rounding, to, source = one.parts[1:]
        how = rounding[0] if rounding else "rn"
        if len(rounding) > 1 or how not in ("rn", "rni", "rzi", "rmi", "rpi"):
            raise Unknown(one.opcode)
        return f"cvt<{to}, {source}, {how}>({', '.join(self._listed(one))});"

    def _createpolicy_(self, one: Instruction) -> str:
        return f"{self._value(one.operands[0])} = 0;"

    def _isspacep_(self, one: Instruction) -> str:
        into, address = (self._value(operand) for operand in one.operands)
        if one.parts[1] != "shared":
            raise Unknown(one.opcode)
        return f"{into} = is_shared(t, {address});"

    def _cvta_(self, one: Instruction) -> str:
        """Generic addresses are the host's; those of shared memory begin anew in each block."""
        into, address = (self._value(operand) for operand in one.operands)
        if "shared" not in one.parts:
            return f"{into} = {address};"
        way = "to_shared" if one.parts[1] == "to" else "from_shared"
        return f"{into} = {way}(t, {address});"


def _space(one: Instruction) -> str:
    if "nc" in one.parts:
        return "unchanging"
    named = [space for space in ("shared", "global") if space in one.parts]
    is_own = not {"param", "local", "const"}.isdisjoint(one.parts)
    return named[0] if named else "own" if is_own else "generic"


def _says(condition: bool) -> str:
    return "true" if condition else "false"


def _memory_type(name: str) -> str:
    return {"b": "u", "f": "u"}.get(name[0], name[0]) + name.lstrip("bfsu")


def variable_name(name: str) -> str:
    return "variable_" + re.sub(r"\W", "S", name)


def _literal(text: str) -> str:
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
        return f"0x{text[2:]}u"
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
        return f"0x{text[2:]}ull"
    if re.fullmatch(r"-?\d+U?|0x[0-9a-fA-F]+U?", text):
        value = int(text.rstrip("U"), 0)
        return str(value) if -(2**31) < value < 2**31 else f"u64({value % 2**64}ull)"
    raise Unknown(f"operand {text}")
