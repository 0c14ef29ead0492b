"""AIR as LLVM prints it -> IR of our machine, line by line.

Address spaces go, since there is one memory here; so does what Apple's optimiser may assume and our
front end does not: that signed integers never overflow, that buffers never overlap, that types tell
aliases apart, that loops end. A threadgroup variable becomes a call that gives its storage. A
simdgroup's matrix, <64 x T> of which a lane has the first two elements, becomes <2 x T>.

Each line that comes out knows the line of AIR that it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from anymetal.errors import MetallibError
from anymetal.ir import Layout, Module, Signature, parse, read_signature
from anymetal.ir.tokens import Reader

_SPACE = re.compile(r" ?addrspace\(\d+\)")
# Numbers must count up from line to line, and passes move lines: values and labels get names.
_UNNAMED = re.compile(r"%(\d+)\b")
_LABEL = re.compile(r"^(\d+):")
_POINTERS = re.compile(r"@(llvm\.[a-z.]+?)((?:\.p\d+)+)\b")
_ATTACHED = re.compile(r", !(?!llvm\.loop )[\w.]+ !(?:\d+|\{[^}]*\}|DI\w+\([^)]*\))")
_GROUPS = re.compile(r" #\d+(?=$|,| \{)")
_WRAPPING = re.compile(r"(= (?:add|sub|mul|shl|trunc))(?: nuw)?(?: nsw)? ")
_FAST = re.compile(r"\b(f(?:add|sub|mul|div|rem|neg|cmp)|call|select|phi) fast ")
_FINITE = re.compile(r"\b(?:nnan|ninf) ")
_ASSUMED = re.compile(
    r" (?:noundef|nonnull|noalias|nocapture|readonly|writeonly|readnone|returned"
    r"|dereferenceable(?:_or_null)?\(\d+\)|captures\([^)]*\)|range\([^)]*\)|align \d+(?= [%@]))"
)
_SHARED = re.compile(r"^(@(?:\"[^\"]*\"|[-\w.$]+)) = .*?addrspace\(3\) (?:global|constant) ")
_SHUFFLE = re.compile(r", <(\d+) x i32> (<[^>]*>|zeroinitializer|poison|undef)$")
_EXPRESSION = re.compile(
    r"\b((?:getelementptr(?: inbounds| nuw| nusw)*)|bitcast|ptrtoint|inttoptr|add|sub|trunc) \("
)
_DROPPED = ("source_filename", "target ", "attributes ", ";", "@llvm.compiler.used", "@llvm.used")
_LANE_ELEMENTS = 2
STORAGE = "am_threadgroup_storage"


@dataclass(frozen=True)
class Line:
    """A line of text and the number of the line of AIR it comes from; 0 where there is none."""

    text: str
    number: int = 0


@dataclass(frozen=True)
class SharedVariable:
    """A threadgroup variable: its name in AIR, its number, its extent."""

    name: str
    slot: int
    size: int
    align: int


@dataclass
class Rewritten:
    """A module's text by parts."""

    lines: list[Line] = field(default_factory=list)  # types, globals
    functions: list[RewrittenFunction] = field(default_factory=list)
    declared: dict[str, Signature] = field(default_factory=dict)
    shared: list[SharedVariable] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)  # nodes that say how loops may be unrolled


@dataclass
class RewrittenFunction:
    """A function's head without its attributes, and its lines."""

    signature: Signature
    number: int
    body: list[Line] = field(default_factory=list)
    matrices: set[str] = field(default_factory=set)  # its variables that hold such


