"""The reader of instructions: what it finds in each, and what it refuses."""

from __future__ import annotations

import pytest

from anymetal.ir import (
    BFLOAT,
    FLOAT,
    I1,
    I8,
    I32,
    I64,
    PTR,
    VOID,
    Instruction,
    Operand,
    Parts,
    UnknownInstruction,
    type_of,
)


def test_arithmetic_with_flags() -> None:
    instruction = Instruction("%a = add nuw nsw i32 %b, -7")
    assert (instruction.opcode, instruction.result, instruction.type) == ("add", "%a", I32)
    assert instruction.flags == ("nuw", "nsw")
    assert instruction.operands == (Operand(I32, "%b"), Operand(I32, "-7"))


@pytest.mark.parametrize(
    "number", ["1.000000e+00", "-0.000000e+00", "0x7FF0000000000000", "0xH3C00", "0xR3F80"]
)
def test_floating_point_constants(number: str) -> None:
    assert Instruction(f"%a = fmul fast float {number}, %b").operands[0].text == number


def test_vectors_of_constants() -> None:
    instruction = Instruction("%a = and <2 x i32> %b, <i32 1, i32 poison>")
    assert instruction.operands[1] == Operand(type_of("<2 x i32>"), "<i32 1, i32 poison>")
    instruction = Instruction("%a = or <4 x i8> splat (i8 3), %b")
    assert instruction.operands[0].text == "splat (i8 3)"


def test_names_with_quotes() -> None:
    instruction = Instruction('%"a b" = fneg float %"c, d"')
    assert (instruction.result, instruction.operands[0].text) == ('%"a b"', '%"c, d"')
    assert instruction.operands[0].is_name


def test_comparison_keeps_predicate_apart_from_flags() -> None:
    instruction = Instruction("%c = icmp samesign ult i64 %a, 32")
    assert (instruction.flags, instruction.predicate, instruction.type) == (
        ("samesign",),
        "ult",
        I1,
    )
    assert Instruction("%c = fcmp nnan oeq <3 x half> %a, %b").type is type_of("<3 x i1>")


def test_conversion_has_both_types() -> None:
    instruction = Instruction("%a = zext nneg i8 %b to i64")
    assert (instruction.operands[0].type, instruction.type, instruction.flags) == (
        I8,
        I64,
        ("nneg",),
    )


def test_phi_pairs_values_and_labels() -> None:
    instruction = Instruction("%a = phi ptr [ null, %entry ], [ %b, %for.body ]")
    assert [operand.text for operand in instruction.operands] == ["null", "%b"]
    assert instruction.labels == ("entry", "for.body")


def test_select() -> None:
    instruction = Instruction("%a = select fast i1 %c, float %x, float 0.000000e+00")
    assert instruction.type is FLOAT
    assert [operand.type for operand in instruction.operands] == [I1, FLOAT, FLOAT]


def test_load_and_store() -> None:
    load = Instruction("%a = load volatile i32, ptr %p, align 4, !invariant.load !3")
    assert (load.align, load.is_volatile, load.is_atomic) == (4, True, False)
    assert load.metadata == {"invariant.load": "!3"}
    store = Instruction("store <2 x float> %a, ptr getelementptr (i8, ptr @g, i64 8), align 8")
    assert store.operands[1].text == "getelementptr (i8, ptr @g, i64 8)"
    assert (store.align, store.type) == (8, VOID)


def test_atomics_keep_their_ordering() -> None:
    add = Instruction('%a = atomicrmw add ptr %p, i32 1 syncscope("agent") monotonic, align 4')
    assert (add.predicate, add.ordering) == ("add", 'syncscope("agent") monotonic')
    exchange = Instruction("%a = cmpxchg weak ptr %p, i32 %x, i32 %y monotonic monotonic, align 4")
    assert (exchange.flags, exchange.type) == (("weak",), type_of("{ i32, i1 }"))
    assert exchange.ordering == "monotonic monotonic"
    load = Instruction("%a = load atomic i32, ptr %p monotonic, align 4")
    assert (load.ordering, load.is_atomic) == ("monotonic", True)


def test_address_with_several_indices() -> None:
    instruction = Instruction(
        "%a = getelementptr inbounds nuw [4 x %s], ptr %p, i64 0, i64 %i, i32 2"
    )
    assert (instruction.element, instruction.type) == (type_of("[4 x %s]"), PTR)
    assert [operand.text for operand in instruction.operands] == ["%p", "0", "%i", "2"]
    assert instruction.flags == ("inbounds", "nuw")
    ranged = Instruction("%a = getelementptr inbounds inrange(-16, 16) i8, ptr @g, i64 %i")
    assert ranged.flags == ("inbounds", "inrange(-16, 16)")


def test_variable() -> None:
    instruction = Instruction("%a = alloca [8 x float], align 16")
    assert (instruction.element, instruction.align, instruction.operands) == (
        type_of("[8 x float]"),
        16,
        (),
    )
    assert Instruction("%a = alloca i8, i64 %n, align 1").operands == (Operand(I64, "%n"),)


