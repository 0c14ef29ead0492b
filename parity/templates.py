"""A kernel's name in MLX's metallib -> the headers and the template that it was made of.

MLX instantiates its templates in files that the wheel does not have; the names follow rules, and
the wheel's headers have the templates. A kernel without a rule here is one whose own text is not in
the wheel (norms, rope, random, convolutions), or a family that nobody has written a rule for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

ROOT = "mlx/backend/metal/kernels/"
_T = r"(bool_|u?int(?:8|16|32|64)|b?float16|float32|complex64)"
_F = r"(b?float16_t|float|b?float16|float32|complex64)"
_TYPES = {
    "bool_": "bool",
    "float16": "half",
    "float16_t": "half",
    "bfloat16": "bfloat16_t",
    "float32": "float",
    "complex64": "complex64_t",
}
_COMPARISONS = re.compile(r"(Not|NaN)?Equal|(Greater|Less)(Equal)?|Logical(And|Or)")


@dataclass(frozen=True)
class Template:
    """The headers that a file of MLX includes, and the instance that gets the kernel's name."""

    headers: tuple[str, ...]
    function: str
    arguments: str

    def text(self, kernel: str) -> str:
        """The line that names the instance."""
        instance = f"{self.function}<{self.arguments}>"
        return f'template [[host_name("{kernel}")]] [[kernel]] decltype({instance}) {instance};\n'

    @property
    def prologue(self) -> str:
        return "#include <metal_stdlib>\n" + "".join(
            f'#include "{ROOT}{header}"\n' for header in self.headers
        )


def cpp(name: str) -> str:
    """A type as MLX's names have it, in C++."""
    return _TYPES.get(name, f"{name}_t" if re.fullmatch(r"u?int\d+", name) else name)


def template_of(kernel: str, types: Mapping[str, str]) -> Template | None:
    """The template of a kernel. `types` are those of its buffers by their names, from AIR."""
    for pattern, make in _RULES:
        if match := pattern.fullmatch(kernel):
            return make(match, types)
    return None


class AnyType(dict[str, str]):
    """Types of arguments where only the name of a template matters."""

    def __missing__(self, key: str) -> str:
        return "float"


Rule = Callable[[re.Match[str], Mapping[str, str]], Template | None]
_RULES: list[tuple[re.Pattern[str], Rule]] = []


def _rule(pattern: str) -> Callable[[Rule], Rule]:
    def add(function: Rule) -> Rule:
        _RULES.append((re.compile(pattern), function))
        return function

    return add


# How many elements a thread takes, and the type of indices, by what a name begins with.
_VECTOR_FORMS = {"": ", 1", "2": "", "n": ""}
_GENERAL_FORMS = {
    "gn1": ("_g", ", 1, int"),
    "gn2": ("_g", ", 2, int"),
    "gn4large": ("_g", ", 4"),
    **{f"g{n}": (f"_g_nd{n}", ", int") for n in (1, 2, 3)},
    **{f"g{n}large": (f"_g_nd{n}", "") for n in (1, 2, 3)},
}


def _form(family: str, form: str, arguments: str) -> tuple[str, str]:
    """`vvn` of `binary` is `binary_vv` with as many elements a thread as it likes."""
    if form in _GENERAL_FORMS:
        name, more = _GENERAL_FORMS[form]
        return family + name, arguments + more
    match = re.fullmatch(r"([sv]+)(2|n|)", form)
    assert match is not None, form
    base, kind = match.groups()
    suffix = "2" if kind == "2" else ""
    more = "" if base == "ss" else _VECTOR_FORMS[kind]
    return f"{family}_{base}{suffix}", arguments + more


_FORMS = r"((?:[sv]{1,2})(?:2|n|)|gn?\d(?:large)?)"


