"""The reader of instructions: what it finds in each, and what it refuses."""

from __future__ import annotations

import pytest

from anymetal.passes.operands import Operand, Parsed, UnknownInstruction, read_instruction


def test_arithmetic_with_flags() -> None:
    parsed = read_instruction("%a = add nuw nsw i32 %b, -7")
    assert (parsed.opcode, parsed.result, parsed.kind) == ("add", "%a", "i32")
    assert parsed.flags == "nuw nsw"
    assert parsed.operands == [Operand("i32", "%b"), Operand("i32", "-7")]


@pytest.mark.parametrize(
    "number", ["1.000000e+00", "-0.000000e+00", "0x7FF0000000000000", "0xH3C00", "0xR3F80"]
)
def test_floating_point_constants(number: str) -> None:
    assert read_instruction(f"%a = fmul fast float {number}, %b").operands[0].text == number


def test_vectors_of_constants() -> None:
    parsed = read_instruction("%a = and <2 x i32> %b, <i32 1, i32 poison>")
    assert parsed.operands[1] == Operand("<2 x i32>", "<i32 1, i32 poison>")
    parsed = read_instruction("%a = or <4 x i8> splat (i8 3), %b")
    assert parsed.operands[0].text == "splat (i8 3)"


def test_names_with_quotes() -> None:
    parsed = read_instruction('%"a b" = fneg float %"c, d"')
    assert (parsed.result, parsed.operands[0].text) == ('%"a b"', '%"c, d"')
    assert parsed.operands[0].is_name


def test_comparison_keeps_predicate_apart_from_flags() -> None:
    parsed = read_instruction("%c = icmp samesign ult i64 %a, 32")
    assert (parsed.flags, parsed.predicate, parsed.kind) == ("samesign", "ult", "i1")
    assert read_instruction("%c = fcmp nnan oeq <3 x half> %a, %b").kind == "<3 x i1>"


def test_conversion_has_both_types() -> None:
    parsed = read_instruction("%a = zext nneg i8 %b to i64")
    assert (parsed.operands[0].kind, parsed.kind, parsed.flags) == ("i8", "i64", "nneg")


def test_phi_pairs_values_and_labels() -> None:
    parsed = read_instruction("%a = phi ptr [ null, %entry ], [ %b, %for.body ]")
    assert [operand.text for operand in parsed.operands] == ["null", "%b"]
    assert parsed.labels == ["entry", "for.body"]


def test_select() -> None:
    parsed = read_instruction("%a = select fast i1 %c, float %x, float 0.000000e+00")
    assert parsed.kind == "float"
    assert [operand.kind for operand in parsed.operands] == ["i1", "float", "float"]


def test_load_and_store() -> None:
    load = read_instruction("%a = load volatile i32, ptr %p, align 4, !invariant.load !3")
    assert (load.align, load.is_volatile, load.is_invariant, load.is_atomic) == (
        4,
        True,
        True,
        False,
    )
    store = read_instruction("store <2 x float> %a, ptr getelementptr (i8, ptr @g, i64 8), align 8")
    assert store.operands[1].text == "getelementptr (i8, ptr @g, i64 8)"
    assert (store.align, store.kind) == (8, "void")


def test_atomics_keep_their_ordering() -> None:
    add = read_instruction('%a = atomicrmw add ptr %p, i32 1 syncscope("agent") monotonic, align 4')
    assert (add.predicate, add.ordering) == ("add", 'syncscope("agent") monotonic')
    exchange = read_instruction(
        "%a = cmpxchg weak ptr %p, i32 %x, i32 %y monotonic monotonic, align 4"
    )
    assert (exchange.flags, exchange.kind) == ("weak", "{ i32, i1 }")
    assert exchange.ordering == "monotonic monotonic"
    load = read_instruction("%a = load atomic i32, ptr %p monotonic, align 4")
    assert (load.ordering, load.is_atomic) == ("monotonic", True)


