"""The kernel language of the fuzzer: a tree that one back end prints and another one interprets.

Types are named as in MSL. There are no implicit conversions: both sides of an operator have the
type of the node, or of each other where they are compared.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

REGISTRY: dict[str, type[Node]] = {}


@dataclass(eq=False)
class Node:
    """Anything in the tree. Nodes are compared by identity."""

    def __init_subclass__(cls) -> None:
        REGISTRY[cls.__name__] = cls


# ---- Expressions ---------------------------------------------------------------------------------


@dataclass(eq=False)
class Expression(Node):
    type: str


@dataclass(eq=False)
class Literal(Expression):
    value: int | float | bool


@dataclass(eq=False)
class Variable(Expression):
    name: str


@dataclass(eq=False)
class Part(Expression):
    """A component of a vector or a field of a struct."""

    base: Expression
    name: str


@dataclass(eq=False)
class Construct(Expression):
    """A vector from its components."""

    parts: list[Expression]


@dataclass(eq=False)
class Unary(Expression):
    operator: str
    operand: Expression


@dataclass(eq=False)
class Binary(Expression):
    operator: str
    left: Expression
    right: Expression


@dataclass(eq=False)
class Compare(Expression):
    operator: str
    left: Expression
    right: Expression


@dataclass(eq=False)
class Logical(Expression):
    """`&&` or `||`: the right side is evaluated in the lanes where it matters, and nowhere else."""

    operator: str
    left: Expression
    right: Expression


@dataclass(eq=False)
class Ternary(Expression):
    condition: Expression
    yes: Expression
    no: Expression


@dataclass(eq=False)
class Convert(Expression):
    operand: Expression


@dataclass(eq=False)
class Load(Expression):
    """`memory[index]`, or `(memory + offset)[index]`."""

    memory: str
    index: Expression
    offset: int = 0


@dataclass(eq=False)
class LoadEither(Expression):
    """`(condition ? first : second)[index]`: a pointer that differs between lanes."""

    condition: Expression
    first: str
    second: str
    index: Expression


@dataclass(eq=False)
class AtomicLoad(Expression):
    memory: str
    index: Expression


@dataclass(eq=False)
class Builtin(Expression):
    """A function of one lane: min, clamp, popcount, ..."""

    name: str
    arguments: list[Expression]


@dataclass(eq=False)
class Collective(Expression):
    """A function of the active lanes of a simdgroup or quad. `modulo` is for the filling shifts."""

    name: str
    arguments: list[Expression]
    modulo: int = 32


@dataclass(eq=False)
class Invoke(Expression):
    """A call of a function of the source. Memories are passed by name."""

    function: str
    arguments: list[Expression]
    memories: list[str] = field(default_factory=list)


# ---- Statements ----------------------------------------------------------------------------------


@dataclass(eq=False)
class Statement(Node):
    pass


@dataclass(eq=False)
class Declare(Statement):
    name: str
    type: str
    value: Expression


@dataclass(eq=False)
class DeclareArray(Statement):
    """A private array with one initial value an element."""

    name: str
    type: str
    values: list[Expression]


@dataclass(eq=False)
class DeclareStruct(Statement):
    """A local struct with one initial value a field."""

    name: str
    type: str
    values: list[Expression]


@dataclass(eq=False)
class Assign(Statement):
    """`target operator= value`, or a plain assignment where the operator is empty."""

    target: Expression
    operator: str
    value: Expression


@dataclass(eq=False)
class Store(Statement):
    memory: str
    index: Expression
    value: Expression


@dataclass(eq=False)
class StoreLoose(Statement):
    """A floating-point sum whose order is open goes to memory, and is compared with a tolerance."""

    memory: str
    index: Expression
    collective: str
    value: Expression


@dataclass(eq=False)
class Atomic(Statement):
    """A read-modify-write whose result is not used."""

    memory: str
    operator: str
    index: Expression
    value: Expression


@dataclass(eq=False)
class If(Statement):
    condition: Expression
    then: list[Statement]
    otherwise: list[Statement] = field(default_factory=list)


@dataclass(eq=False)
class For(Statement):
    """Counts from start by step (which may be negative) while `variable operator bound`."""

    variable: str
    type: str
    start: Expression
    operator: str
    bound: Expression
    step: int
    body: list[Statement]


@dataclass(eq=False)
class While(Statement):
    condition: Expression
    body: list[Statement]
    at_end: bool = False


@dataclass(eq=False)
class Case(Node):
    label: int | None
    body: list[Statement]
    falls: bool = False


@dataclass(eq=False)
class Switch(Statement):
    value: Expression
    cases: list[Case]


@dataclass(eq=False)
class Break(Statement):
    pass


@dataclass(eq=False)
class Continue(Statement):
    pass


@dataclass(eq=False)
class Return(Statement):
    value: Expression | None = None


@dataclass(eq=False)
class Barrier(Statement):
    """Of the threadgroup or of the simdgroup, ordering threadgroup memory."""

    scope: str


# ---- The kernel ----------------------------------------------------------------------------------


@dataclass(eq=False)
class Memory(Node):
    """A buffer or threadgroup array. The space is input, constant, output, atomic or threadgroup.

    `operator` is the one operation allowed on an atomic memory: then order does not matter.
    """

    name: str
    space: str
    type: str
    size: int
    operator: str = ""
    loose: bool = False


@dataclass(eq=False)
class Parameter(Node):
    """Of a function. The kind is value, reference (thread T&) or memory (pointer, by space)."""

    name: str
    type: str
    kind: str = "value"
    space: str = ""


@dataclass(eq=False)
class Function(Node):
    name: str
    type: str
    parameters: list[Parameter]
    body: list[Statement]


@dataclass(eq=False)
class Struct(Node):
    name: str
    fields: list[list[str]]


@dataclass(eq=False)
class Kernel(Node):
    """All of one test: the code, the launch, and the seed of the contents of its buffers."""

    seed: int
    grid: list[int]
    group: list[int]
    short_indices: bool
    memories: list[Memory]
    structs: list[Struct]
    functions: list[Function]
    body: list[Statement]
    format: ClassVar[int] = 1

    def memory(self, name: str) -> Memory:
        return next(memory for memory in self.memories if memory.name == name)

    def struct(self, name: str) -> Struct | None:
        return next((struct for struct in self.structs if struct.name == name), None)


# ---- Walking, copying and keeping trees ----------------------------------------------------------


def children(node: Node) -> Iterator[Node]:
    for place in dataclasses.fields(node):
        value = getattr(node, place.name)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Node):
                yield item


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in children(node):
        yield from walk(child)


def to_data(value: Any) -> Any:
    """A node as plain lists and dictionaries."""
    if isinstance(value, Node):
        members = {f.name: to_data(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"node": type(value).__name__, **members}
    if isinstance(value, list):
        return [to_data(item) for item in value]
    return value


def from_data(data: Any) -> Any:
    if isinstance(data, dict):
        members = {name: from_data(value) for name, value in data.items() if name != "node"}
        return REGISTRY[data["node"]](**members)
    if isinstance(data, list):
        return [from_data(item) for item in data]
    return data


def copy(kernel: Kernel) -> Kernel:
    result = from_data(to_data(kernel))
    assert isinstance(result, Kernel)
    return result


def to_json(kernel: Kernel) -> str:
    return json.dumps({"format": Kernel.format, "kernel": to_data(kernel)}) + "\n"


def from_json(text: str) -> Kernel:
    data = json.loads(text)
    if data["format"] != Kernel.format:
        raise ValueError(f"a kernel of format {data['format']}, expected {Kernel.format}")
    result = from_data(data["kernel"])
    assert isinstance(result, Kernel)
    return result