def test_call_keeps_convention_and_how_arguments_are_passed() -> None:
    instruction = Instruction(
        "%a = tail call fastcc noundef zeroext i8 @_Z1fhP3Big(i8 noundef zeroext %n,"
        " ptr noundef nonnull byval(%struct.Big) align 8 %b, i32 range(i32 0, 9) %k) #4"
    )
    assert (instruction.callee, instruction.type, instruction.convention) == (
        "_Z1fhP3Big",
        I8,
        "fastcc",
    )
    assert [operand.text for operand in instruction.operands] == ["%n", "%b", "%k"]
    assert instruction.attributes == (
        ("noundef", "zeroext"),
        ("noundef", "nonnull", "byval(%struct.Big)", "align 8"),
        ("range(i32 0, 9)",),
    )


def test_call_of_an_intrinsic_with_fast_math() -> None:
    instruction = Instruction("%a = call fast float @llvm.fma.f32(float %x, float 2.0, float %y)")
    assert (instruction.flags, instruction.callee, instruction.convention) == (
        ("fast",),
        "llvm.fma.f32",
        "",
    )


def test_call_of_inline_assembly() -> None:
    text = '%q = tail call float asm "div.full.f32 $0, $1, $2;", "=f,f,f"(float %x, float 2.0) #7'
    call = Instruction(text)
    assert (call.opcode, call.callee, call.names) == ("call", None, ["%x"])
    call.replace("%x", "%y")
    assert str(call) == text.replace("%x", "%y")


def test_branches() -> None:
    plain = Instruction("br label %next")
    assert (plain.labels, plain.operands) == (("next",), ())
    two = Instruction("br i1 %c, label %yes, label %no, !prof !1")
    assert (two.labels, two.operands) == (("yes", "no"), (Operand(I1, "%c"),))


@pytest.mark.parametrize(
    ("mask", "numbers"),
    [
        ("<3 x i32> <i32 3, i32 poison, i32 0>", [3, -1, 0]),
        ("<2 x i32> zeroinitializer", [0, 0]),
        ("<2 x i32> splat (i32 1)", [1, 1]),
    ],
)
def test_shuffle(mask: str, numbers: list[int]) -> None:
    instruction = Instruction(f"%a = shufflevector <2 x half> %b, <2 x half> %c, {mask}")
    assert instruction.numbers == tuple(numbers)
    assert instruction.type is type_of(f"<{len(numbers)} x half>")


def test_parts_of_structures() -> None:
    taken = Instruction("%a = extractvalue { i32, [2 x i1] } %b, 1, 0")
    assert (taken.numbers, taken.type) == ((1, 0), I1)
    put = Instruction("%a = insertvalue { i32, float } poison, float %f, 1")
    assert (put.type, put.numbers) == (type_of("{ i32, float }"), (1,))


def test_parts_of_vectors() -> None:
    assert Instruction("%a = extractelement <4 x bfloat> %b, i64 2").type is BFLOAT
    assert Instruction("%a = insertelement <4 x i8> %b, i8 1, i32 %k").type is type_of("<4 x i8>")


@pytest.mark.parametrize(
    "text",
    [
        "%a = va_arg ptr %p, i32",
        "%a = add i32 %b",
        "%a = add i32 %b, !oops",
        "%a = extractvalue { i32, i32 %b, 1",
    ],
)
def test_unknown_text_is_refused(text: str) -> None:
    with pytest.raises(UnknownInstruction):
        _ = Instruction(text).operands


def test_a_new_instruction_has_no_parts() -> None:
    assert Instruction.of("fence", None, Parts()).operands == ()
    assert Instruction('fence syncscope("agent") seq_cst').ordering.endswith("seq_cst")


@pytest.mark.parametrize(
    ("text", "callee"),
    [
        ("%a = call i32 %f(i32 1)", None),
        ("%a = call i32 (ptr, ...) @printf(ptr %p)", "printf"),
        ("call void @llvm.read_register(metadata !1)", "llvm.read_register"),
        ('call void @"a name"()', "a name"),
        ("%a = add i32 %b, 1", None),
    ],
)
def test_callee_with_and_without_the_rest(text: str, callee: str | None) -> None:
    instruction = Instruction(text)
    assert instruction.callee == callee
    assert len(instruction.operands) >= 0
    assert instruction.callee == callee


def test_setting_a_part_makes_the_text_anew() -> None:
    load = Instruction("%a = load i32, ptr %p, align 16, !dbg !4")
    assert load.operands[0].text == "%p"
    assert load.text == "%a = load i32, ptr %p, align 16, !dbg !4"
    load.align = 4
    load.replace("%p", Operand(PTR, "%q"))
    load.attach("invariant.load", "!9")
    assert load.text == "%a = load i32, ptr %q, align 4, !dbg !4, !invariant.load !9"
    load.detach(lambda name: name != "dbg")
    assert load.text == "%a = load i32, ptr %q, align 4, !invariant.load !9"


def test_a_changed_copy_leaves_the_first_alone() -> None:
    first = Instruction("%a = add nsw i32 %b, %c")
    second = first.changed(Parts(type=I64), "%d")
    assert (first.type, first.text) == (I32, "%a = add nsw i32 %b, %c")
    assert second.text == "%d = add nsw i64 %b, %c"
