"""One instruction as an object.

An instruction read from a module keeps its text and is taken apart when one of its parts is asked
for. One that nobody changes is written back as it was; setting a part makes the text anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from anymetal.ir import grammar, write
from anymetal.ir.grammar import Parts
from anymetal.ir.operand import Operand
from anymetal.ir.types import VOID, Type

_HEAD = re.compile(r'(?:(%(?:[-\w.$]+|"[^"]*")) = )?(?:(?:tail|musttail|notail) )?(#?[a-z_0-9]+)')
_CALLEE = re.compile(r'@([-\w.$]+|"[^"]*")\(')
_NONE: dict[str, str] = {}


class Instruction:
    """An instruction and its parts; those that its opcode does not have are empty.

    Asking for a part of an instruction the grammar does not know raises UnknownInstruction;
    `result`, `opcode` and `callee` are always there. Parts are set whole (tuples do not change in
    place), `metadata` through `attach` and `detach`.
    """

    result: str | None  # with its percent sign
    opcode: str
    type: Type  # of the result; VOID where there is none, and for parts of named structures
    flags: tuple[str, ...]  # nuw nsw exact disjoint fast inbounds weak ...
    operands: tuple[Operand, ...]  # of switch: the value, then a constant for each case
    predicate: str  # of icmp and fcmp; the operation of an atomicrmw
    element: Type | None  # what a getelementptr steps over, or an alloca makes room for
    target: str  # of call: @name, the value that holds the function's address, or asm ...
    tail: str  # of call: tail, musttail, notail
    convention: str  # of call: fastcc ...
    result_attributes: tuple[str, ...]  # of call
    function_type: str  # of call, where it is written out: (...)
    attributes: tuple[tuple[str, ...], ...]  # of call: how each argument is passed
    call_attributes: tuple[str, ...]  # of call: #3, nounwind, operand bundles
    labels: tuple[str, ...]  # of br and switch (the default first); where a phi's values come from
    numbers: tuple[int, ...]  # indices of extractvalue and insertvalue; a shuffle's mask, -1: any
    align: int  # 0 where none is written
    ordering: str  # of atomic instructions, syncscope included
    is_volatile: bool
    record: str  # of debug records: what follows the value
    metadata: dict[str, str]  # attachments: {"dbg": "!7"}
    _text: str | None

    def __init__(self, text: str) -> None:
        self.__dict__["_text"] = text

    @classmethod
    def of(cls, opcode: str, result: str | None, parts: Parts) -> Instruction:
        """An instruction from its parts; `build.Builder` is the convenient way."""
        made = _Apart.__new__(_Apart)
        known = made.__dict__
        known["_text"], known["opcode"], known["result"] = None, opcode, result
        known.update(parts)
        return made

    def __getattr__(self, name: str) -> Any:
        """Reached only for parts of an instruction that is still text."""
        known = self.__dict__
        if name[:1] == "_" or isinstance(self, _Apart):
            raise AttributeError(name)
        if "opcode" not in known:
            head = _HEAD.match(known["_text"])
            known["result"], known["opcode"] = head.groups() if head else (None, "")
            if name in ("opcode", "result"):
                return known[name]
        known.update(grammar.read_parts(known["_text"]))
        object.__setattr__(self, "__class__", _Apart)
        return getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._text is not None:
            self.operands  # noqa: B018  takes the text apart
            self.__dict__["_text"] = None
        self.__dict__[name] = value

    @property
    def text(self) -> str:
        """As LLVM prints it, without indentation."""
        return self._text if self._text is not None else write.instruction(self)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Instruction({self.text!r})"

    # ---- questions ---------------------------------------------------------------------------

    @property
    def callee(self) -> str | None:
        """Name of the function called directly, or None."""
        if self.opcode != "call":
            return None
        if isinstance(self, _Apart):
            return self.target[1:].strip('"') if self.target[:1] == "@" else None
        assert self._text is not None
        match = _CALLEE.search(self._text)
        return match.group(1).strip('"') if match else None

    @property
    def is_atomic(self) -> bool:
        return bool(self.ordering)

    @property
    def pointer(self) -> Operand:
        """The address that a load, store or atomic instruction touches, or a gep starts from."""
        return self.operands[1 if self.opcode == "store" else 0]

    @property
    def value(self) -> Operand:
        """What a store writes, a ret returns, a br asks or a switch looks at."""
        return self.operands[0]

    @property
    def names(self) -> list[str]:
        """The values of the function that it uses, with their percent signs."""
        return [operand.text for operand in self.operands if operand.is_name]

    def operand(self) -> Operand:
        """The result as an operand of other instructions."""
        assert self.result is not None, self.text
        return Operand(self.type, self.result)

    def incoming(self) -> list[tuple[Operand, str]]:
        """Of a phi: values and the labels of the blocks they come from."""
        return list(zip(self.operands, self.labels, strict=True))

    # ---- changes -----------------------------------------------------------------------------

    def changed(self, parts: Parts, result: str | None = "") -> Instruction:
        """A copy with other parts; with another result where one is given."""
        self.operands  # noqa: B018  takes the text apart
        made = _Apart.__new__(_Apart)
        made.__dict__.update(self.__dict__, _text=None)
        made.__dict__.update(parts)
        if result != "":
            made.__dict__["result"] = result
        return made

    def replace(self, old: str, new: Operand | str) -> None:
        """Uses `new` wherever it uses the value `old` (a name with its percent sign)."""
        text = new if isinstance(new, str) else new.text
        if old in self.names:
            self.operands = tuple(
                Operand(operand.type, text) if operand.text == old else operand
                for operand in self.operands
            )

    def set_operand(self, index: int, new: Operand) -> None:
        self.operands = (*self.operands[:index], new, *self.operands[index + 1 :])

    def redirect(self, old: str, new: str) -> None:
        """Branches to `new` instead of `old`; of a phi: values come from there."""
        if old in self.labels:
            self.labels = tuple(new if label == old else label for label in self.labels)

    def attach(self, name: str, node: str) -> None:
        """Adds metadata: attach("dbg", "!7")."""
        self.metadata = self.metadata | {name: node}

    def detach(self, keep: Callable[[str], bool]) -> None:
        """Removes the attached metadata whose names `keep` does not want."""
        kept = {name: node for name, node in self.metadata.items() if keep(name)}
        if len(kept) < len(self.metadata):
            self.metadata = kept


class _Apart(Instruction):
    """An instruction whose parts are known: those that are not its own are empty."""

    type = VOID
    flags = ()
    operands = ()
    predicate = ""
    element = None
    target = ""
    tail = ""
    convention = ""
    result_attributes = ()
    function_type = ""
    attributes = ()
    call_attributes = ()
    labels = ()
    numbers = ()
    align = 0
    ordering = ""
    is_volatile = False
    record = ""
    metadata = _NONE