def test_address_with_several_indices() -> None:
    parsed = read_instruction(
        "%a = getelementptr inbounds nuw [4 x %s], ptr %p, i64 0, i64 %i, i32 2"
    )
    assert (parsed.element, parsed.kind) == ("[4 x %s]", "ptr")
    assert [operand.text for operand in parsed.operands] == ["%p", "0", "%i", "2"]
    assert parsed.flags == "inbounds nuw"
    ranged = read_instruction("%a = getelementptr inbounds inrange(-16, 16) i8, ptr @g, i64 %i")
    assert ranged.flags == "inbounds"


def test_variable() -> None:
    parsed = read_instruction("%a = alloca [8 x float], align 16")
    assert (parsed.element, parsed.align, parsed.operands) == ("[8 x float]", 16, [])
    assert read_instruction("%a = alloca i8, i64 %n, align 1").operands == [Operand("i64", "%n")]


def test_call_keeps_convention_and_how_arguments_are_passed() -> None:
    parsed = read_instruction(
        "%a = tail call fastcc noundef zeroext i8 @_Z1fhP3Big(i8 noundef zeroext %n,"
        " ptr noundef nonnull byval(%struct.Big) align 8 %b, i32 range(i32 0, 9) %k) #4"
    )
    assert (parsed.callee, parsed.kind, parsed.convention) == ("_Z1fhP3Big", "i8", "fastcc")
    assert [operand.text for operand in parsed.operands] == ["%n", "%b", "%k"]
    assert parsed.attributes == ["zeroext", "byval(%struct.Big) align 8", ""]


def test_call_of_an_intrinsic_with_fast_math() -> None:
    parsed = read_instruction("%a = call fast float @llvm.fma.f32(float %x, float 2.0, float %y)")
    assert (parsed.flags, parsed.callee, parsed.convention) == ("fast", "llvm.fma.f32", "")


def test_branches() -> None:
    plain = read_instruction("br label %next")
    assert (plain.labels, plain.operands) == (["next"], [])
    two = read_instruction("br i1 %c, label %yes, label %no, !prof !1")
    assert (two.labels, two.operands) == (["yes", "no"], [Operand("i1", "%c")])


@pytest.mark.parametrize(
    ("mask", "numbers"),
    [
        ("<3 x i32> <i32 3, i32 poison, i32 0>", [3, -1, 0]),
        ("<2 x i32> zeroinitializer", [0, 0]),
        ("<2 x i32> splat (i32 1)", [1, 1]),
    ],
)
def test_shuffle(mask: str, numbers: list[int]) -> None:
    parsed = read_instruction(f"%a = shufflevector <2 x half> %b, <2 x half> %c, {mask}")
    assert parsed.numbers == numbers
    assert parsed.kind == f"<{len(numbers)} x half>"


def test_parts_of_structures() -> None:
    taken = read_instruction("%a = extractvalue { i32, [2 x i1] } %b, 1, 0")
    assert taken.numbers == [1, 0]
    put = read_instruction("%a = insertvalue { i32, float } poison, float %f, 1")
    assert (put.kind, put.numbers) == ("{ i32, float }", [1])


def test_parts_of_vectors() -> None:
    assert read_instruction("%a = extractelement <4 x bfloat> %b, i64 2").kind == "bfloat"
    assert read_instruction("%a = insertelement <4 x i8> %b, i8 1, i32 %k").kind == "<4 x i8>"


@pytest.mark.parametrize(
    "text",
    [
        "%a = va_arg ptr %p, i32",
        "%a = call i32 %f(i32 1)",
        "%a = call i32 (ptr, ...) @printf(ptr %p)",
        "%a = load i32, ptr addrspace(3) %p, align 4",
        "call void @llvm.read_register(metadata !1)",
        "%a = add i32 %b",
        "%a = add i32 %b, !oops",
        "%a = extractvalue { i32, i32 %b, 1",
    ],
)
def test_unknown_text_is_refused(text: str) -> None:
    with pytest.raises(UnknownInstruction):
        read_instruction(text)


def test_a_new_instruction_has_no_parts() -> None:
    assert Parsed("fence", None).operands == []
    assert read_instruction('fence syncscope("agent") seq_cst').ordering.endswith("seq_cst")
