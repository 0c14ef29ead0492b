"""A Kernel in, MSL out. Several kernels can share one source: every name of one has its prefix."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from . import tree
from .scalars import SMALL, element, is_float, whole_limit
from .tree import Kernel, Memory

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
HELPERS = {
    # The product is an operation of its own: clang would fuse `a * b + c`, and round once.
    "product": """
template <class T>
inline T product(T a, T b) {
  return a * b;
}
""",
    "whole": f"""
inline float whole(float x) {{
  return rint(clamp(x, -{whole_limit("float")}f, {whole_limit("float")}f));
}}
inline half whole(half x) {{
  return rint(clamp(x, -{whole_limit("half")}h, {whole_limit("half")}h));
}}
""",
}
SPELLED = {"add_saturated": "addsat", "subtract_saturated": "subsat"}
VOTES = {
    "simd_ballot": "uint(ulong(simd_vote::vote_t({})))",
    "simd_active_threads_mask": "uint(ulong(simd_vote::vote_t({})))",
    "quad_ballot": "uint(quad_vote::vote_t({}))",
    "quad_active_threads_mask": "uint(quad_vote::vote_t({}))",
}


INDICES = {
    "lane": "thread_index_in_simdgroup",
    "simd": "simdgroup_index_in_threadgroup",
    "in_group": "thread_index_in_threadgroup",
}


@dataclass(frozen=True)
class Place:
    """What a kernel with a grid of one dimension takes as it is, and computes in others."""

    attributes: tuple[tuple[str, str], ...]
    formula: str


PLACES = {
    "in_grid": Place(
        (("position", "thread_position_in_grid"), ("grid", "threads_per_grid")),
        "position.x + grid.x * (position.y + grid.y * position.z)",
    ),
    "group": Place(
        (("group_at", "threadgroup_position_in_grid"), ("groups", "threadgroups_per_grid")),
        "group_at.x + groups.x * (group_at.y + groups.y * group_at.z)",
    ),
    "group_threads": Place(
        (("group_size", "threads_per_threadgroup"),), "group_size.x * group_size.y * group_size.z"
    ),
}


def _names(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def source(kernels: Iterable[tuple[str, Kernel]]) -> str:
    """The text of all the kernels, each under the name it comes with."""
    text = "".join(Printer(kernel, name).text() for name, kernel in kernels)
    helpers = (helper for name, helper in HELPERS.items() if re.search(rf"\b{name}\(", text))
    return HEADER + "".join(helpers) + text


def initial(memory: Memory, index: str) -> str:
    """What a threadgroup array holds before the body begins."""
    return f"{element(memory.type)}({index} % 13u * 3u)"


class Printer:
    """Prints one kernel under one name."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel = kernel
        self.name = name
        self.lines: list[str] = []
        self.depth = 0

    def text(self) -> str:
        for struct in self.kernel.structs:
            fields = " ".join(f"{kind} {name};" for name, kind in struct.fields)
            self.line(f"struct {self.type(struct.name)} {{ {fields} }};")
        for function in self.kernel.functions:
            self.function(function)
        outside, self.lines = self.lines, []
        self.depth += 1
        self.block(self.kernel.body)
        self.depth -= 1
        body = self.threadgroup_memories() + self.lines
        places, computed = self.places("\n".join(body))
        parameters = ",\n    ".join([*self.buffers(), *places])
        head = f"kernel void {self.name}(\n    {parameters}) {{"
        return "\n" + "\n".join([*outside, head, *computed, *body, "}"]) + "\n"

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def type(self, name: str) -> str:
        return f"{self.name}_{name}" if self.kernel.struct(name) else name

    # ---- Kernel and functions --------------------------------------------------------------------

    def buffers(self) -> list[str]:
        buffers = [m for m in self.kernel.memories if m.space != "threadgroup"]
        return [f"{self.pointer(m)} [[buffer({i})]]" for i, m in enumerate(buffers)]

    def places(self, body: str) -> tuple[list[str], list[str]]:
        """Parameters and lines for what the body asks about the thread's place."""
        index = "ushort" if self.kernel.short_indices else "uint"
        lines = len(self.kernel.grid) == 1
        parameters, computed = [], []
        for name, attribute in INDICES.items():
            if _names(body, name):
                parameters.append(f"{index} {name} [[{attribute}]]")
        for name, place in PLACES.items():
            if not _names(body, name):
                continue
            if lines:
                parameters.append(f"uint {name} [[{place.attributes[0][1]}]]")
            else:
                parameters += [f"uint3 {n} [[{attribute}]]" for n, attribute in place.attributes]
                computed.append(f"  const uint {name} = {place.formula};")
        return parameters, computed

    def pointer(self, memory: Memory) -> str:
        if memory.space == "scalar":
            return f"constant {memory.type}& {memory.name}"
        kind = self.type(memory.type)
        if memory.operator:
            return f"device atomic_{kind}* {memory.name}"
        spaces = {"input": "device const", "constant": "constant", "output": "device"}
        return f"{spaces[memory.space]} {kind}* {memory.name}"

    def threadgroup_memories(self) -> list[str]:
        """Threadgroup arrays, filled before anybody may leave."""
        local = [m for m in self.kernel.memories if m.space == "threadgroup"]
        lines = []
        for memory in local:
            kind = f"atomic_{memory.type}" if memory.operator else self.type(memory.type)
            lines.append(f"  threadgroup {kind} {memory.name}[{memory.size}];")
        for memory in local:
            lines.append(f"  for (uint i = in_group; i < {memory.size}u; i += group_threads)")
            value = initial(memory, "i")
            if memory.operator:
                place = f"&{memory.name}[i]"
                lines.append(f"    atomic_store_explicit({place}, {value}, memory_order_relaxed);")
            else:
                lines.append(f"    {memory.name}[i] = {value};")
        return [*lines, "  threadgroup_barrier(mem_flags::mem_threadgroup);"] if local else []

    def function(self, function: tree.Function) -> None:
        texts = []
        for parameter in function.parameters:
            kind = self.type(parameter.type)
            if parameter.kind == "reference":
                texts.append(f"thread {kind}& {parameter.name}")
            elif parameter.kind == "memory":
                texts.append(f"{parameter.space} {kind}* {parameter.name}")
            else:
                texts.append(f"{kind} {parameter.name}")
        head = f"{self.type(function.type)} {self.name}_{function.name}({', '.join(texts)})"
        self.line(f"{head} {{")
        self.depth += 1
        self.block(function.body)
        self.depth -= 1
        self.line("}")

    # ---- Statements ------------------------------------------------------------------------------

    def block(self, statements: list[tree.Statement]) -> None:
        for statement in statements:
            getattr(self, f"print_{type(statement).__name__}")(statement)

    def braces(self, head: str, body: list[tree.Statement], tail: str = "}") -> None:
        self.line(f"{head} {{")
        self.depth += 1
        self.block(body)
        self.depth -= 1
        self.line(tail)

    def print_Declare(self, node: tree.Declare) -> None:
        self.line(f"{self.type(node.type)} {node.name} = {self.text_of(node.value)};")

    def print_DeclareArray(self, node: tree.DeclareArray) -> None:
        values = ", ".join(self.text_of(value) for value in node.values)
        self.line(f"{self.type(node.type)} {node.name}[{len(node.values)}] = {{{values}}};")

    def print_DeclareStruct(self, node: tree.DeclareStruct) -> None:
        values = ", ".join(self.text_of(value) for value in node.values)
        self.line(f"{self.type(node.type)} {node.name} = {{{values}}};")

    def print_Assign(self, node: tree.Assign) -> None:
        target = self.text_of(node.target)
        fusable = node.operator in ("+", "-")
        self.line(f"{target} {node.operator}= {self.text_of(node.value, fusable)};")

    def print_Store(self, node: tree.Store) -> None:
        self.line(f"{node.memory}[{self.text_of(node.index)}] = {self.text_of(node.value)};")

    def print_StoreLoose(self, node: tree.StoreLoose) -> None:
        value = f"{node.collective}({self.text_of(node.value)})"
        self.line(f"{node.memory}[{self.text_of(node.index)}] = {value};")

    def print_Atomic(self, node: tree.Atomic) -> None:
        place = f"&{node.memory}[{self.text_of(node.index)}]"
        value = self.text_of(node.value)
        self.line(f"atomic_fetch_{node.operator}_explicit({place}, {value}, memory_order_relaxed);")

    def print_If(self, node: tree.If) -> None:
        head = f"if ({self.text_of(node.condition)})"
        if not node.otherwise:
            self.braces(head, node.then)
            return
        self.line(f"{head} {{")
        self.depth += 1
        self.block(node.then)
        self.depth -= 1
        self.braces("} else", node.otherwise)

    def print_For(self, node: tree.For) -> None:
        start = f"{node.type} {node.variable} = {self.text_of(node.start)}"
        condition = f"{node.variable} {node.operator} {self.text_of(node.bound)}"
        step = f"{node.variable} {'-' if node.step < 0 else '+'}= {abs(node.step)}"
        if abs(node.step) == 1:
            step = f"{'--' if node.step < 0 else '++'}{node.variable}"
        self.braces(f"for ({start}; {condition}; {step})", node.body)

    def print_While(self, node: tree.While) -> None:
        condition = self.text_of(node.condition)
        if node.at_end:
            self.braces("do", node.body, f"}} while ({condition});")
        else:
            self.braces(f"while ({condition})", node.body)

    def print_Switch(self, node: tree.Switch) -> None:
        self.line(f"switch ({self.text_of(node.value)}) {{")
        self.depth += 1
        for case in node.cases:
            label = "default:" if case.label is None else f"case {case.label}:"
            self.line(f"{label} {{")
            self.depth += 1
            self.block(case.body)
            self.depth -= 1
            self.line("}" if case.falls else "} break;")
        self.depth -= 1
        self.line("}")

    def print_Break(self, node: tree.Break) -> None:
        self.line("break;")

    def print_Continue(self, node: tree.Continue) -> None:
        self.line("continue;")

    def print_Return(self, node: tree.Return) -> None:
        self.line("return;" if node.value is None else f"return {self.text_of(node.value)};")

    def print_Barrier(self, node: tree.Barrier) -> None:
        self.line(f"{node.scope}_barrier(mem_flags::mem_threadgroup);")

    # ---- Expressions -----------------------------------------------------------------------------

    def text_of(self, node: tree.Expression, fusable: bool = False) -> str:
        """The expression; as an operand of a sum (`fusable`) a product must stand by itself."""
        if isinstance(node, tree.Binary):
            return self.binary(node, fusable)
        text = getattr(self, f"text_{type(node).__name__}")(node)
        assert isinstance(text, str)
        return text

    def binary(self, node: tree.Binary, fusable: bool) -> str:
        if fusable and node.operator == "*" and is_float(node.type):
            return f"product({self.text_of(node.left)}, {self.text_of(node.right)})"
        inner = node.operator in ("+", "-")
        left, right = self.text_of(node.left, inner), self.text_of(node.right, inner)
        text = f"({left} {node.operator} {right})"
        return f"{node.type}{text}" if element(node.type) in SMALL else text

    def text_Literal(self, node: tree.Literal) -> str:
        if node.type == "bool":
            return "true" if node.value else "false"
        if node.type == "bfloat":
            return f"bfloat({float(node.value)!r}f)"
        if is_float(node.type):
            text = f"{float(node.value)!r}{'h' if node.type == 'half' else 'f'}"
        else:
            suffix = {"uint": "u", "long": "L", "ulong": "UL"}.get(node.type, "")
            text = f"{node.value}{suffix}"
            if node.type in ("int", "long") and node.value < -(2**30):
                text = f"({node.value + 1}{suffix} - 1)"
        if node.type in SMALL:
            return f"{node.type}({text})"
        return f"({text})" if text.startswith("-") else text

    def text_Variable(self, node: tree.Variable) -> str:
        return node.name

    def text_Part(self, node: tree.Part) -> str:
        return f"{self.text_of(node.base)}.{node.name}"

    def text_Construct(self, node: tree.Construct) -> str:
        return f"{node.type}({self.list_of(node.parts)})"

    def text_Unary(self, node: tree.Unary) -> str:
        text = f"({node.operator}{self.text_of(node.operand, node.operator == '-')})"
        return f"{node.type}{text}" if element(node.type) in SMALL else text

    def text_Compare(self, node: tree.Compare) -> str:
        return f"({self.text_of(node.left)} {node.operator} {self.text_of(node.right)})"

    text_Logical = text_Compare

    def text_Ternary(self, node: tree.Ternary) -> str:
        yes, no = self.text_of(node.yes), self.text_of(node.no)
        return f"({self.text_of(node.condition)} ? {yes} : {no})"

    def text_Convert(self, node: tree.Convert) -> str:
        return f"{node.type}({self.text_of(node.operand, True)})"

    def text_Load(self, node: tree.Load) -> str:
        base = f"({node.memory} + {node.offset})" if node.offset else node.memory
        return f"{base}[{self.text_of(node.index)}]"

    def text_LoadEither(self, node: tree.LoadEither) -> str:
        base = f"({self.text_of(node.condition)} ? {node.first} : {node.second})"
        return f"{base}[{self.text_of(node.index)}]"

    def text_AtomicLoad(self, node: tree.AtomicLoad) -> str:
        place = f"&{node.memory}[{self.text_of(node.index)}]"
        return f"atomic_load_explicit({place}, memory_order_relaxed)"

    def text_Builtin(self, node: tree.Builtin) -> str:
        if node.name == "multiply_add":
            a, b, c = (self.text_of(argument) for argument in node.arguments)
            return f"({a} * {b} + {c})"
        text = f"{SPELLED.get(node.name, node.name)}({self.list_of(node.arguments)})"
        # Functions of bfloat are those of float.
        return f"bfloat({text})" if node.type == "bfloat" else text

    def text_Collective(self, node: tree.Collective) -> str:
        arguments = self.list_of(node.arguments)
        if "_and_fill_" in node.name and node.modulo != 32:
            arguments += f", ushort({node.modulo})"
        return VOTES.get(node.name, "{}").format(f"{node.name}({arguments})")

    def text_Invoke(self, node: tree.Invoke) -> str:
        arguments = [*(self.text_of(argument) for argument in node.arguments), *node.memories]
        return f"{self.name}_{node.function}({', '.join(arguments)})"

    def list_of(self, nodes: list[tree.Expression]) -> str:
        return ", ".join(self.text_of(node) for node in nodes)