def rewrite(text: str) -> Rewritten:
    """The module without what belongs to Apple's machine."""
    module = parse(text)
    found = Rewritten(loops=list(_loop_nodes(module)))
    function: RewrittenFunction | None = None
    for number, raw in enumerate(text.split("\n"), 1):
        if match := _SHARED.match(raw):
            found.shared.append(_shared(module.layout(), raw, match[1], len(found.shared)))
        elif not raw or raw.startswith(_DROPPED) or raw[0] == "!":
            continue
        elif raw.startswith("declare "):
            signature = read_signature(_erased(raw))
            found.declared[signature.name] = signature
        elif raw.startswith("define "):
            function = RewrittenFunction(read_signature(_erased(raw)), number)
        elif raw == "}" and function is not None:
            found.functions.append(function)
            function = None
        elif function is not None:
            if not function.body and raw[0] == " ":
                function.body.append(Line(_entry_label(function.signature)))
            if " = alloca " in raw and "<64 x " in raw:
                function.matrices.add(raw.split()[0])
            _refuse_matrix_copy(raw, function.matrices)
            if "@llvm.dbg." not in raw and not raw.lstrip().startswith("#dbg"):
                function.body.append(Line(_instruction(raw), number))
        else:
            found.lines.append(Line(_erased(raw), number))
    tensor_bytes = _tensor_bytes(text)
    for one in found.functions:
        _fix_tensors(one, tensor_bytes)
        _hoist(one, found.shared)
    return found


def _entry_label(signature: Signature) -> str:
    """The first block has no label in print; its number follows those of the parameters."""
    numbers = (re.fullmatch(r"%v(\d+)", one.name) for one in signature.parameters)
    return f"v{max((int(n[1]) for n in numbers if n), default=-1) + 1}:"


def _erased(line: str) -> str:
    line = _UNNAMED.sub(r"%v\1", _SPACE.sub("", line))
    line = _POINTERS.sub(lambda m: f"@{m[1]}{'.p0' * m[2].count('.p')}", line)
    return _GROUPS.sub("", _narrowed(line.replace("addrspacecast", "bitcast")))


def _instruction(line: str) -> str:
    if line[0] != " ":
        return _LABEL.sub(r"v\1:", line.split(" ;")[0].rstrip())
    line = _ATTACHED.sub("", line)
    line = _WRAPPING.sub(r"\1 ", _erased(line))
    line = _FAST.sub(r"\1 reassoc nsz arcp contract afn ", line)
    if " call " in line:
        line = _ASSUMED.sub("", line)
    return _FINITE.sub("", line)


def _loop_nodes(module: Module) -> Iterator[str]:
    """The nodes that branches name, and what these name; none says that a loop must end."""
    nodes = module.nodes()
    waiting = [
        name
        for name, text in nodes.items()
        if text.startswith(f"distinct !{{{name}") and "air-alias" not in text
    ]
    seen = set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        text = nodes[name].replace("llvm.loop.mustprogress", "anymetal.loop")
        yield f"{name} = {text}"
        waiting += re.findall(r"!\d+", text)


# ---- matrices ------------------------------------------------------------------------------------


def _narrowed(line: str) -> str:
    """<64 x T> with its first two elements only."""
    if "<64 x " not in line:
        return line
    match = _SHUFFLE.search(line)
    if match is not None and "shufflevector" in line:
        line = line[: match.start()] + _shuffled(line, int(match[1]), match[2])
    line = re.sub(
        r"(<64 x \w+> )<([^<>]*)>",
        lambda m: f"{m[1]}<{', '.join(m[2].split(', ')[:_LANE_ELEMENTS])}>",
        line,
    )
    return line.replace("<64 x ", f"<{_LANE_ELEMENTS} x ")


def _shuffled(line: str, count: int, mask: str) -> str:
    """The mask of a shuffle that takes from matrices, or makes one, for two elements each."""
    words = ["0"] * count
    if mask in ("poison", "undef"):
        words = ["poison"] * count
    elif mask.startswith("<"):
        words = [item.split()[-1] for item in mask.strip("<>").split(", ")]
    kept = words[:_LANE_ELEMENTS] if count == 64 else words
    if "shufflevector <64 x" in line:
        kept = [_place(word) for word in kept]
    return f", <{len(kept)} x i32> <{', '.join(f'i32 {word}' for word in kept)}>"


def _place(word: str) -> str:
    """An element of two matrices of 64 as one of two matrices of two."""
    if not word.isdigit():
        return word
    matrix, element = divmod(int(word), 64)
    if element >= _LANE_ELEMENTS:
        return "poison"
    return str(matrix * _LANE_ELEMENTS + element)


def _refuse_matrix_copy(raw: str, matrices: set[str]) -> None:
    """A copy's length is in bytes: one of matrices would be too long."""
    if "@llvm.mem" in raw and matrices.intersection(re.findall(r"%[-\w.$]+", raw)):
        raise MetallibError(f"simdgroup matrices are copied by bytes: {raw.strip()}")


