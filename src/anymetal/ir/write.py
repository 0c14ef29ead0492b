"""Parts of instructions, functions and globals to the text that LLVM reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from anymetal.ir.grammar import BINARY, CASTS

if TYPE_CHECKING:
    from anymetal.ir.instruction import Instruction


def instruction(of: Instruction) -> str:
    """An instruction's text, without indentation."""
    body = _WRITERS.get(of.opcode, _plain)(of)
    if of.metadata:
        body += attached(of.metadata)
    return body if of.result is None else f"{of.result} = {body}"


def attached(metadata: dict[str, str]) -> str:
    return "".join(f", !{name} {node}" for name, node in metadata.items())


def words(*parts: str | Iterable[str]) -> str:
    """Words with a space between, empty ones left out."""
    flat = (w for part in parts for w in ([part] if isinstance(part, str) else part))
    return " ".join(word for word in flat if word)


def _head(of: Instruction) -> str:
    return " ".join((of.opcode, *of.flags)) if of.flags else of.opcode


def _listed(of: Instruction) -> str:
    return ", ".join([f"{operand.type} {operand.text}" for operand in of.operands])


def _plain(of: Instruction) -> str:
    return words(_head(of), _listed(of))


def _binary(of: Instruction) -> str:
    left, right = of.operands
    return f"{_head(of)} {of.type} {left.text}, {right.text}"


def _cast(of: Instruction) -> str:
    return f"{_head(of)} {of.operands[0]} to {of.type}"


def _compare(of: Instruction) -> str:
    left, right = of.operands
    return f"{_head(of)} {of.predicate} {left.type} {left.text}, {right.text}"


def _phi(of: Instruction) -> str:
    pairs = zip(of.operands, of.labels, strict=True)
    incoming = ", ".join([f"[ {operand.text}, %{label} ]" for operand, label in pairs])
    return f"{_head(of)} {of.type} {incoming}"


def _atomic(of: Instruction) -> str:
    return "atomic" if of.ordering else ""


def _tail(of: Instruction) -> str:
    align = f", align {of.align}" if of.align else ""
    return f" {of.ordering}{align}" if of.ordering else align


def _load(of: Instruction) -> str:
    head = words("load", _atomic(of), "volatile" if of.is_volatile else "")
    return f"{head} {of.type}, {of.operands[0]}{_tail(of)}"


def _store(of: Instruction) -> str:
    head = words("store", _atomic(of), "volatile" if of.is_volatile else "")
    return f"{head} {_listed(of)}{_tail(of)}"


def _modify(of: Instruction) -> str:
    head = words(_head(of), "volatile" if of.is_volatile else "", of.predicate)
    return f"{head} {_listed(of)}{_tail(of)}"


def _fence(of: Instruction) -> str:
    return f"fence {of.ordering}"


def _getelementptr(of: Instruction) -> str:
    return f"{_head(of)} {of.element}, {_listed(of)}"


def _alloca(of: Instruction) -> str:
    count = f", {of.operands[0]}" if of.operands else ""
    return f"alloca {of.element}{count}{_tail(of)}"


def _call(of: Instruction) -> str:
    attributes = of.attributes or ((),) * len(of.operands)
    arguments = ", ".join(
        [
            words(operand.type.text, given, operand.text)
            for operand, given in zip(of.operands, attributes, strict=True)
        ]
    )
    head = words(
        of.tail,
        "call",
        of.flags,
        of.convention,
        of.result_attributes,
        of.type.text,
        of.function_type,
    )
    return words(f"{head} {of.target}({arguments})", of.call_attributes)


def _branch(of: Instruction) -> str:
    labels = [f"label %{label}" for label in of.labels]
    return "br " + ", ".join([*map(str, of.operands), *labels])


def _switch(of: Instruction) -> str:
    value, *cases = of.operands
    default, *labels = of.labels
    listed = " ".join(f"{case}, label %{label}" for case, label in zip(cases, labels, strict=True))
    return f"switch {value}, label %{default} [ {listed} ]"


def _return(of: Instruction) -> str:
    return f"ret {of.operands[0]}" if of.operands else "ret void"


def _shufflevector(of: Instruction) -> str:
    mask = ", ".join(f"i32 {number}" if number >= 0 else "i32 poison" for number in of.numbers)
    return f"shufflevector {_listed(of)}, <{len(of.numbers)} x i32> <{mask}>"


def _with_indices(of: Instruction) -> str:
    return ", ".join([f"{of.opcode} {_listed(of)}", *map(str, of.numbers)])


def _debug_record(of: Instruction) -> str:
    value = str(of.operands[0]) if of.operands else ""
    return f"{of.opcode}({value}{of.record}"


_WRITERS: dict[str, Callable[[Instruction], str]] = {
    **dict.fromkeys(BINARY, _binary),
    **dict.fromkeys(CASTS, _cast),
    **dict.fromkeys(("icmp", "fcmp"), _compare),
    **dict.fromkeys(("atomicrmw", "cmpxchg"), _modify),
    **dict.fromkeys(("extractvalue", "insertvalue"), _with_indices),
    **dict.fromkeys(("#dbg_declare", "#dbg_value", "#dbg_assign", "#dbg_label"), _debug_record),
    "phi": _phi,
    "load": _load,
    "store": _store,
    "fence": _fence,
    "getelementptr": _getelementptr,
    "alloca": _alloca,
    "call": _call,
    "br": _branch,
    "switch": _switch,
    "ret": _return,
    "shufflevector": _shufflevector,
}
