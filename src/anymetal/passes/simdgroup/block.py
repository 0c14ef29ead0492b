"""Writes the instructions of one block for 32 lanes, all of them or those of a mask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from anymetal.ir import FLOAT, I8, I64, PTR, Instruction, Operand, Type, array, vector
from anymetal.passes.lower.powers import SCALED
from anymetal.passes.simdgroup import scaling
from anymetal.passes.simdgroup.access import Access
from anymetal.passes.simdgroup.ahead import blocks_in_rows, reads_of_rows
from anymetal.passes.simdgroup.analysis import Analysis
from anymetal.passes.simdgroup.atomics import Atomics, Steps, Update, threadgroup_pointers
from anymetal.passes.simdgroup.calls import Calls
from anymetal.passes.simdgroup.facts import WIDTH, Tag
from anymetal.passes.simdgroup.graph import NotVectorisable
from anymetal.passes.simdgroup.memory import Memory
from anymetal.passes.simdgroup.operations import Operations
from anymetal.passes.simdgroup.positions import SIMD_POINTER
from anymetal.passes.simdgroup.products import (
    Product,
    Products,
    added_to,
    has_room,
    products_in,
    two_by_two,
)
from anymetal.passes.simdgroup.rules import literal, matrix_part
from anymetal.passes.simdgroup.serial import Serial
from anymetal.passes.simdgroup.slots import Slots
from anymetal.passes.simdgroup.streaming import Streaming
from anymetal.passes.simdgroup.together import (
    Accesses,
    is_invariant,
    loads_together,
    neighbours,
    stores_together,
)
from anymetal.passes.simdgroup.values import ALL_LANES, INVARIANT, MASK, Code, Value

# What is computed ahead of its place, addresses mostly: nothing that reads memory.
_PURE_OPERATIONS = frozenset(
    [
        "extractelement",
        "getelementptr",
        "add",
        "sub",
        "mul",
        "shl",
        "and",
        "or",
        "xor",
        "lshr",
        "zext",
        "sext",
        "trunc",
    ]
)


@dataclass
class Scope:
    """One block being written: its mask (None: all lanes are active) and the available values."""

    label: str
    mask: Operand | None
    values: dict[str, Value] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)  # instructions written with an earlier one
    groups: dict[int, list[Instruction]] = field(
        default_factory=dict
    )  # stores to write with the last
    # Matrix products that are written with the product they are added to.
    added: dict[int, list[Product]] = field(default_factory=dict)


Writer = Callable[["BlockWriter", Instruction, list[Value], Scope], Value | None]


class BlockWriter:
    """Instructions in, vector code out. `machine` holds what is known of the simdgroup."""

    def __init__(self, code: Code, analysis: Analysis, slots: Slots) -> None:
        self._code = code
        self._analysis = analysis
        self._kernel = analysis.kernel
        self._slots = slots
        self._operations = Operations(code, analysis.rules)
        self._memory = Memory(code)
        serial = Serial(code)
        self._calls = Calls(code, serial, SIMD_POINTER)
        self._products = Products(code, self._calls.matrices)
        self._inside = threadgroup_pointers(analysis.kernel, analysis.facts)
        self._atomics = Atomics(code, serial, self._inside)
        self._in_rows = blocks_in_rows(analysis.kernel)
        self._streaming = Streaming(code, analysis.kernel)
        self._reads = reads_of_rows(analysis.kernel, self._in_rows, self._streaming.buffer)
        self._used = {name for b in analysis.kernel.blocks.values() for i in b for name in i.names}
        self._arrays: dict[str, Operand] = {}
        self.machine: dict[Tag, Value] = {}

    @property
    def has_barriers(self) -> bool:
        return self._calls.has_barriers

    def operand(self, operand: Operand, scope: Scope) -> Value:
        if operand.is_name:
            return self._value(operand.text, scope)
        facts = literal(operand)
        if facts.values is not None and operand.type is not PTR:
            return self._code.known(operand.type, facts)
        return Value(operand.type, facts, base=operand)

    def _value(self, name: str, scope: Scope) -> Value:
        value = scope.values.get(name)
        if value is not None:
            return value
        if name in (self._kernel.buffers.text, self._kernel.self.text):
            value = Value(PTR, self._analysis.facts[name], base=Operand(PTR, name))
        else:
            value = self._from_elsewhere(name, scope)
        if not self._code.is_aside:
            scope.values[name] = value
        return value

    def _from_elsewhere(self, name: str, scope: Scope) -> Value:
        slot = self._slots.get(name)
        if slot is not None:
            return self._slots.read(slot)
        _, instruction = self._kernel.definitions[name]
        value = self._compute(instruction, scope)
        assert value is not None, name
        return value

    def write(self, scope: Scope) -> None:
        block = list(self._kernel.body(scope.label))
        accesses = Accesses(block)
        products: list[Instruction] = []  # that are not written yet
        if scope.mask is None and has_room():
            products = [i for i in block if matrix_part(i.callee or "") is not None]
        self._code.kept.clear()
        for instruction in block:
            if instruction.opcode in ("br", "ret", "unreachable"):
                return
            if products and products[0] is instruction:
                self._multiply_together(products, scope)
                products = products[1:]
            if id(instruction) in scope.done:
                continue
            if instruction.result is not None and instruction.result in scope.values:
                self._slots.keep(instruction.result, scope.values[instruction.result])
                continue
            if self._combine(accesses, instruction, scope):
                continue
            value = self._compute(instruction, scope)
            if instruction.result is not None and value is not None:
                scope.values[instruction.result] = value
                self._slots.keep(instruction.result, value)

    # ---- matrix products -----------------------------------------------------------------------

    def _multiply_together(self, calls: list[Instruction], scope: Scope) -> None:
        """Writes a matrix product together with others that share its matrices, and with those
        that it is added to: then nothing is written before the first of these."""
        instruction = calls[0]
        if id(instruction) in scope.done or instruction.result in scope.values:
            return
        four = scope.added.pop(id(instruction), None)
        products = products_in(calls)
        if four is not None:
            more = added_to(four, products)
            assert more is not None
            for call in (call for product in more for call in product.calls):
                scope.added.pop(id(call), None)
            is_whole = self._are_at_hand(scope, *(p.left + p.right for p in more))
            self._multiply([four, more] if is_whole else [four], scope)
            return
        four = two_by_two([p for p in products if self._are_at_hand(scope, p.operands)])
        if four is None:
            return
        more = added_to(four, products)
        if more is None or not self._are_only_for(four, more):
            self._multiply([four], scope)
            return
        self._products.prepare(four, lambda operand: self.operand(operand, scope))
        scope.done.update(id(call) for product in four for call in product.calls)
        scope.added.update((id(call), four) for product in more for call in product.calls)

    def _are_at_hand(self, scope: Scope, *operands: tuple[Operand, ...]) -> bool:
        return all(self._ahead(o, scope) is not None for some in operands for o in some)

    def _multiply(self, steps: list[list[Product]], scope: Scope) -> None:
        scope.values |= self._products.write(steps, lambda operand: self.operand(operand, scope))

    def _are_only_for(self, products: list[Product], users: list[Product]) -> bool:
        """Whether nothing else in the kernel uses the results of products."""
        names = {name for product in products for name in product.results}
        calls = {id(call) for user in users for call in user.calls}
        return not any(
            operand.text in names
            for instructions in self._kernel.blocks.values()
            for instruction in instructions
            if id(instruction) not in calls
            for operand in instruction.operands
        )

    # ---- strided accesses combined ------------------------------------------------------------

    def _combine(self, accesses: Accesses, instruction: Instruction, scope: Scope) -> bool:
        """Writes a strided load or store together with later ones that fill its gaps."""
        if instruction.opcode == "atomicrmw":
            return self._combine_updates(accesses, instruction, scope)
        if instruction.opcode not in ("load", "store") or id(instruction) in scope.groups:
            return False
        kind = instruction.type if instruction.opcode == "load" else instruction.operands[0].type
        if not self._memory.is_simple(instruction, kind):
            return False
        address = self.operand(instruction.operands[-1], scope)
        if address.facts.offsets is None:
            return self._combine_neighbours(accesses, instruction, kind, scope)
        if not self._memory.has_gaps(kind, address):
            return False
        search = loads_together if instruction.opcode == "load" else stores_together
        size = self._kernel.types.size(kind)
        members = search(
            accesses,
            instruction,
            address,
            size,
            lambda other: self._ahead(other.operands[-1], scope),
            distinct=instruction.opcode == "store" or scope.mask is not None,
        )
        if members is None:
            return self._combine_rows(accesses, instruction, kind, scope)
        self._take_together(accesses, kind, members, scope)
        return True

    def _combine_updates(self, accesses: Accesses, first: Instruction, scope: Scope) -> bool:
        """Writes an update of threadgroup memory together with those that follow, where nobody asks
        what was there."""
        update = self._free_update(first, scope)
        if update is None:
            return False
        updates = [update]
        for instruction, touches in accesses.behind(first):
            update = self._free_update(instruction, scope)
            if update is not None and instruction.predicate == first.predicate:
                updates.append(update)
            elif touches or not is_invariant(instruction):
                break
        self._atomics.in_any_order(updates)
        scope.done.update(id(update.instruction) for update in updates)
        return True

    def _free_update(self, instruction: Instruction, scope: Scope) -> Update | None:
        if scope.mask is not None or not self._atomics.is_free(instruction):
            return None
        if instruction.result in self._used:
            return None
        address, given = (self._ahead(operand, scope) for operand in instruction.operands)
        if address is None or given is None or address.facts.is_uniform:
            return None
        steps = self._steps(instruction.operands[0].text, scope)
        return Update(instruction, steps, given) if steps is not None else None

    def _combine_rows(
        self, accesses: Accesses, first: Instruction, kind: Type, scope: Scope
    ) -> bool:
        """Likewise for loads of four neighbours by each lane, at places far apart."""
        if first.opcode != "load":
            return False
        members = self._neighbours(accesses, first, kind, scope)
        if members is None or not self._memory.is_row(vector(len(members), kind)):
            return False
        rows = [self._access(member, kind, scope) for member in members]
        self._loaded(members, self._memory.load_rows(rows), scope)
        return True

    def _combine_neighbours(
        self, accesses: Accesses, first: Instruction, kind: Type, scope: Scope
    ) -> bool:
        """Writes an access together with later ones to neighbours of its elements."""
        members = self._neighbours(accesses, first, kind, scope)
        if members is None or not self._memory.is_wide(vector(len(members), kind)):
            return False
        self._take_together(accesses, kind, members, scope)
        return True

    def _neighbours(
        self, accesses: Accesses, first: Instruction, kind: Type, scope: Scope
    ) -> list[Instruction] | None:
        def is_taken(other: Instruction) -> bool:
            is_loaded = other.result is not None and other.result in scope.values
            return is_loaded or id(other) in scope.done or id(other) in scope.groups

        size = self._kernel.types.size(kind)
        return neighbours(accesses, first, size, self._place, is_taken)

    def _place(self, access: Instruction) -> tuple[str, int]:
        """The pointer that an access starts from, and the bytes between."""
        name = access.operands[-1].text
        _, step = self._kernel.definitions.get(name, (None, None))
        if step is not None and step.opcode == "getelementptr" and step.element is I8:
            distance = step.operands[1].integer if len(step.operands) == 2 else None
            if distance is not None:
                return step.pointer.text, distance
        return name, 0

    def _take_together(
        self, accesses: Accesses, kind: Type, members: list[Instruction], scope: Scope
    ) -> None:
        """Loads are written at the first of them, stores at the last."""
        if members[0].opcode == "load":
            self._load_together(kind, members, scope)
            return
        last = max(members, key=accesses.number)
        scope.groups[id(last)] = members
        scope.done.update(id(member) for member in members if member is not last)

    def _ahead(self, operand: Operand, scope: Scope) -> Value | None:
        """A value computed ahead of its place, if all its operands are available."""
        name = operand.text
        if not operand.is_name or name in scope.values:
            return self.operand(operand, scope)
        definition = self._kernel.definitions.get(name)
        if definition is None or definition[0] != scope.label or definition[1].opcode == "phi":
            return self.operand(operand, scope)
        instruction = definition[1]
        if instruction.opcode not in _PURE_OPERATIONS:
            return None
        if any(self._ahead(part, scope) is None for part in instruction.operands):
            return None
        value = self._compute(instruction, scope)
        if value is not None:
            scope.values[name] = value
        return value

    def _access(self, instruction: Instruction, kind: Type, scope: Scope) -> Access:
        address = self.operand(instruction.operands[-1], scope)
        return Access(kind, address, instruction.align, scope.mask, is_invariant(instruction))

    def _load_together(self, kind: Type, members: list[Instruction], scope: Scope) -> None:
        first = self._access(members[0], kind, scope)
        if first.address.facts.offsets is None:
            values = self._memory.load_neighbours(first, len(members))
        else:
            accesses = [self._access(member, kind, scope) for member in members]
            values = self._memory.load_together(accesses)
        self._loaded(members, values, scope)

    def _loaded(self, members: list[Instruction], values: list[Value], scope: Scope) -> None:
        for member, value in zip(members, values, strict=True):
            assert member.result is not None
            scope.values[member.result] = value
        self._slots.keep(members[0].result or "", values[0])

    def _store_together(self, members: list[Instruction], scope: Scope) -> None:
        kind = members[0].operands[0].type
        first = self._access(members[0], kind, scope)
        values = [self.operand(member.operands[0], scope) for member in members]
        if first.address.facts.offsets is None:
            self._memory.store_neighbours(first, values)
        else:
            accesses = [self._access(member, kind, scope) for member in members]
            self._memory.store_together(accesses, values)

    def _compute(self, instruction: Instruction, scope: Scope) -> Value | None:
        operands = [self.operand(operand, scope) for operand in instruction.operands]
        result = self._operations.apply(instruction, operands, scope.mask)
        if result is not None:
            return result
        writer = self._writers.get(instruction.opcode)
        if writer is None:
            raise NotVectorisable(f"the instruction {instruction.opcode}")
        return writer(self, instruction, operands, scope)

    def _write_load(
        self, instruction: Instruction, operands: list[Value], scope: Scope
    ) -> Value | None:
        facts = self._analysis.rules.facts(
            instruction, lambda _: operands[0].facts, all_active=scope.mask is None
        )
        if facts.values is not None:
            return self._code.known(instruction.type, facts)
        tag = operands[0].facts.tag
        if tag is not None and tag in self.machine:
            return replace(self.machine[tag])
        if tag == ("simd", 0) and scope.mask is None and instruction.type is MASK:
            return self._code.uniform(ALL_LANES)
        if self._atomics.is_shared(instruction) and not operands[0].facts.is_uniform:
            return self._atomics.access(instruction, operands, scope.mask)
        is_followed = self._is_followed(instruction, scope)
        value = self._memory.load(
            *(instruction, operands[0], scope.mask),
            is_followed=is_followed and id(instruction) in self._reads.first,
            next_row=self._next_row(instruction, scope) if is_followed else None,
        )
        if facts.is_uniform:
            value.facts = facts
        return value

    def _write_store(
        self, instruction: Instruction, operands: list[Value], scope: Scope
    ) -> Value | None:
        if id(instruction) in scope.groups:
            self._store_together(scope.groups[id(instruction)], scope)
            return None
        is_one = all(operand.facts.is_uniform for operand in operands)
        if self._atomics.is_shared(instruction) and not is_one:
            return self._atomics.access(instruction, operands, scope.mask)
        value, address = operands
        is_followed = self._is_followed(instruction, scope)
        self._memory.store(
            *(instruction, value, address, scope.mask),
            is_followed=is_followed,
            is_streamed=self._is_streamed(instruction, scope) if is_followed else None,
        )
        return None

    def _is_streamed(self, store: Instruction, scope: Scope) -> Operand | None:
        """Whether a store in a loop over a row goes past the caches; None where it never does."""
        kind = store.operands[0].type
        if self._kernel.types.parts(kind) or not self._streaming.is_possible(store):
            return None
        length = self._row_length(scope)
        if length is None:
            return None
        return self._streaming.is_large(length, self._kernel.types.size(kind))

    def _row_length(self, scope: Scope) -> Operand | None:
        """Where the loop around a block ends, if that is one number for all lanes."""
        end = self._in_rows[scope.label]
        if end is None:
            return None
        found = self.operand(end if isinstance(end, Operand) else end.pointer, scope)
        if not found.facts.is_uniform:
            return None
        length = self._code.scalar(found)
        if isinstance(end, Instruction):
            mark = INVARIANT if is_invariant(end) else None
            length = self._code.load(end.type, length, end.align, metadata=mark)
        return length

    def _next_row(self, load: Instruction, scope: Scope) -> Operand | None:
        """How many bytes behind a load the next threadgroup's row is; None where nobody knows."""
        kind = load.type
        if id(load) not in self._reads.last or self._kernel.types.parts(kind):
            return None
        if not self._depends_on_group(load.pointer.text):
            return None
        length = self._row_length(scope)
        if length is None:
            return None
        return self._streaming.bytes_to_next(length, self._kernel.types.size(kind))

    def _depends_on_group(self, name: str) -> bool:
        """Whether an address is another one in another threadgroup."""
        seen, rest = set[str](), [name]
        while rest:
            name = rest.pop()
            if name in seen or name not in self._kernel.definitions:
                continue
            seen.add(name)
            tag = self._analysis.facts[name].tag
            if tag is not None and tag[0] == "group_position":
                return True
            rest += self._kernel.definitions[name][1].names
        return False

    def _is_followed(self, access: Instruction, scope: Scope) -> bool:
        """Whether an access to device memory is in a loop over a row."""
        if scope.mask is not None or scope.label not in self._in_rows:
            return False
        name = access.operands[-1].text
        while name in self._kernel.definitions:
            if name in self._inside or self._analysis.facts[name].tag is not None:
                return False  # the threadgroup's, the machine's or the thread's own
            _, step = self._kernel.definitions[name]
            if step.opcode != "getelementptr":
                return True
            name = step.pointer.text
        return True

    def _write_atomic(
        self, instruction: Instruction, operands: list[Value], scope: Scope
    ) -> Value | None:
        if self._atomics.are_together(instruction, operands):
            return self._atomics.together(instruction, operands, scope.mask)
        if not self._atomics.is_alone(instruction):
            is_unseen = instruction.result not in self._used
            if is_unseen and self._atomics.may_be_left(instruction, operands):
                return self._atomics.update_unseen(instruction, operands, scope.mask)
            return self._atomics.access(instruction, operands, scope.mask)
        steps = self._steps(instruction.operands[0].text, scope)
        return self._atomics.update(instruction, operands, steps, scope.mask)

    def _steps(self, pointer: str, scope: Scope) -> Steps | None:
        """An address as a uniform base and an index, where it was computed in one step."""
        definition = self._kernel.definitions[pointer][1]
        if definition.opcode != "getelementptr" or len(definition.operands) != 2:
            return None
        ((index, size),) = self._analysis.rules.steps(definition)
        if index.type is not I64 or not self._at_hand(definition.operands[0], scope):
            return None
        base = self.operand(definition.operands[0], scope)
        if not base.facts.is_uniform:
            return None
        widened = self._kernel.definitions.get(index.text, ("", None))[1]
        if widened is not None and widened.opcode in ("zext", "sext"):
            narrow = widened.operands[0]
            if self._at_hand(narrow, scope):
                return Steps(base, self.operand(narrow, scope), widened.opcode, size)
        if not self._at_hand(index, scope):
            return None
        return Steps(base, self.operand(index, scope), "", size)

    def _at_hand(self, operand: Operand, scope: Scope) -> bool:
        """Whether a value that is no operand of this instruction is available."""
        name = operand.text
        return not operand.is_name or name in scope.values or self._slots.get(name) is not None

    def _write_call(
        self, instruction: Instruction, operands: list[Value], scope: Scope
    ) -> Value | None:
        return self._scaled(instruction, operands, scope) or self._calls.call(
            instruction, operands, scope.mask
        )

    def _scaled(
        self, instruction: Instruction, operands: list[Value], scope: Scope
    ) -> Value | None:
        """x * 2^n, where n is at hand as a float too."""
        if not (instruction.callee or "").startswith(SCALED) or not scaling.has_instruction():
            return None
        found = scaling.float_of(self._kernel, instruction.operands[1])
        if found is None or operands[0].type is not FLOAT or operands[1].facts.is_uniform:
            return None
        shifted, away = found
        if not self._at_hand(shifted, scope):
            return None
        code = self._code
        exponents = code.binary("fadd", code.vector(self.operand(shifted, scope)), away)
        return code.varying(scaling.scaled_by_floats(code, code.vector(operands[0]), exponents))

    def _write_alloca(
        self, instruction: Instruction, operands: list[Value], scope: Scope
    ) -> Value | None:
        if operands:
            raise NotVectorisable("a variable of unknown size")
        assert instruction.result is not None
        facts = self._analysis.facts[instruction.result]
        if instruction.result not in self._arrays:
            assert instruction.element is not None
            size = self._kernel.types.size(instruction.element)
            copy = -(-size // 16) * 16
            room = array(copy * WIDTH, I8)
            self._arrays[instruction.result] = self._code.variable(room, align=64)
        return Value(PTR, facts, self._arrays[instruction.result])

    def _write_fence(
        self, instruction: Instruction, operands: list[Value], scope: Scope
    ) -> Value | None:
        self._code.fence(instruction.ordering)
        return None

    _writers: ClassVar[dict[str, Writer]] = {
        "load": _write_load,
        "store": _write_store,
        "call": _write_call,
        "alloca": _write_alloca,
        "atomicrmw": _write_atomic,
        "cmpxchg": _write_atomic,
        "fence": _write_fence,
    }
