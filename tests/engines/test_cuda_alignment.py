"""What is known of addresses: never more than is true of any run, and what real code needs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anymetal.engines.cuda.alignment import Code, Multiples, zero_bits
from anymetal.engines.cuda.assembly import lines_of
from anymetal.engines.cuda.block import Block

BLOCK = Block(buffers=3, values=(2,), arrays=(0, 1))
Values = dict[str, int]


def signed(value: int, bits: int) -> int:
    value %= 1 << bits
    return value - (1 << bits) if value >> (bits - 1) else value


def carried_out(opcode: str, operands: list[int]) -> int:
    """What an instruction makes of operands, as the manual has it."""
    name, *kinds = opcode.split(".")
    bits, is_signed = int(kinds[-1][1:]), kinds[-1][0] == "s"
    a, b, c = (*operands, 0, 0)[:3]
    if is_signed:
        a, b = signed(a, bits), signed(b, bits)
    else:
        a, b = a % 2**bits, b % 2**bits
    rules: dict[str, Callable[[], int]] = {
        "add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b,
        "mad": lambda: a * b + c, "and": lambda: a & b, "or": lambda: a | b,
        "xor": lambda: a ^ b, "min": lambda: min(a, b), "max": lambda: max(a, b),
        "neg": lambda: -a, "mov": lambda: a, "cvt": lambda: a,
        "shl": lambda: a << b if b < bits else 0, "shr": lambda: a >> min(b, bits),
        "shf": lambda: operands[1] << (operands[2] % 32), "selp": lambda: b if c % 2 else a,
    }  # fmt: skip
    to = int(kinds[0][1:]) if name == "cvt" else 2 * bits if "wide" in kinds else bits
    return rules[name]() % 2**to


NUMBERS = st.one_of(
    st.sampled_from([0, 1, 2, 3, 4, 6, 8, 16, 24, 32, 60, 64, 4096, -1, -4, -16, 2**31, 2**40]),
    st.integers(-(2**31), 2**31),
)
OF_TWO = ("add", "sub", "mul.lo", "and", "or", "xor", "min", "max")
NARROW, WIDE = [f"%r{n}" for n in range(1, 7)], [f"%rd{n}" for n in range(1, 6)]
FROM_MEMORY = (NARROW[-1], WIDE[-1])


@st.composite
def instructions(draw: st.DrawFn) -> str:
    """One line; %r and %rd registers are written again and again, as those of loops are."""

    def operand(registers: list[str]) -> str:
        return draw(st.one_of(st.sampled_from(registers), NUMBERS.map(str)))

    bits = draw(st.sampled_from((32, 64)))
    mine = NARROW if bits == 32 else WIDE
    to, sign = draw(st.sampled_from(mine)), draw(st.sampled_from("us"))
    kind = draw(st.integers(0, 9))
    if kind < 4:
        name = draw(st.sampled_from(OF_TWO))
        letter = "b" if name in ("and", "or", "xor") else sign
        return f"{name}.{letter}{bits} \t{to}, {operand(mine)}, {operand(mine)};"
    by = draw(st.integers(0, bits - 1))
    return draw(
        st.sampled_from(
            [
                f"shl.b{bits} \t{to}, {operand(mine)}, {by};",
                f"shr.{sign}{bits} \t{to}, {operand(mine)}, {by};",
                f"mul.wide.{sign}32 \t{draw(st.sampled_from(WIDE))}, {operand(NARROW)},"
                f" {operand(NARROW)};",
                f"mad.lo.{sign}{bits} \t{to}, {operand(mine)}, {operand(mine)}, {operand(mine)};",
                f"cvt.{sign}64.{sign}32 \t{draw(st.sampled_from(WIDE))}, {operand(NARROW)};",
                f"cvt.u32.u64 \t{draw(st.sampled_from(NARROW))}, {operand(WIDE)};",
                f"selp.b{bits} \t{to}, {operand(mine)}, {operand(mine)}, %p1;",
                f"neg.s{bits} \t{to}, {operand(mine)};",
                f"mov.b{bits} \t{to}, {operand(mine)};",
                f"mov.b64 \t{draw(st.sampled_from(WIDE))}, {{{operand(NARROW)},"
                f" {operand(NARROW)}}};",
                f"shf.l.wrap.b32 \t{draw(st.sampled_from(NARROW))}, 0, {operand(NARROW)},"
                f" {operand(NARROW)};",
            ]
        )
    )


def value_of(operand: str, values: Values) -> int:
    if operand.startswith("{"):
        low, high = (value_of(one.strip(), values) for one in operand.strip("{}").split(","))
        return low % 2**32 | high % 2**32 << 32
    return values[operand] if operand.startswith("%") else int(operand)


@settings(max_examples=400)
@given(
    st.lists(instructions(), min_size=1, max_size=12), st.lists(NUMBERS, min_size=12, max_size=12)
)
def test_nothing_is_known_that_is_not_true(code: list[str], starts: list[int]) -> None:
    """In two rounds of a loop. Registers begin with numbers that the code says, the last of either
    kind with what stands in memory."""
    registers = [*NARROW, *WIDE]
    values = dict(zip([*registers, "%p1"], starts, strict=True))
    begin = [
        f"ld.global.b32 \t{name}, [tile];"
        if name in FROM_MEMORY
        else f"mov.b{32 if name in NARROW else 64} \t{name}, {values[name]};"
        for name in registers
    ]
    known = Multiples(Code(lines_of("\n".join([*begin, *code]))), BLOCK, {}, {})
    for line in [*code, *code]:
        parsed = lines_of(line)[0]
        to, *rest = parsed.operands
        value = carried_out(parsed.opcode, [value_of(one, values) for one in rest])
        values[to] = value
        assert zero_bits(value) >= known.of(to), line


def known_in(text: str, buffers: dict[int, int] | None = None) -> Multiples:
    return Multiples(Code(lines_of(text)), BLOCK, buffers or {}, {"tile": 4})


@pytest.mark.parametrize(
    ("code", "bits"),
    [
        ("mul.wide.u32 %rd1, %r1, 16;", 4),
        ("shl.b32 %r2, %r1, 2;\nmul.wide.u32 %rd1, %r2, 4;", 4),
        ("and.b32 %r2, %r1, -4;\nmad.wide.u32 %rd1, %r2, 2, %rd0;", 0),
        ("mov.b64 %rd0, tile;\nand.b32 %r2, %r1, -4;\nmad.wide.u32 %rd1, %r2, 2, %rd0;", 3),
        ("mov.b64 %rd1, 0;\n$L_1:\nadd.s64 %rd1, %rd1, 32;\n@%p1 bra $L_1;", 5),
        ("mov.b64 %rd1, 0;\n$L_1:\nadd.s64 %rd1, %rd1, %rd2;\n@%p1 bra $L_1;", 0),
        ("mul.hi.u32 %rd1, 16, 16;", 0),
        ("add.rn.f32 %rd1, 0f00000000, 0f00000000;", 0),
        ("mov.b32 %rd1, {0, %rs1};", 16),
        ("ld.shared.b64 %rd1, [tile];", 0),
        ("{ .reg .b64 %t; mov.b64 %rd1, 1; }\nmov.b64 %rd1, 16;", 0),
    ],
)
def test_what_code_says(code: str, bits: int) -> None:
    assert known_in(code).of("%rd1") == bits


def test_addresses_of_the_block_are_what_launches_promise() -> None:
    """Two arrays, three addresses from byte 40 on, the third that of a value."""
    text = """
    mov.b64 %rd1, am_entry_param_0;
    ld.param.v2.b64 {%rd2, %rd3}, [%rd1+40];
    ld.param.b64 %rd4, [am_entry_param_0+56];
    ld.param.v2.b32 {%r1, %r2}, [%rd1+32];
    ld.param.b32 %r3, [%rd1];
    ld.param.b64 %rd5, [%rd1+64];
    """
    known = known_in(text, {0: 4, 1: 1, 2: 2})
    found = [known.of(f"%rd{n}") for n in (2, 3, 4, 5)] + [known.of(f"%r{n}") for n in (1, 2, 3)]
    assert found == [4, 1, 2, 0, 4, 4, 0]