# ---- cooperative tensors -------------------------------------------------------------------------

_DATA_SIZE = re.compile(
    r"call i64 @__tensorops_impl_matmul2d_op_cooperative_tensor_data_size\(([^)]*)\)"
)
_TENSOR = re.compile(r"^(  %[-\w.$]+ = alloca) i8, i64 %[-\w.$]+, align \d+$")
_LANES = 32
# A tensor in memory: its address, and lengths and strides of up to 16 dimensions.
_VIEWS, _VIEW_BYTES = "@air.get_descriptor_size_tensor(", 16 + 8 * 16


def _tensor_bytes(text: str) -> int:
    """The most bytes that a lane needs for a tensor of this module, 0 where there are none."""
    sizes = [_lane_bytes(match[1]) for match in _DATA_SIZE.finditer(text)]
    return max([_VIEW_BYTES, *sizes] if _VIEWS in text else sizes, default=0)


def _lane_bytes(arguments: str) -> int:
    words = [argument.split()[-1] for argument in arguments.split(", ")]
    if any(word.startswith("%") for word in words[:-1]):
        raise MetallibError(f"a cooperative tensor of a size that is not constant: {arguments}")
    operand, m, n, k = (int(word) for word in words[:4])
    elements = (m * k, n * k, m * n)[operand]
    return elements * (int(words[8 + operand]) & 0xFF) // 8 // _LANES


def _fix_tensors(function: RewrittenFunction, size: int) -> None:
    """Memory for tensors has the same size for all of them, and stands at the start: what is
    allocated where control comes by again would pile up."""
    made = [line for line in function.body if size and _TENSOR.match(line.text)]
    fixed = [
        Line(_TENSOR.sub(rf"\1 [{size} x i8], align 16", line.text), line.number) for line in made
    ]
    rest = [line for line in function.body if line not in made]
    function.body = [rest[0], *fixed, *rest[1:]]


# ---- threadgroup variables -----------------------------------------------------------------------


def _shared(layout: Layout, line: str, name: str, slot: int) -> SharedVariable:
    reader = Reader(line.partition(" addrspace(3) ")[2])
    reader.next()
    kind = reader.type()
    align = re.search(r", align (\d+)", line)
    size = layout.size(kind)
    return SharedVariable(name, slot, size, int(align[1]) if align else layout.align(kind))


def _hoist(function: RewrittenFunction, variables: Sequence[SharedVariable]) -> None:
    """Gets the storage of each variable at the start; constant expressions on it follow there."""
    start: list[str] = []
    for one in variables:
        used = re.compile(re.escape(one.name) + r"(?![-\w.$])")
        value = f"%am.shared.{one.slot}"
        if not any(used.search(line.text) for line in function.body):
            continue
        given = f"i32 {one.slot}, i64 {one.size}, i64 {one.align}"
        start.append(f"  {value} = call ptr @{STORAGE}({given})")
        function.body = [Line(used.sub(value, line.text), line.number) for line in function.body]
    if not start:
        return
    known: dict[str, str] = {}
    lines = [Line(_unfolded(line.text, known), line.number) for line in function.body]
    start += [f"  {name} = {text}" for text, name in known.items()]
    number = function.number
    function.body = [lines[0], *(Line(text, number) for text in start), *lines[1:]]


def _unfolded(line: str, known: dict[str, str]) -> str:
    """The line with names for the innermost constant expressions on storage, and so on outwards."""
    while True:
        found = next(_expressions(line), None)
        if found is None:
            return line
        start, end, text = found
        name = known.setdefault(text, f"%am.place.{len(known)}")
        line = line[:start] + name + line[end:]


def _expressions(line: str) -> Iterator[tuple[int, int, str]]:
    for match in _EXPRESSION.finditer(line):
        depth, end = 1, match.end()
        while depth:
            depth += (line[end] == "(") - (line[end] == ")")
            end += 1
        inner = line[match.end() : end - 1]
        if "%am." in inner and not _EXPRESSION.search(inner):
            text = f"{match[1]} {inner}"
            if match[1] in ("add", "sub"):  # the second type goes
                text = re.sub(r", i\d+ ", ", ", text)
            yield match.start(), end, text
