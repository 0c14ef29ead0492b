"""Matrices of 16-bit elements in threadgroup memory, fetched whole: ldmatrix takes up to four at
once, each lane giving the address of one row. The word that a lane has read by itself stays where
rows may not begin at multiples of 16 bytes, or where a matrix lies elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anymetal.engines.cuda.matrices.places import ALIGNMENT, Place, Places
from anymetal.engines.cuda.matrices.products import Together, columns_of, transposed
from anymetal.engines.cuda.matrices.uses import users
from anymetal.ir import I8, I32, I64, Block, Builder, Function, Instruction, Module, Operand, i32

WORD = "am_matrix_word"
_AT_ONCE = 4
_THREAD = "llvm.nvvm.read.ptx.sreg.tid.x"
_WRITING = frozenset(("store", "fence", "atomicrmw", "cmpxchg"))
_SILENT = ("llvm.nvvm.read.", "llvm.fma", "llvm.fmuladd", "llvm.umin", "llvm.umax", WORD)


@dataclass(frozen=True)
class _Fetch:
    """A matrix that is wanted: the name of a lane's word of it, and where it lies."""

    result: str
    offset: int
    at: int  # in its block


@dataclass(frozen=True)
class _Kind:
    """Fetches that one instruction can do."""

    base: Operand
    row_bytes: int
    is_transposed: bool


def fetch_matrices(
    module: Module, function: Function, as_columns: set[str], together: Together
) -> set[int]:
    """Answers am_matrix_word; `as_columns` are words that are wanted transposed, `together` those
    that should be neighbours. Returns how many bytes rows are apart that are fetched at once."""
    places, using = Places(function), users(function)
    distances: set[int] = set()
    for block in function.blocks:
        if any(i.callee == WORD or i.result in as_columns for i in block.instructions):
            fetcher = _Fetcher(function, places, using, as_columns, together)
            fetcher.rewrite(block)
            distances |= fetcher.distances
    for count in (1, 2, _AT_ONCE):
        for how in ("", ".trans"):
            result = "i32" if count == 1 else f"{{ {', '.join(['i32'] * count)} }}"
            module.parts.append(f"declare {result} @{_intrinsic(count, how)}(ptr addrspace(3))")
    module.declare(_THREAD, I32)
    for place, part in enumerate(module.parts):
        if isinstance(part, str) and part.startswith("@_ZN9am_shared"):
            module.parts[place] = _aligned(part)
    return distances


def _intrinsic(count: int, how: str) -> str:
    return f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{how}.b16.p3"


def _aligned(line: str) -> str:
    """A threadgroup variable at a multiple of 16 bytes at least."""
    head, alignment = line.rsplit(", align ", 1)
    return f"{head}, align {max(int(alignment), ALIGNMENT)}"


