"""The passes of the simdgroup engine: what precedes normalisation by LLVM, and vectorisation."""

from __future__ import annotations

from dataclasses import dataclass

from anymetal.ir import (
    I8,
    I32,
    I64,
    PTR,
    VOID,
    Block,
    Builder,
    Function,
    Instruction,
    Module,
    Parameter,
    Signature,
    constant,
)
from anymetal.passes.lower.machine import GROUP_MAIN, STOP, THREAD_MAIN, kept_attributes
from anymetal.passes.rewrite import rewrite
from anymetal.passes.simdgroup.analysis import Analysis
from anymetal.passes.simdgroup.extremes import write_extremes
from anymetal.passes.simdgroup.kernel import read_kernel
from anymetal.passes.simdgroup.resume import make_resumable
from anymetal.passes.simdgroup.rules import POSITION, SIMD, GroupShape
from anymetal.passes.simdgroup.scalars import split_accesses
from anymetal.passes.simdgroup.streaming import NONTEMPORAL_CONTENTS
from anymetal.passes.simdgroup.unroll import unroll_rows
from anymetal.passes.simdgroup.vectorise import TooLong, Vectoriser

_STOPS = ("convergent", "nomerge", "nounwind")
_WIDTH_HINTS = ('"min-legal-vector-width"', '"prefer-vector-width"')


def replace_suspends(module: Module) -> None:
    """`am_suspend` returns whether to leave; vector code leaves only at barriers, its own way."""
    function = module.function(THREAD_MAIN)
    group = module.new_attribute_group(_STOPS)

    def emit(build: Builder, call: Instruction) -> bool:
        if call.callee != "am_suspend":
            return False
        build.call(VOID, STOP, call.operands, call_attributes=(group,))
        if "dbg" in call.metadata:
            build.made[-1].attach("dbg", call.metadata["dbg"])
        build.add(constant(I8, 0), constant(I8, 0), name=call.result or "")
        return True

    rewrite(function, emit)
    module.declare(STOP, VOID, [I32], (group,))


def split_position_loads(module: Module) -> bool:
    """Reads x and y of a position apart, where clang reads both at once; whether there were any."""
    function = module.function(THREAD_MAIN)
    offsets = {function.parameters[1].name: 0}
    found = []

    def emit(build: Builder, instruction: Instruction) -> bool:
        if instruction.opcode == "getelementptr":
            _note_offset(instruction, offsets)
        if not _is_of_two(instruction, offsets):
            return False
        _read_apart(build, instruction)
        found.append(instruction)
        return True

    rewrite(function, emit)
    return bool(found)


def _is_of_two(load: Instruction, offsets: dict[str, int]) -> bool:
    if load.opcode != "load" or load.type is not I64:
        return False
    return POSITION <= offsets.get(load.pointer.text, 0) < SIMD


def _note_offset(step: Instruction, offsets: dict[str, int]) -> None:
    """Follows constant steps in bytes from the thread's description."""
    distance = step.operands[1].integer if len(step.operands) == 2 else None
    if step.pointer.text in offsets and step.element is I8 and distance is not None:
        assert step.result is not None
        offsets[step.result] = offsets[step.pointer.text] + distance


def _read_apart(build: Builder, load: Instruction) -> None:
    low = build.load(I32, load.pointer, align=4)
    high = build.load(I32, build.offset(load.pointer, 4), align=4)
    low, high = (build.cast("zext", half, I64) for half in (low, high))
    high = build.shl(high, constant(I64, 32))
    build.binary("or", high, low, ("disjoint",), name=load.result or "")


def drop_group_loop(module: Module) -> None:
    """The loop over single threads is not needed; the kernel must not be inlined into it."""
    module.remove(module.function(GROUP_MAIN))


@dataclass(frozen=True)
class Vectorised:
    """The result of vectorisation: the bytes that a simdgroup keeps while it waits for others, 0
    where it never waits; whether the code is in its long form, which LLVM takes as it is."""

    frame_size: int
    is_long: bool = False


# Instructions. LLVM optimises about 10,000 in a second; from LONG on, of code that is as short as
# it can be, it only generates machine code: 20,000 in a second.
LONG = 20_000
HEAVIEST, HEAVIEST_ON_DEMAND = 80_000, 150_000


def vectorise(module: Module, shape: GroupShape, heaviest: int = HEAVIEST) -> Vectorised:
    """Replaces the kernel by one that runs a whole simdgroup; raises NotVectorisable."""
    function = module.function(THREAD_MAIN)
    split_accesses(function, module.layout())
    analysis = Analysis(read_kernel(module, function), shape)
    if unroll_rows(function, analysis):
        analysis = Analysis(read_kernel(module, function), shape)
    vectoriser, blocks = _written(analysis, shape, heaviest)
    parameters = [Parameter(PTR, p.name, ("noalias",)) for p in function.parameters]
    attributes = _lasting_attributes(module, function)
    signature = Signature(THREAD_MAIN, VOID, parameters, attributes=("nounwind", *attributes))
    vectorised = Function(signature, blocks)
    extremes = [] if vectoriser.is_long else write_extremes(vectorised)
    frame_size = 0
    if vectoriser.has_barriers:
        frame_size = make_resumable(vectorised, module.layout(), in_memory=vectoriser.is_long)
    module.replace(function, vectorised)
    for helper in vectoriser.functions:
        helper.signature.attributes += attributes
        module.add(helper)
    for declaration in (*vectoriser.declarations, *extremes):
        module.add_declaration(declaration)
    module.metadata(0, "")
    module.metadata(1, NONTEMPORAL_CONTENTS)
    return Vectorised(frame_size, vectoriser.is_long)


def _written(
    analysis: Analysis, shape: GroupShape, heaviest: int
) -> tuple[Vectoriser, list[Block]]:
    """The kernel's blocks: in their long form where that alone is within bounds."""
    try:
        vectoriser = Vectoriser(analysis, shape, min(heaviest, LONG))
        return vectoriser, vectoriser.blocks()
    except TooLong:
        if heaviest <= LONG:
            raise
    vectoriser = Vectoriser(analysis, shape, heaviest, is_long=True)
    return vectoriser, vectoriser.blocks()


def _lasting_attributes(module: Module, function: Function) -> tuple[str, ...]:
    """The widths of vectors are those of the body that is replaced."""
    kept = kept_attributes(module, function)
    return tuple(attribute for attribute in kept if not attribute.startswith(_WIDTH_HINTS))
