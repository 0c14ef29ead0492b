"""LLVM IR as objects: one reader, builder and writer for all passes.

    from anymetal.ir import I32, Builder, Module, i32, parse

    def count_calls(module: Module) -> None:
        function = module.function("am_thread_main")
        self_parameter = function.parameters[1].operand()
        for block in function.blocks:
            for call in [i for i in block.instructions if i.callee == "am_suspend"]:
                kind = call.operands[0].integer               # int, or None where it is no literal
                build = Builder(function.fresh, metadata=call.metadata)
                place = build.offset(self_parameter, 8)
                build.store(build.add(build.load(I32, place, align=4), i32(1)), place, align=4)
                block.insert_before(call, build.made)
        module.declare("am_note", VOID, [I32], ("nounwind",))

A **module** (`parse(text)`, `str(module)`) has functions; `types`, `globals`, `declarations()`,
`nodes()` (metadata) and `attribute_group("#0")` read its other lines. A **function** has a
`signature` (name, type, `parameters`, attributes, metadata) and blocks; `definitions()`, `users()`,
`calls(name)`, `split`, `fresh(stem)`. An **instruction** has typed parts (see
`Instruction`): `opcode`, `result`, `type`, `operands`, `flags`, `callee`, `labels`, `align`,
`metadata`, ... Set them whole: `i.align = 4`, `i.replace("%old", new)`, `i.attach("dbg", "!7")`;
`i.changed(Parts(...))` is a changed copy.

Reading is lazy: an instruction is text until a part is asked for (`result`, `opcode` and `callee`
cost little), and is written back as it was unless a part is set. What the grammar does not know
raises UnknownInstruction only then. **Types** are objects that exist once: compare with `is`,
ask `scalar`, `bits`, `element`; `type_of("<4 x float>")` reads one, `module.layout()` has sizes.

`flow.py` has the control flow of a function: successors, dominators, loops.
"""

from anymetal.ir.build import Builder
from anymetal.ir.extract import Extract
from anymetal.ir.grammar import BINARY, CASTS, Parts
from anymetal.ir.instruction import Instruction
from anymetal.ir.module import OWN_METADATA, Block, Function, Global, Module, read_attributes
from anymetal.ir.operand import (
    NULL,
    Operand,
    boolean,
    constant,
    i32,
    i64,
    named_global,
    poison,
    zero,
)
from anymetal.ir.read import parse
from anymetal.ir.signature import Parameter, Signature, read_signature
from anymetal.ir.tokens import UnknownInstruction
from anymetal.ir.types import (
    BFLOAT,
    DOUBLE,
    FLOAT,
    HALF,
    I1,
    I8,
    I16,
    I32,
    I64,
    METADATA,
    PTR,
    TOKEN,
    VOID,
    Array,
    Float,
    Integer,
    Layout,
    Named,
    Pointer,
    Structure,
    Type,
    Vector,
    array,
    boolean_like,
    integer,
    structure,
    type_of,
    vector,
)

__all__ = [
    "BFLOAT",
    "BINARY",
    "CASTS",
    "DOUBLE",
    "FLOAT",
    "HALF",
    "I1",
    "I8",
    "I16",
    "I32",
    "I64",
    "METADATA",
    "NULL",
    "OWN_METADATA",
    "PTR",
    "TOKEN",
    "VOID",
    "Array",
    "Block",
    "Builder",
    "Extract",
    "Float",
    "Function",
    "Global",
    "Instruction",
    "Integer",
    "Layout",
    "Module",
    "Named",
    "Operand",
    "Parameter",
    "Parts",
    "Pointer",
    "Signature",
    "Structure",
    "Type",
    "UnknownInstruction",
    "Vector",
    "array",
    "boolean",
    "boolean_like",
    "constant",
    "i32",
    "i64",
    "integer",
    "named_global",
    "parse",
    "poison",
    "read_attributes",
    "read_signature",
    "structure",
    "type_of",
    "vector",
    "zero",
]