class _Fetcher:
    """One block. Matrices of one kind are fetched with the first of them, if nothing can have
    written to memory in between."""

    def __init__(
        self,
        function: Function,
        places: Places,
        using: dict[str, list[Instruction]],
        as_columns: set[str],
        together: Together,
    ) -> None:
        self._together = together
        self._function = function
        self._places = places
        self._using = using
        self._as_columns = as_columns
        self.distances: set[int] = set()  # bytes between rows that are fetched at once

    def rewrite(self, block: Block) -> None:
        made: list[Instruction] = []
        fetched = self._groups(block)
        for at, instruction in enumerate(block.instructions):
            for kind, fetches in fetched.get(at, ()):
                self._emit(kind, fetches, made)
            if instruction.callee != WORD:
                made.append(instruction)
            elif self._kinds(instruction):
                continue
            else:
                own = instruction.operands[3].text
                made.append(Instruction(f"{instruction.result} = or i32 {own}, 0"))
            if instruction.result in self._as_columns:
                made.append(transposed(str(instruction.result)))
        block.instructions = made

    def _groups(self, block: Block) -> dict[int, list[tuple[_Kind, list[_Fetch]]]]:
        """What is fetched before which instruction."""
        found: dict[int, list[tuple[_Kind, list[_Fetch]]]] = {}
        open_: dict[_Kind, list[_Fetch]] = {}

        def close() -> None:
            for kind, fetches in open_.items():
                for group in _grouped(fetches, self._together):
                    first = min(one.at for one in group)
                    found.setdefault(first, []).append((kind, group))
            open_.clear()

        for at, instruction in enumerate(block.instructions):
            if _may_write(instruction):
                close()
            elif instruction.callee == WORD:
                for kind, result, offset in self._kinds(instruction):
                    open_.setdefault(kind, []).append(_Fetch(result, offset, at))
        close()
        return found

    def _kinds(self, call: Instruction) -> list[tuple[_Kind, str, int]]:
        """How a matrix is fetched: as it is, with rows and columns exchanged, or both; the name of
        the word, and where the matrix lies."""
        name = str(call.result)
        pointer, row_bytes, is_transposed, _ = call.operands
        place = self._places.of(pointer)
        if place is None or not _is_whole(place, row_bytes) or is_transposed.integer is None:
            return []
        wanted = [(name, bool(is_transposed.integer))] if name in self._using else []
        if name in self._as_columns:
            wanted.append((columns_of(name), not is_transposed.integer))
        return [
            (_Kind(place.base, row_bytes.integer or 0, how), result, place.offset)
            for result, how in wanted
        ]

    def _emit(self, kind: _Kind, fetches: list[_Fetch], made: list[Instruction]) -> None:
        """Two or four matrices at once; of three, the last by itself."""
        while fetches:
            count = 1 << (len(fetches).bit_length() - 1)
            self._emit_together(kind, fetches[:count], made)
            fetches = fetches[count:]

    def _emit_together(self, kind: _Kind, fetches: list[_Fetch], made: list[Instruction]) -> None:
        """Lane l gives the address of row l % 8 of matrix l / 8."""
        self.distances.add(kind.row_bytes)
        build = Builder(self._function.fresh, into=made)
        lane = build.and_(build.call(I32, _THREAD), i32(31))
        row = build.mul(build.and_(lane, i32(7)), i32(kind.row_bytes))
        first = fetches[0].offset
        distances = [one.offset - first for one in fetches]
        distance = _chosen(build, build.lshr(lane, i32(3)), distances)
        within = build.cast("sext", build.add(row, distance), I64)
        base = build.offset(build.gep(I8, kind.base, within), first)
        shared = self._function.fresh("am")
        made.append(Instruction(f"{shared} = addrspacecast ptr {base.text} to ptr addrspace(3)"))
        intrinsic = _intrinsic(len(fetches), ".trans" if kind.is_transposed else "")
        made += _fetched(self._function.fresh("am"), intrinsic, shared, fetches)


def _grouped(fetches: list[_Fetch], together: Together) -> list[list[_Fetch]]:
    """Up to four at once; those that an instruction takes together side by side."""
    by_name = {one.result: one for one in fetches}
    units: dict[int, list[list[_Fetch]]] = {}
    for names in together:
        if all(name in by_name for name in names):
            units.setdefault(len(names), []).append([by_name.pop(name) for name in names])
    units.setdefault(1, []).extend([one] for one in by_name.values())
    found = []
    for size, listed in units.items():
        step = max(_AT_ONCE // size, 1)
        for first in range(0, len(listed), step):
            found.append([one for unit in listed[first : first + step] for one in unit])
    return found


def _fetched(
    name: str, intrinsic: str, address: str, fetches: list[_Fetch]
) -> Iterator[Instruction]:
    if len(fetches) == 1:
        yield Instruction(
            f"{fetches[0].result} = call i32 @{intrinsic}(ptr addrspace(3) {address})"
        )
        return
    kind = f"{{ {', '.join(['i32'] * len(fetches))} }}"
    yield Instruction(f"{name} = call {kind} @{intrinsic}(ptr addrspace(3) {address})")
    for number, one in enumerate(fetches):
        yield Instruction(f"{one.result} = extractvalue {kind} {name}, {number}")


def _chosen(build: Builder, matrix: Operand, distances: list[int]) -> Operand:
    """distances[matrix]; of too large a number any of them."""
    if len(distances) == 1:
        return i32(distances[0])
    half = len(distances) // 2
    low, high = (_chosen(build, matrix, part) for part in (distances[:half], distances[half:]))
    bit = build.and_(matrix, i32(half))
    return build.select(build.icmp("ne", bit, i32(0)), high, low)


def _is_whole(place: Place, row_bytes: Operand) -> bool:
    """Whether each row begins at a multiple of 16 bytes."""
    return (
        place.multiple % ALIGNMENT == 0
        and place.offset % ALIGNMENT == 0
        and row_bytes.integer is not None
        and row_bytes.integer % ALIGNMENT == 0
    )


def _may_write(instruction: Instruction) -> bool:
    if instruction.opcode != "call":
        return instruction.opcode in _WRITING or instruction.opcode in ("br", "switch", "ret")
    if instruction.callee is None:
        return " memory(none)" not in instruction.text
    return not instruction.callee.startswith(_SILENT)
