"""Marks what a profile counts: the start of each block, and each access to memory that lanes share.

It works on the code that the vectoriser reads, after LLVM has simplified it: what stands there runs
once for a simdgroup. A block's cost is known now; how often, and by how many lanes, is counted. Two
calls stand for the counting, and `passes/simdgroup/observers.py` writes them out:

    am_observe_block(block)
    am_observe_access(site, size, memory, address)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from anymetal.ir import (
    BFLOAT,
    BINARY,
    CASTS,
    FLOAT,
    HALF,
    I1,
    I32,
    I64,
    PTR,
    VOID,
    Block,
    Builder,
    Instruction,
    Module,
    Type,
    Vector,
    array,
    i32,
)
from anymetal.machine.layout import Wait, waits_for
from anymetal.machine.shadow import Access as Kind
from anymetal.passes.accesses import Access, accesses_of
from anymetal.passes.check.debug_info import DebugInfo, Spot
from anymetal.passes.lower.machine import MATRIX_PARTS, STOP, THREAD_MAIN
from anymetal.passes.provenance import Provenance, Root

OBSERVE = "am_observe_"
BLOCK, ACCESS = f"{OBSERVE}block", f"{OBSERVE}access"
# Variables of the code: executions and lanes of each block; what happened at each access.
BLOCKS, SITES = "am_observed_blocks", "am_observed_sites"
BLOCK_NUMBERS, SITE_NUMBERS = 2, 8
# How memory is looked at: by lines of device memory, or by banks of threadgroup memory.
BY_LINES, BY_BANKS, ATOMIC = 0, 1, 2
# Above these bits, one more than the buffer; 0 is one of several. Where a buffer begins in a line
# is taken off its addresses: Metal's begin on pages, and CPU tensors anywhere.
BUFFER_SHIFT = 8
STARTS, BUFFERS = "am_observed_starts", 32

_FLOATS: dict[Type, str] = {FLOAT: "fp32", HALF: "fp16", BFLOAT: "bf16"}
_FUSED = ("llvm.fma.", "llvm.fmuladd.")
_ONE_OPERATION = tuple(
    f"llvm.{name}."
    for name in ("sqrt", "fabs", "floor", "ceil", "trunc", "rint", "minnum", "maxnum", "round",
                 "roundeven", "minimum", "maximum", "copysign", "umin", "umax", "smin", "smax",
                 "abs", "ctpop", "ctlz", "cttz", "fshl", "fshr", "exp2", "log2", "exp", "log")
)  # fmt: skip
# Half of a product of 8x8 matrices: 512 multiplications and additions, over 32 lanes.
_MATRIX_OPERATIONS = 16
_WAITS = {
    Wait.THREADGROUP_BARRIER: "barriers",
    Wait.SIMDGROUP_BARRIER: "simdgroup_barriers",
    Wait.COLLECTIVE: "collectives",
}

_ARITHMETIC = frozenset((*_FLOATS.values(), "int", "convert"))
# Headers of functions that take many operations here; fma, sqrt and floor are one each.
_FUNCTIONS = tuple(
    f"anymetal/math/{name}.h"
    for name in ("exponential", "hyperbolic", "inverse_trigonometric", "logarithm", "power",
                 "trigonometric")
)  # fmt: skip

Spots = tuple[Spot, ...]


@dataclass(frozen=True)
class Site:
    """One access of the code: which memory, how many bytes a lane, what it does."""

    block: int
    spots: Spots
    memory: str  # device, constant, threadgroup or private
    buffer: int  # of device and constant; -1 where it may be one of several
    size: int
    kind: str  # read, write or atomic


@dataclass
class BlockNote:
    """What one pass through a block costs a lane, by place; and where it goes on."""

    costs: list[tuple[Spots, str, int]] = field(default_factory=list)
    following: tuple[int, ...] = ()
    branch: Spots = ()  # where it decides


@dataclass(frozen=True)
class Observed:
    """What the numbers of a run mean."""

    blocks: list[BlockNote]
    sites: list[Site]


def observe(module: Module, constants: frozenset[int]) -> Observed:
    """Adds the calls; `constants` are the buffers in constant memory."""
    function = module.function(THREAD_MAIN)
    observer = _Observer(module, constants)
    numbers = {block.label: number for number, block in enumerate(function.blocks)}
    notes = [observer.block(number, block, numbers) for number, block in enumerate(function.blocks)]
    for number, block in enumerate(function.blocks):
        build = Builder(function.fresh)
        build.call(VOID, BLOCK, [i32(number)])
        first = next(i for i in block.instructions if i.opcode != "phi")
        block.insert_before(first, build.made)
    module.declare(BLOCK, VOID, [I32])
    module.declare(ACCESS, VOID, [I32, I32, I32, PTR])
    module.define_zeros(BLOCKS, array(BLOCK_NUMBERS * len(notes), I64), align=64)
    module.define_zeros(SITES, array(SITE_NUMBERS * max(len(observer.sites), 1), I64), align=64)
    module.define_zeros(STARTS, array(BUFFERS, I64), align=64)
    return Observed(notes, observer.sites)


class _Observer:
    def __init__(self, module: Module, constants: frozenset[int]) -> None:
        self._function = module.function(THREAD_MAIN)
        self._provenance = Provenance(self._function)
        self._info = DebugInfo(module)
        self._constants = constants
        self.sites: list[Site] = []

    def block(self, number: int, block: Block, numbers: dict[str, int]) -> BlockNote:
        note = BlockNote()
        costs: Counter[tuple[Spots, str]] = Counter()
        for instruction in list(block.instructions):
            spots = tuple(self._info.spots(instruction.metadata.get("dbg")))
            for name, amount in _operations(instruction):
                costs[spots, "functions" if _is_inside(name, spots) else name] += amount
            for access in accesses_of(instruction):
                self._access(number, block, instruction, access, spots)
        note.costs = [(spots, name, amount) for (spots, name), amount in costs.items()]
        last = block.instructions[-1]
        if last.opcode == "br":
            note.following = tuple(numbers[label] for label in last.labels)
            if len(last.labels) > 1:
                note.branch = tuple(self._info.spots(last.metadata.get("dbg")))
        return note

    def _access(
        self, number: int, block: Block, instruction: Instruction, access: Access, spots: Spots
    ) -> None:
        root = self._provenance.root(access.pointer)
        memory = self._memory(root)
        if memory is None:
            return
        size = access.size.integer or 0
        kind = "write" if access.kind & Kind.WRITE else "read"
        if access.kind & Kind.ATOMIC:
            kind = "atomic"
        buffer = root.number if memory in ("device", "constant") else -1
        self.sites.append(Site(number, spots, memory, buffer, size, kind))
        if memory == "private":
            return  # each lane has its own: there is nothing that lanes could share
        build = Builder(self._function.fresh)
        how = BY_BANKS if memory == "threadgroup" else BY_LINES
        how |= ATOMIC if kind == "atomic" else 0
        how |= (buffer + 1) << BUFFER_SHIFT
        site = i32(len(self.sites) - 1)
        build.call(VOID, ACCESS, [site, i32(size), i32(how), access.pointer])
        block.insert_before(instruction, build.made)

    def _memory(self, root: Root) -> str | None:
        match root.origin:
            case "buffer":
                return "constant" if root.number in self._constants else "device"
            case "unknown":
                return "device"
            case "dynamic" | "static":
                return "threadgroup"
            case "array":
                return "private"
            case "global":
                return "constant"
        return None


def _operations(instruction: Instruction) -> list[tuple[str, int]]:
    """Names of what an instruction counts as."""
    callee, opcode = instruction.callee or "", instruction.opcode
    if callee == STOP:
        return [(_WAITS[waits_for(instruction.operands[0].integer or 0)], 1)]
    if any(name in callee for name in MATRIX_PARTS):
        return [("matrix", _MATRIX_OPERATIONS)]
    if callee.startswith(_FUSED):
        return [(_kind(instruction.type), 2 * _count(instruction.type))]
    if callee.startswith(_ONE_OPERATION):
        return [(_kind(instruction.type), _count(instruction.type))]
    if opcode in BINARY or opcode in ("fneg", "select"):
        return [(_kind(instruction.type), _count(instruction.type))] if _counts(instruction) else []
    if opcode in ("icmp", "fcmp"):
        compared = instruction.operands[0].type
        return [(_kind(compared), _count(compared))]
    if opcode in CASTS and opcode not in ("bitcast", "zext", "sext", "trunc", "freeze"):
        return [("convert", _count(instruction.type))]
    return []


def _is_inside(name: str, spots: Spots) -> bool:
    """Whether arithmetic is how our headers compute a function that a GPU may have an instruction
    for."""
    return name in _ARITHMETIC and any(s.file.endswith(_FUNCTIONS) for s in spots)


def _counts(instruction: Instruction) -> bool:
    """Logic of conditions is no arithmetic."""
    scalar = _scalar(instruction.type)
    return scalar is not I1 and scalar is not PTR


def _scalar(kind: Type) -> Type:
    return kind.element if isinstance(kind, Vector) else kind


def _count(kind: Type) -> int:
    return kind.count if isinstance(kind, Vector) else 1


def _kind(kind: Type) -> str:
    return _FLOATS.get(_scalar(kind), "int")
