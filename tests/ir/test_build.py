"""Instructions made by the builder are what LLVM reads."""

from __future__ import annotations

import llvmlite.binding as llvm

from anymetal.ir import (
    FLOAT,
    I1,
    I8,
    I32,
    I64,
    PTR,
    VOID,
    Block,
    Builder,
    Function,
    Module,
    Operand,
    Parameter,
    Signature,
    array,
    boolean,
    constant,
    i32,
    i64,
    parse,
    poison,
    structure,
    vector,
    zero,
)


def a_function() -> Function:
    parameters = [Parameter(PTR, "%p", ("noalias",)), Parameter(I32, "%n"), Parameter(FLOAT, "%x")]
    return Function(Signature("f", I32, parameters, attributes=("nounwind",)))


def test_every_instruction_is_read_by_llvm() -> None:
    function, module = a_function(), Module([])
    module.add(function)
    pointer, number, real = (parameter.operand() for parameter in function.parameters)
    build = Builder(function.fresh)
    room = build.alloca(array(4, I8), align=4)
    place = build.offset(build.gep(I32, pointer, i64(1), flags=("inbounds",)), 8)
    loaded = build.load(
        I32, place, 4, is_volatile=True, metadata={"range": module.metadata(5, "i32 0, i32 9")}
    )
    build.store(build.binary("sub", loaded, number, ("nsw",)), place, 4)
    build.store(build.load(I32, room, 4, ordering="monotonic"), room, 4, ordering="release")
    build.fence("seq_cst")
    four = build.insert_element(poison(vector(4, FLOAT)), real, i32(0))
    swapped = build.shuffle(four, zero(four.type), [3, -1, 4])
    pair = build.insert_value(
        poison(structure(FLOAT, I1)), build.extract_element(swapped, number), 0
    )
    negative = build.unary("fneg", build.extract_value(FLOAT, pair, 0), ("nnan",))
    less = build.fcmp("olt", negative, zero(FLOAT))
    wide = build.cast("zext", build.select(less, number, i32(0)), I64, ("nneg",))
    both = build.and_(build.icmp("ult", wide, i64(7)), boolean(True))
    module.declare("note", I8, [I64, PTR], ("nounwind",))
    build.call(
        I8, "note", [wide, pointer], attributes=[(), ("nonnull",)], call_attributes=("nounwind",)
    )
    build.branch(both, "one", "two")
    function.blocks.append(Block("entry", build.made))
    one = Builder(function.fresh)
    one.switch(number, "two", {1: "two", -2: "three"})
    function.blocks.append(Block("one", one.made))
    two = Builder(function.fresh)
    merged = two.phi(I32, [(number, "entry"), (i32(1), "one"), (i32(1), "one")])
    two.ret(merged)
    function.blocks.append(Block("two", two.made))
    three = Builder(function.fresh)
    three.unreachable()
    function.blocks.append(Block("three", three.made))
    llvm.parse_assembly(str(module), llvm.create_context()).verify()


def test_metadata_of_the_builder_is_on_every_instruction() -> None:
    build = Builder(a_function().fresh, metadata={"dbg": "!7"})
    build.add(i32(1), i32(2), name="%three")
    build.store(i32(3), Operand(PTR, "%p"))
    assert [str(i) for i in build.made] == [
        "%three = add i32 1, 2, !dbg !7",
        "store i32 3, ptr %p, !dbg !7",
    ]


def test_a_call_without_result_has_no_name() -> None:
    build = Builder(a_function().fresh)
    build.call(VOID, "a name")
    assert str(build.made[0]) == 'call void @"a name"()'


def test_constants_of_vectors_are_splats() -> None:
    assert str(constant(vector(4, I1), 1)) == "<4 x i1> splat (i1 true)"
    assert str(zero(vector(2, PTR))) == "<2 x ptr> zeroinitializer"


def test_fresh_names_avoid_values_blocks_and_parameters() -> None:
    text = "define void @f(i32 %am.3) {\nam.4:\n  %am.5 = add i32 %am.3, 1\n  ret void\n}\n"
    function = parse(text).functions[0]
    names = [function.fresh("am") for _ in range(4)]
    assert len(set(names)) == 4
    assert not {"%am.3", "%am.4", "%am.5"} & set(names)


def test_a_split_block_keeps_its_phis_right() -> None:
    text = """define i32 @f(i32 %n) {
entry:
  %a = add i32 %n, 1
  %b = add i32 %a, 1
  br label %next
next:
  %c = phi i32 [ %b, %entry ]
  ret i32 %c
}
"""
    module = parse(text)
    function = module.functions[0]
    rest = function.split(function.entry, 1, "rest")
    build = Builder(function.fresh, into=function.entry.instructions)
    build.jump("rest")
    assert [str(i) for i in rest.instructions] == ["%b = add i32 %a, 1", "br label %next"]
    assert function.block("next").phis[0].labels == ("rest",)
    llvm.parse_assembly(str(module), llvm.create_context()).verify()
