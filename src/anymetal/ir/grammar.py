"""The grammar of instructions: text in, the parts of an `Instruction` out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from anymetal.ir.operand import Operand
from anymetal.ir.tokens import Reader, UnknownInstruction
from anymetal.ir.types import METADATA, PTR, VOID, Type, Vector, boolean_like, structure, vector

CASTS = frozenset(
    [
        "zext",
        "sext",
        "trunc",
        "fpext",
        "fptrunc",
        "bitcast",
        "ptrtoint",
        "ptrtoaddr",
        "inttoptr",
        "uitofp",
        "sitofp",
        "fptoui",
        "fptosi",
        "addrspacecast",
    ]
)
BINARY = frozenset(
    [
        "add",
        "sub",
        "mul",
        "udiv",
        "sdiv",
        "urem",
        "srem",
        "shl",
        "lshr",
        "ashr",
        "and",
        "or",
        "xor",
        "fadd",
        "fsub",
        "fmul",
        "fdiv",
        "frem",
    ]
)
FAST_FLAGS = frozenset(["fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc"])
_TAIL_WORDS = frozenset(("tail", "musttail", "notail"))


class Parts(TypedDict, total=False):
    """What an instruction is made of; `Instruction` says which opcode has which."""

    type: Type
    flags: tuple[str, ...]
    operands: tuple[Operand, ...]
    predicate: str
    element: Type | None
    target: str
    tail: str
    convention: str
    result_attributes: tuple[str, ...]
    function_type: str
    attributes: tuple[tuple[str, ...], ...]
    call_attributes: tuple[str, ...]
    labels: tuple[str, ...]
    numbers: tuple[int, ...]
    align: int
    ordering: str
    is_volatile: bool
    record: str
    metadata: dict[str, str]


def read_parts(text: str) -> Parts:
    """Takes one instruction apart; raises UnknownInstruction where the grammar does not know it."""
    reader = Reader(text)
    if reader.peek[:1] == "%":
        reader.at += 1
        reader.expect("=")
    opcode, tail = reader.next(), ""
    if opcode in _TAIL_WORDS:
        opcode, tail = reader.next(), opcode
    read = _RULES.get(opcode)
    if read is None:
        raise UnknownInstruction(f"no rule for: {text}")
    parts = read(reader)
    if tail:
        parts["tail"] = tail
    if reader.peek:
        parts["metadata"] = reader.metadata()
    return parts


def _binary(reader: Reader) -> Parts:
    flags = reader.flags()
    kind = reader.type()
    left = reader.value()
    reader.expect(",")
    operands = (Operand(kind, left), Operand(kind, reader.value()))
    return Parts(type=kind, flags=flags, operands=operands)


def _unary(reader: Reader) -> Parts:
    flags = reader.flags()
    operand = reader.operand()
    return Parts(type=operand.type, flags=flags, operands=(operand,))


def _cast(reader: Reader) -> Parts:
    flags = reader.flags()
    source = reader.operand()
    reader.expect("to")
    return Parts(type=reader.type(), flags=flags, operands=(source,))


def _compare(reader: Reader) -> Parts:
    *flags, predicate = reader.flags()
    first = reader.operand()
    reader.expect(",")
    second = Operand(first.type, reader.value())
    return Parts(
        type=boolean_like(first.type),
        flags=tuple(flags),
        predicate=predicate,
        operands=(first, second),
    )


def _select(reader: Reader) -> Parts:
    flags = reader.flags()
    operands = reader.operands()
    return Parts(type=operands[1].type, flags=flags, operands=operands)


def _phi(reader: Reader) -> Parts:
    flags = reader.flags()
    kind = reader.type()
    operands, labels = [], []
    while True:
        reader.expect("[")
        operands.append(Operand(kind, reader.value()))
        reader.expect(",")
        labels.append(reader.label())
        reader.expect("]")
        if reader.tokens[reader.at + 1] != "[" or not reader.accept(","):
            break
    return Parts(type=kind, flags=flags, operands=tuple(operands), labels=tuple(labels))


def _load(reader: Reader) -> Parts:
    flags = reader.flags()
    kind = reader.type()
    reader.expect(",")
    parts = Parts(type=kind, operands=(reader.operand(),), is_volatile="volatile" in flags)
    return _with_tail(reader, parts)


def _store(reader: Reader) -> Parts:
    flags = reader.flags()
    value = reader.operand()
    reader.expect(",")
    parts = Parts(operands=(value, reader.operand()), is_volatile="volatile" in flags)
    return _with_tail(reader, parts)


def _with_tail(reader: Reader, parts: Parts) -> Parts:
    """The ordering of an atomic instruction, and the alignment."""
    start = reader.at
    while reader.peek not in ("", ","):
        reader.at += 1
    if reader.at > start:
        parts["ordering"] = reader.since(start)
    _read_align(reader, parts)
    return parts


def _read_align(reader: Reader, parts: Parts) -> None:
    if reader.peek == "," and reader.tokens[reader.at + 1] == "align":
        reader.at += 2
        parts["align"] = int(reader.next())


def _getelementptr(reader: Reader) -> Parts:
    flags = reader.flags()
    element = reader.type()
    reader.expect(",")
    operands = reader.operands()
    counts = [operand.type.count for operand in operands if isinstance(operand.type, Vector)]
    kind = vector(counts[0], PTR) if counts else operands[0].type
    return Parts(type=kind, flags=flags, element=element, operands=operands)


def _alloca(reader: Reader) -> Parts:
    element = reader.type()
    parts = Parts(type=PTR, element=element)
    if reader.peek == "," and reader.tokens[reader.at + 1][:1] not in ("!", "a"):
        reader.at += 1
        parts["operands"] = (reader.operand(),)
    _read_align(reader, parts)
    return parts


def _called(reader: Reader) -> str:
    """A function, what holds its address, or inline assembly with its constraints."""
    start, target = reader.at, reader.next()
    if target == "asm":
        while reader.peek and reader.peek != "(":
            reader.next()
        return reader.since(start)
    if target[:1] not in ("@", "%"):
        raise reader.fail("a function")
    return target


def _call(reader: Reader) -> Parts:
    words = reader.flags()
    kind = reader.type()
    start = reader.at
    if reader.peek == "(":
        reader.skip_balanced()
    parts = Parts(
        type=kind,
        flags=tuple(word for word in words if word in FAST_FLAGS),
        convention=" ".join(word for word in words if word.endswith("cc")),
        result_attributes=tuple(
            word for word in words if word not in FAST_FLAGS and not word.endswith("cc")
        ),
        function_type=reader.since(start) if reader.at > start else "",
        target=_called(reader),
    )
    reader.expect("(")
    operands, attributes = [], []
    while not reader.accept(")"):
        kind = reader.type()
        attributes.append(reader.attributes())
        operands.append(Operand(kind, reader.node() if kind is METADATA else reader.value()))
        if reader.peek != ")":
            reader.expect(",")
    parts["operands"], parts["attributes"] = tuple(operands), tuple(attributes)
    parts["call_attributes"] = _call_attributes(reader)
    return parts


def _call_attributes(reader: Reader) -> tuple[str, ...]:
    """Attributes of a call, and its operand bundles in brackets."""
    found = []
    while reader.peek not in ("", ","):
        start = reader.at
        if reader.peek == "[":
            reader.skip_balanced()
            found.append(reader.since(start))
        else:
            found.append(reader.attribute())
    return tuple(found)


def _branch(reader: Reader) -> Parts:
    parts = Parts()
    if reader.peek != "label":
        parts["operands"] = (reader.operand(),)
        reader.expect(",")
    labels = []
    while reader.accept("label"):
        labels.append(reader.label())
        if reader.tokens[reader.at + 1] == "label":
            reader.expect(",")
    parts["labels"] = tuple(labels)
    return parts


def _switch(reader: Reader) -> Parts:
    operands = [reader.operand()]
    labels = []
    reader.expect(",")
    reader.expect("label")
    labels.append(reader.label())
    reader.expect("[")
    while not reader.accept("]"):
        operands.append(reader.operand())
        reader.expect(",")
        reader.expect("label")
        labels.append(reader.label())
    return Parts(operands=tuple(operands), labels=tuple(labels))


def _return(reader: Reader) -> Parts:
    return Parts() if reader.accept("void") else Parts(operands=(reader.operand(),))


def _nothing(reader: Reader) -> Parts:
    return Parts()


def _fence(reader: Reader) -> Parts:
    return _with_tail(reader, Parts())


def _extractelement(reader: Reader) -> Parts:
    operands = reader.operands()
    return Parts(type=operands[0].type.scalar, operands=operands)


def _insertelement(reader: Reader) -> Parts:
    operands = reader.operands()
    return Parts(type=operands[0].type, operands=operands)


def _shufflevector(reader: Reader) -> Parts:
    *operands, mask = reader.operands()
    assert isinstance(mask.type, Vector)
    kind = vector(mask.type.count, operands[0].type.scalar)
    return Parts(type=kind, operands=tuple(operands), numbers=_mask(mask, mask.type.count))


def _mask(mask: Operand, count: int) -> tuple[int, ...]:
    """The elements a shuffle takes, -1 where it does not matter."""
    if mask.text in ("poison", "undef"):
        return (-1,) * count
    if mask.text == "zeroinitializer":
        return (0,) * count
    numbers = [
        -1 if word in ("poison", "undef") else int(word)
        for word in Reader(mask.text).tokens
        if word in ("poison", "undef") or word.isdigit()
    ]
    return tuple(numbers * count if mask.text.startswith("splat") else numbers)


def _extractvalue(reader: Reader) -> Parts:
    """Its type is not written down where the structure has a name: VOID then."""
    source = reader.operand()
    numbers = _indices(reader)
    kind: Type = source.type
    for number in numbers:
        members = getattr(kind, "members", None)
        kind = members[number] if members else getattr(kind, "element", VOID)
    return Parts(type=kind, operands=(source,), numbers=numbers)


def _insertvalue(reader: Reader) -> Parts:
    first = reader.operand()
    reader.expect(",")
    operands = (first, reader.operand())
    return Parts(type=first.type, operands=operands, numbers=_indices(reader))


def _indices(reader: Reader) -> tuple[int, ...]:
    numbers = []
    while reader.peek == "," and reader.tokens[reader.at + 1].isdigit():
        reader.at += 1
        numbers.append(int(reader.next()))
    return tuple(numbers)


def _atomicrmw(reader: Reader) -> Parts:
    words = reader.flags()
    operands = _some_operands(reader, 2)
    parts = Parts(
        type=operands[1].type,
        predicate=words[-1],
        operands=operands,
        is_volatile="volatile" in words,
    )
    return _with_tail(reader, parts)


def _cmpxchg(reader: Reader) -> Parts:
    words = reader.flags()
    operands = _some_operands(reader, 3)
    parts = Parts(
        type=structure(operands[1].type, boolean_like(VOID)),
        flags=("weak",) if "weak" in words else (),
        operands=operands,
        is_volatile="volatile" in words,
    )
    return _with_tail(reader, parts)


def _some_operands(reader: Reader, count: int) -> tuple[Operand, ...]:
    """So many and no more: an ordering follows the last."""
    found = [reader.operand()]
    for _ in range(count - 1):
        reader.expect(",")
        found.append(reader.operand())
    return tuple(found)


def _debug_record(reader: Reader) -> Parts:
    """`#dbg_declare(ptr %x, !12, !DIExpression(), !15)`: the value, if it is one, and the rest."""
    reader.expect("(")
    if not reader.at_type:
        return Parts(record=reader.rest())
    operand = reader.operand()
    return Parts(operands=(operand,), record=reader.rest())


_RULES: dict[str, Callable[[Reader], Parts]] = {
    **dict.fromkeys(BINARY, _binary),
    **dict.fromkeys(CASTS, _cast),
    **dict.fromkeys(("fneg", "freeze"), _unary),
    **dict.fromkeys(("icmp", "fcmp"), _compare),
    **dict.fromkeys(("#dbg_declare", "#dbg_value", "#dbg_assign", "#dbg_label"), _debug_record),
    "select": _select,
    "phi": _phi,
    "load": _load,
    "store": _store,
    "getelementptr": _getelementptr,
    "alloca": _alloca,
    "call": _call,
    "br": _branch,
    "switch": _switch,
    "ret": _return,
    "unreachable": _nothing,
    "fence": _fence,
    "extractelement": _extractelement,
    "insertelement": _insertelement,
    "shufflevector": _shufflevector,
    "extractvalue": _extractvalue,
    "insertvalue": _insertvalue,
    "atomicrmw": _atomicrmw,
    "cmpxchg": _cmpxchg,
}
