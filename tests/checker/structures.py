"""Structures with padding of every shape, and kernels that set, copy and read them everywhere.

Members are set one by one, structures are copied whole: between a thread's memory, threadgroup
memory and buffers, in arrays, by functions, lambdas and conditions. All of it is right.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
THREADS = 16
LARGEST = 1024
"""Bytes that one structure may take."""

_SCALARS = ("char", "uchar", "short", "ushort", "int", "uint", "half", "float", "long", "bool")
_VECTORS = ("float2", "float3", "float4", "half3", "half4", "char3", "short3", "int3", "uint3")
_PACKED = ("packed_float3", "packed_half3", "packed_uchar3")
_MATRICES = ("float2x3", "float3x3", "half3x3", "float4x3")


@dataclass(frozen=True)
class Leaf:
    """A value in a structure: how it is named behind the structure's name, and its type."""

    path: str
    type: str

    def text(self, number: int, thread: str) -> str:
        """What it is set to: a small number that differs between leaves and threads."""
        value = f"(({thread}) * 3 + {number}) % 7"
        if self.type in _MATRICES:
            return f"{self.type}({value})"
        return f"{self.type}({value} & 1)" if self.type == "bool" else f"{self.type}({value})"

    def sum(self, name: str) -> str:
        """All of its components, for a checksum."""
        place = f"{name}{self.path}"
        if self.type in _MATRICES:
            return f"float({place}[0][0] + {place}[1][1] + {place}[0][2])"
        width = self.type.removeprefix("packed_")[-1]
        if not width.isdigit():
            return f"float({place})"
        return " + ".join(f"float({place}[{component}])" for component in range(int(width)))

    def value(self, number: int, thread: int) -> int:
        value = (thread * 3 + number) % 7
        if self.type in _MATRICES:
            return 2 * value
        if self.type == "bool":
            return value & 1
        width = self.type.removeprefix("packed_")[-1]
        return value * (int(width) if width.isdigit() else 1)


@dataclass(frozen=True)
class Shape:
    """A structure: the text that declares it, and its leaves."""

    name: str
    text: str
    leaves: tuple[Leaf, ...]

    def checksum(self, thread: int) -> int:
        return sum(leaf.value(number, thread) for number, leaf in enumerate(self.leaves))


def shape(choose: random.Random, name: str, depth: int = 2) -> Shape:
    """A structure of one to five members, some of them arrays, structures or unions."""
    before, members, leaves = [], [], []
    base = ""
    if depth and choose.random() < 0.15:
        inner = shape(choose, f"{name}_base", 0)
        before.append(inner.text)
        base = f" : {inner.name}"
        leaves += inner.leaves
    for number in range(choose.randint(1, 5)):
        member = f"m{number}_{len(name)}"
        kind = choose.random()
        if depth and kind < 0.2:
            inner = shape(choose, f"{name}_{number}", depth - 1)
            before.append(inner.text)
            members.append(f"{inner.name} {member};")
            leaves += [Leaf(f".{member}{leaf.path}", leaf.type) for leaf in inner.leaves]
        elif depth and kind < 0.3:
            inner = shape(choose, f"{name}_{number}", 0)
            before.append(inner.text)
            members.append(f"{inner.name} {member}[2];")
            leaves += [
                Leaf(f".{member}[{i}]{f.path}", f.type) for i in (0, 1) for f in inner.leaves
            ]
        elif kind < 0.4:
            small, large = choose.choice(_SCALARS), choose.choice(_VECTORS)
            members.append(f"union {{ {large} large; {small} small; }} {member};")
            leaves.append(Leaf(f".{member}.small", small))
        elif kind < 0.5:
            scalar, count = choose.choice(_SCALARS), choose.randint(2, 14)
            members.append(f"{scalar} {member}[{count}];")
            leaves += [Leaf(f".{member}[{place}]", scalar) for place in range(count)]
        else:
            types = choose.choice((_SCALARS, _SCALARS, _VECTORS, _VECTORS, _PACKED, _MATRICES))
            own = choose.choice(types)
            members.append(f"{own} {member};")
            leaves.append(Leaf(f".{member}", own))
    aligned = choose.choice(("", "", "", "alignas(32) "))
    text = "".join(before) + f"struct {aligned}{name}{base} {{ {' '.join(members)} }};\n"
    return Shape(name, text, tuple(leaves))


def kernel(choose: random.Random, own: Shape, *, forgotten: Leaf | None = None) -> str:
    """A kernel `own.name_k` that moves structures about; y gets the checksum of `source_thread`."""
    name = own.name

    def set_all(place: str, thread: str, without: Leaf | None = None) -> Iterator[str]:
        for number, leaf in enumerate(own.leaves):
            if leaf is not without:
                yield f"  {place}{leaf.path} = {leaf.text(number, thread)};"

    barrier = "  threadgroup_barrier(mem_flags::mem_threadgroup);"
    lines = [f"{name} {name}_pass({name} s) {{ return s; }}"]
    lines += [
        f"kernel void {name}_k(device {name}* out, device float* y,",
        "    uint i [[thread_position_in_grid]]) {",
        f"  threadgroup {name} t[{THREADS}], u[{THREADS}];",
        f"  {name} a, c[3];",
        *set_all("a", "i"),
        f"  {name} b = a;",
        "  c[0] = b; c[1] = c[0]; c[2] = a; c[i % 3] = a;",
    ]
    if forgotten is None and choose.random() < 0.5:
        lines.append(f"  t[i] = {choose.choice(('a', 'c[1]', 'c[i % 3]', f'{name}_pass(b)'))};")
    else:
        lines += set_all("t[i]", "i", forgotten)
    lines += [
        barrier,
        f"  {name} d = t[{THREADS - 1} - i];",
        f"  u[i] = t[(i + 1) % {THREADS}];",
        barrier,
        f"  {name} e = (i & 1) ? u[(i + {THREADS - 1}) % {THREADS}] : d;",
    ]
    if choose.random() < 0.5:
        lines.append("  out[i] = e;")
    else:
        lines += set_all("out[i]", f"((i & 1) ? i : {THREADS - 1} - i)")
    lines += [f"  {name} g = out[i];", "  auto captured = [=] { return g; };"]
    lines.append(f"  {name} h = {name}_pass(captured());")
    lines.append("  if (i < 40u) { b = h; h = b; }")
    terms = " + ".join(f"({leaf.sum('h')})" for leaf in own.leaves)
    lines.append(f"  y[i] = {terms};\n}}\n")
    return "\n".join(lines)


def source_thread(thread: int) -> int:
    """Whose structure it is that ends up with a thread."""
    return thread if thread & 1 else THREADS - 1 - thread
