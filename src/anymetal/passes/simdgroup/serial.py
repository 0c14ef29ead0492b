"""One active lane after the other: atomics, and functions that were not inlined."""

from __future__ import annotations

from collections.abc import Callable

from anymetal.passes.simdgroup.facts import WIDTH
from anymetal.passes.simdgroup.values import Code, Value, vector_type


class Serial:
    """Writes code that runs for each lane in turn and gathers the results."""

    def __init__(self, code: Code) -> None:
        self._code = code

    def run(
        self,
        kind: str,
        operands: list[Value],
        mask: str | None,
        each: Callable[[list[str]], str],
    ) -> Value | None:
        """Runs `each` for every active lane, lowest first, with that lane's operands.

        It writes the instructions of one lane and gives their result.
        """
        code = self._code
        takers = [self._taker(operand) for operand in operands]
        leaves = code.types.leaves(kind) if kind != "void" else []
        results = [code.variable(vector_type(leaf)) for leaf in leaves]
        for leaf, result in zip(leaves, results, strict=True):
            code.store(vector_type(leaf), "zeroinitializer", result)
        rest = code.variable("i32")
        code.store("i32", code.bits(mask) if mask is not None else "-1", rest)
        loop, body, done = code.fresh("lanes"), code.fresh("lane"), code.fresh("done")
        code.jump(loop)
        code.label(loop)
        bits = code.load("i32", rest)
        code.branch(code.op(f"icmp eq i32 {bits}, 0"), done, body)
        code.label(body)
        with code.aside():
            lane = code.call("i32", "llvm.cttz.i32", [("i32", bits), ("i1", "true")])
            text = each([take(lane) for take in takers])
            self._keep(kind, text, leaves, results, lane)
        below = code.op(f"sub i32 {bits}, 1")
        code.store("i32", code.op(f"and i32 {bits}, {below}"), rest)
        code.jump(loop)
        code.label(done)
        if not leaves:
            return None
        values = [
            code.varying(leaf, code.load(vector_type(leaf), result))
            for leaf, result in zip(leaves, results, strict=True)
        ]
        return code.assembled(kind, iter(values))

    def unrolled(self, kind: str, operands: list[Value], each: Callable[[list[str]], str]) -> Value:
        """The same for all 32 lanes without a loop, where all are scalars and `each` is little."""
        code, wide = self._code, vector_type(kind)
        takers = [self._taker_from_memory(operand) for operand in operands]
        result = "poison"
        for lane in range(WIDTH):
            text = each([take(lane) for take in takers])
            result = code.op(f"insertelement {wide} {result}, {kind} {text}, i32 {lane}")
        return code.varying(kind, result)

    def _taker_from_memory(self, operand: Value) -> Callable[[int], str]:
        """Lanes read one after the other from memory, where the whole vector is put first.

        Many moves from vector registers, each followed by a write to memory, cost 20 times as much
        on an AMD EPYC. `volatile` keeps LLVM from making such moves of it.
        """
        code, kind = self._code, operand.kind
        if operand.facts.is_uniform:
            text = code.scalar(operand)
            return lambda lane: text
        place = code.variable(vector_type(kind))
        code.line(f"store volatile {vector_type(kind)} {code.vector(operand)}, ptr {place}")
        size = code.types.size(kind)
        return lambda lane: code.op(f"load {kind}, ptr {code.moved('ptr', place, lane * size)}")

    def _taker(self, operand: Value) -> Callable[[str], str]:
        """How to get one lane's value; vectors are made before the loop."""
        code = self._code
        if operand.facts.is_uniform:
            text = code.scalar(operand)
            return lambda lane: text
        if not code.types.parts(operand.kind):
            wide, vector = vector_type(operand.kind), code.vector(operand)
            return lambda lane: code.op(f"extractelement {wide} {vector}, i32 {lane}")
        takers = [self._taker(part) for part in code.parts_of(operand)]
        parts = code.types.parts(operand.kind)
        is_vector = operand.kind.startswith("<") and not operand.kind.startswith("<{")

        def take(lane: str) -> str:
            text = "poison"
            for number, (part, taker) in enumerate(zip(parts, takers, strict=True)):
                if is_vector:
                    tail = f"{part} {taker(lane)}, i64 {number}"
                    text = code.op(f"insertelement {operand.kind} {text}, {tail}")
                else:
                    tail = f"{part} {taker(lane)}, {number}"
                    text = code.op(f"insertvalue {operand.kind} {text}, {tail}")
            return text

        return take

    def _keep(self, kind: str, text: str, leaves: list[str], results: list[str], lane: str) -> None:
        if not leaves:
            return
        code = self._code
        scalars = code.leaves_of(code.uniform(kind, text))
        for leaf, result, scalar in zip(leaves, results, scalars, strict=True):
            wide = vector_type(leaf)
            before = code.load(wide, result)
            after = f"insertelement {wide} {before}, {leaf} {code.scalar(scalar)}, i32 {lane}"
            code.store(wide, code.op(after), result)