@_rule(rf"{_FORMS}_([A-Z]\w*?){_T}{_T}")
def _unary(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    form, operation, source, target = match.groups()
    name, arguments = _form("unary", form, f"{cpp(source)}, {cpp(target)}, {operation}")
    return Template(("utils.h", "unary_ops.h", "unary.h"), name, arguments)


@_rule(rf"{_FORMS}_Select{_T}")
def _ternary(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    form, kind = match.groups()
    headers = ("utils.h", "ternary_ops.h", "ternary.h")
    if form in _GENERAL_FORMS:
        name, arguments = _form("ternary", form, f"{cpp(kind)}, Select")
        return Template(headers, name, arguments)
    scalars = {"v": "false, false", "vs": "false, true", "sv": "true, false"}
    base = form.rstrip("2n")
    if base not in scalars:
        return None
    suffix = "2" if form.endswith("2") else ""
    more = ", 1" if form == base else ""
    arguments = f"{cpp(kind)}, Select, {scalars[base]}{more}"
    return Template(headers, f"ternary_v{suffix}", arguments)


@_rule(rf"{_FORMS}_([A-Z]\w*?){_T}")
def _binary(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    form, operation, kind = match.groups()
    result = "bool" if _COMPARISONS.fullmatch(operation) else cpp(kind)
    name, arguments = _form("binary", form, f"{cpp(kind)}, {result}, {operation}")
    header = "binary_two.h" if operation == "DivMod" else "binary.h"
    return Template(("utils.h", "binary_ops.h", header), name, arguments)


@_rule(rf"([sv](?:2|n|)|gg?n?\d(?:large)?)(_dynamic)?_copy{_T}{_T}")
def _copy(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    form, dynamic, source, target = match.groups()
    arguments = f"{cpp(source)}, {cpp(target)}"
    if form[0] != "g":
        name, arguments = _form("copy", form, arguments)
        return Template(("utils.h", "copy.h"), name, arguments)
    family = "copy_gg" if form.startswith("gg") else "copy_g"
    name, more = _GENERAL_FORMS[form.replace("gg", "g")]
    name = family + ("_dynamic" if dynamic else "") + name.removeprefix("_g")
    return Template(("utils.h", "copy.h"), name, arguments + more)


@_rule(rf"arange{_T}")
def _arange(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    return Template(("utils.h", "arange.h"), "arange", cpp(match[1]))


_REDUCE = ("defines.h", "atomic.h", "utils.h", "reduction/ops.h", "reduce.h")
_OPERATIONS = {"and": "And", "or": "Or", "sum": "Sum", "prod": "Prod", "min": "Min", "max": "Max"}


def _reduction(operation: str, result: str) -> str:
    return f"{_OPERATIONS[operation]}<{result}>"


@_rule(rf"(init|all)_reduce_(and|or|sum|prod|min|max){_T}")
def _reduce_all(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    kind, operation, _ = match.groups()
    result = types["out"]
    operator = _reduction(operation, result)
    if kind == "init":
        return Template(_REDUCE, "init_reduce", f"{result}, {operator}")
    return Template(_REDUCE, "all_reduce", f"{types['in']}, {result}, {operator}")


@_rule(rf"row_reduce_simple_(and|or|sum|prod|min|max){_T}")
def _reduce_simple(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    operator = _reduction(match[1], types["out"])
    return Template(_REDUCE, "row_reduce_simple", f"{types['in']}, {types['out']}, {operator}")


@_rule(
    r"((?:row|col)_reduce_(?:small|looped|longcolumn|2pass))(_large)?_([\d_]+)_reduce_"
    rf"(and|or|sum|prod|min|max){_T}"
)
def _reduce(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    function, large, numbers, operation, _ = match.groups()
    index = "int64_t" if large else "int"
    operator = _reduction(operation, types["out"])
    sizes = numbers.replace("_", ", ")
    arguments = f"{types['in']}, {types['out']}, {operator}, {index}, {sizes}"
    return Template(_REDUCE, function, arguments)


_SCANS = {"sum": "CumSum", "prod": "CumProd", "max": "CumMax", "min": "CumMin"}


@_rule(
    rf"(contig|strided)_scan_(reverse_)?(inclusive|exclusive)_(sum|prod|max|min|logaddexp)_{_T}_{_T}"
)
def _scan(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    kind, reverse, inclusive, operation, source, target = match.groups()
    result = cpp(target)
    operator = f"{_SCANS.get(operation, 'CumLogaddexp')}<{result}>"
    reads = 2 if result in ("int64_t", "uint64_t", "complex64_t") else 4
    flags = ", ".join("true" if flag else "false" for flag in (inclusive == "inclusive", reverse))
    name = "contiguous_scan" if kind == "contig" else "strided_scan"
    arguments = f"{cpp(source)}, {result}, {operator}, {reads}, {flags}"
    return Template(("defines.h", "utils.h", "scan.h"), name, arguments)


@_rule(rf"(n?c)(arg)?_block_sort_{_T}_{_T}_bn(\d+)_tn(\d+)")
def _block_sort(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    form, argument, source, target, threads, each = match.groups()
    flag = "true" if argument else "false"
    arguments = f"{cpp(source)}, {cpp(target)}, {flag}, {threads}, {each}"
    name = "block_sort" if form == "c" else "block_sort_nc"
    return Template(("utils.h", "sort.h"), name, arguments)


@_rule(rf"(sort|partition|merge)_mbsort_{_T}_{_T}_bn(\d+)_tn(\d+)")
def _many_block_sort(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    step, source, target, threads, each = match.groups()
    arguments = f"{cpp(source)}, {cpp(target)}, true, {threads}, {each}"
    return Template(("utils.h", "sort.h"), f"mb_block_{step}", arguments)


@_rule(rf"searchsorted_{_T}_(left|right)")
def _searchsorted(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    flag = "true" if match[2] == "right" else "false"
    headers = ("utils.h", "sort.h", "searchsorted.h")
    return Template(headers, "searchsorted", f"{cpp(match[1])}, {flag}")


@_rule(rf"(block|looped)_(softmax|logsumexp)(_precise)?_{_F}")
def _softmax(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    form, function, precise, kind = match.groups()
    name = {
        ("block", "softmax"): "softmax_single_row",
        ("looped", "softmax"): "softmax_looped",
        ("block", "logsumexp"): "logsumexp",
        ("looped", "logsumexp"): "logsumexp_looped",
    }[form, function]
    more = ", float" if precise else ""
    return Template(("utils.h", f"{function}.h"), name, cpp(kind) + more)


@_rule(rf"(cross_entropy(?:_vjp)?)_{_F}")
def _cross_entropy(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    return Template(("defines.h", "utils.h", "cross_entropy.h"), match[1], cpp(match[2]))


@_rule(rf"dot_product_{_F}_it(\d+)_tg(\d+)_sg(\d+)")
def _dot(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    kind, *sizes = match.groups()
    return Template(("utils.h", "dot.h"), "dot_product", ", ".join([cpp(kind), *sizes]))


# ---- products ------------------------------------------------------------------------------------

_FLAGS = {"0": "false", "1": "true"}
_QUANTISED = ("utils.h", "steel/gemm/gemm.h", "quantized_utils.h", "quantized.h")
_FP_QUANTISED = ("utils.h", "steel/gemm/gemm.h", "quantized_utils.h", "fp_quantized.h")


@_rule(
    rf"(affine|mxfp\d|nvfp4)_([a-z_]+?)(_nt|_nn)?_{_F}_gs_(\d+)_b_(\d+)((?:_[a-zA-Z]+(?:_\w+?)?)*)"
)
def _quantised(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    mode, function, transposed, kind, group, bits, rest = match.groups()
    given = re.findall(r"_(d|batch|pr|hgs|r|nv|kl|spk|alN|bm|bn|bk|wm|wn)_(\d+|true|false)", rest)
    values = [_FLAGS.get(v, v) if n in ("batch", "pr", "hgs") else v for n, v in given]
    if transposed:
        values.append("true" if transposed == "_nt" else "false")
    if rest.endswith("_hgs"):
        values.append("true")
    prefix = "affine" if mode == "affine" else "fp"
    arguments = ", ".join([cpp(kind), group, bits, *values])
    headers = _QUANTISED if mode == "affine" else _FP_QUANTISED
    return Template(headers, f"{prefix}_{function}", arguments)


_GEMV = ("utils.h", "gemv.h")


@_rule(rf"gemv(_t)?_{_F}_bm(\d+)_bn(\d+)_sm(\d+)_sn(\d+)_tm(\d+)_tn(\d+)_nc(\d)_axpby(\d)")
def _gemv(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    transposed, kind, *sizes = match.groups()
    *numbers, batch, axpby = sizes
    arguments = ", ".join([cpp(kind), *numbers, batch, axpby])
    return Template(_GEMV, f"gemv{transposed or ''}", arguments)


@_rule(rf"gemv(_t)?_gather_{_F}_bm(\d+)_bn(\d+)_sm(\d+)_sn(\d+)_tm(\d+)_tn(\d+)")
def _gemv_gather(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    transposed, kind, *numbers = match.groups()
    return Template(_GEMV, f"gemv{transposed or ''}_gather", ", ".join([cpp(kind), *numbers]))


@_rule(rf"gemv_wide(_gather)?_{_F}_nv(\d+)_kl(\d+)")
def _gemv_wide(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    gather, kind, vectors, lanes = match.groups()
    return Template(_GEMV, f"gemv_wide{gather or ''}", f"{cpp(kind)}, {vectors}, {lanes}")


def _sides(letters: str) -> str:
    return ", ".join("true" if letter == "t" else "false" for letter in letters)


_STEEL = ("utils.h", "steel/gemm/gemm.h")
_TILES = r"bm(\d+)_bn(\d+)_bk(\d+)_wm(\d+)_wn(\d+)"


@_rule(rf"steel_gemm_fused_([nt]{{2}})_{_F}_{_F}_{_TILES}")
def _gemm_fused(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    sides, kind, _, *sizes = match.groups()
    arguments = ", ".join([cpp(kind), *sizes, _sides(sides), "float"])
    return Template((*_STEEL, "steel/gemm/kernels/steel_gemm_fused.h"), "gemm", arguments)


@_rule(rf"steel_gemm_splitk_([nt]{{2}})_{_F}_{_F}_{_TILES}_MN_(t|n)aligned_K_(t|n)aligned")
def _gemm_splitk(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    sides, kind, result, *sizes, rows, depth = match.groups()
    arguments = ", ".join([cpp(kind), cpp(result), *sizes, _sides(sides), _sides(rows + depth)])
    headers = (*_STEEL, "steel/gemm/kernels/steel_gemm_splitk.h")
    return Template(headers, "gemm_splitk", arguments)


@_rule(rf"steel_gemm_splitk_accum_{_F}_{_F}(_axbpy)?")
def _splitk_sum(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    result, partial, scaled = match.groups()
    headers = (*_STEEL, "steel/gemm/kernels/steel_gemm_splitk.h")
    name = "gemm_splitk_accum" + ("_axpby" if scaled else "")
    return Template(headers, name, f"{cpp(partial)}, {cpp(result)}")


@_rule(rf"steel_(gather|segmented)_mm(_rhs)?_([nt]{{2}})_{_F}_{_F}_{_TILES}")
def _gemm_gather(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    family, rows, sides, kind, _, *sizes = match.groups()
    arguments = ", ".join([cpp(kind), *sizes, _sides(sides), "float"])
    headers = (*_STEEL, f"steel/gemm/kernels/steel_gemm_{family}.h")
    return Template(headers, f"{family}_mm{rows or ''}", arguments)


@_rule(
    r"steel_gemm_block_outmask_(\w+?)_opmask_(\w+?)_([nt]{2})_"
    rf"{_F}_{_F}_{_TILES}_MN_(t|n)aligned_K_(t|n)aligned"
)
def _gemm_masked(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    out_mask, mask, sides, kind, _, *sizes, rows, depth = match.groups()
    masks = ["nomask_t" if m == "nomask" else cpp(m) for m in (out_mask, mask)]
    arguments = ", ".join([cpp(kind), *masks, *sizes, _sides(sides), _sides(rows + depth)])
    headers = (*_STEEL, "steel/gemm/kernels/steel_gemm_masked.h")
    return Template(headers, "block_masked_gemm", arguments)


@_rule(rf"steel_attention_{_F}_bq(\d+)_bk(\d+)_bd(\d+)_bv(\d+)_wm(\d+)_wn(\d+)_mask(\w+)")
def _attention(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    kind, *sizes, mask = match.groups()
    arguments = ", ".join([cpp(kind), *sizes, cpp(mask), "float"])
    headers = ("utils.h", "steel/attn/attn.h", "steel/attn/kernels/steel_attention.h")
    return Template(headers, "attention", arguments)


@_rule(rf"sdpa_vector_(?:(2pass_1|2pass_2)_)?{_F}_(\d+(?:_\d+)?)(?:_tk(\d))?")
def _sdpa(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    step, kind, sizes, keys = match.groups()
    name = f"sdpa_vector_{step}" if step else "sdpa_vector"
    arguments = ", ".join([cpp(kind), *sizes.split("_"), *([keys] if keys else [])])
    return Template(("utils.h", "sdpa_vector.h"), name, arguments)


# How many heads a simdgroup takes, by how many there are and how long they are.
_HEADS = {("8", "64"): "8", ("8", "128"): "4", ("12", "128"): "4", ("16", "128"): "2"}


@_rule(rf"sdpa_vector_2pass_1_gqa_(\d+)_{_F}_(\d+)_(\d+)")
def _sdpa_grouped(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    heads, kind, depth, width = match.groups()
    arguments = ", ".join([cpp(kind), depth, width, heads, _HEADS[heads, depth]])
    return Template(("utils.h", "sdpa_vector.h"), "sdpa_vector_2pass_1_gqa", arguments)


@_rule(rf"(sdpa_blocked_(?:scale_copy|causal_mask))_{_F}")
def _sdpa_blocked(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    return Template(("utils.h", "sdpa_blocked.h"), match[1], cpp(match[2]))


@_rule(rf"(seq_gated_delta|seq_gated_delta_vjp|gated_delta_fused_chunk)_{_F}_([\d_]+)")
def _gated_delta(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    family, kind, sizes = match.groups()
    name = {
        "seq_gated_delta": "gated_delta_seq",
        "seq_gated_delta_vjp": "gated_delta_vjp_seq",
        "gated_delta_fused_chunk": "gated_delta_fused_chunk",
    }[family]
    header = "gated_delta_update_vjp.h" if "vjp" in family else "gated_delta_update.h"
    arguments = ", ".join([cpp(kind), *sizes.split("_")])
    return Template(("utils.h", header), name, arguments)


@_rule(
    r"gemv(_t)?_outmask_(\w+?)_opmask_(\w+?)_"
    rf"{_F}_bm(\d+)_bn(\d+)_sm(\d+)_sn(\d+)_tm(\d+)_tn(\d+)_nc(\d)"
)
def _gemv_masked(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    transposed, out_mask, mask, kind, *sizes = match.groups()
    masks = ["nomask_t" if m == "nomask" else cpp(m) for m in (out_mask, mask)]
    arguments = ", ".join([cpp(kind), *masks, *sizes])
    return Template(("utils.h", "gemv_masked.h"), f"gemv{transposed or ''}_masked", arguments)


_CONV = ("utils.h", "steel/gemm/mma.h", "steel/conv/conv.h", "steel/conv/params.h")


@_rule(rf"implicit_gemm_conv_2d_{_F}_{_TILES}_channel_(\d|l)_filter_(s|l)")
def _conv_2d(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    kind, *sizes, channels, filter_ = match.groups()
    small = "true" if filter_ == "s" else "false"
    arguments = ", ".join([cpp(kind), *sizes, channels.replace("l", "0"), small])
    headers = (*_CONV, "steel/conv/kernels/steel_conv.h")
    return Template(headers, "implicit_gemm_conv_2d", arguments)


@_rule(rf"implicit_gemm_conv_3d_{_F}_{_TILES}_filter_(s|l)")
def _conv_3d(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    kind, *sizes, filter_ = match.groups()
    arguments = ", ".join([cpp(kind), *sizes, "true" if filter_ == "s" else "false"])
    headers = (*_CONV, "steel/conv/kernels/steel_conv_3d.h")
    return Template(headers, "implicit_gemm_conv_3d", arguments)


@_rule(rf"implicit_gemm_conv_2d_general_{_F}_{_TILES}")
def _conv_general(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    kind, *sizes = match.groups()
    headers = (*_CONV, "steel/conv/kernels/steel_conv_general.h")
    return Template(headers, "implicit_gemm_conv_2d_general", ", ".join([cpp(kind), *sizes]))


_FFT = ("utils.h", "steel/defines.h", "fft.h")


@_rule(r"(fft|rader_fft|bluestein_fft)_mem_(\d+)_(float2?|complex32_t)_(float2?|complex32_t)")
def _fft(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    name, *arguments = match.groups()
    return Template(_FFT, name, ", ".join(arguments))


@_rule(r"four_step_mem_(\d+)_(float2?|complex32_t)_(float2?|complex32_t)_(\d)_(true|false)")
def _four_step(match: re.Match[str], types: Mapping[str, str]) -> Template | None:
    return Template(_FFT, "four_step_fft", ", ".join(match.groups()))
