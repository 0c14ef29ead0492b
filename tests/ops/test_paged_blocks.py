"""8-bit floats against torch's, and cache maintenance: append into slots, copies of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import anymetal
from anymetal import ops
from anymetal.ops.declare import variants
from anymetal.ops.declare.kernel_file import FOLDER, KernelFile
from anymetal.ops.paged.formats import FP8

DTYPES = {"float": torch.float32, "half": torch.float16, "bfloat": torch.bfloat16}
KINDS = {"E4m3": torch.float8_e4m3fn, "E5m2": torch.float8_e5m2}
each_kind = pytest.mark.parametrize("kind", KINDS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
each_format = pytest.mark.parametrize("form", ["auto", *FP8])

CONVERSIONS = """
template <typename F>
kernel void decode(device const uchar* x, device float* y, uint i [[thread_position_in_grid]]) {
  y[i] = fp8_to_float<F>(x[i]);
}
template <typename F, typename T, bool saturated>
kernel void encode(device const T* x, device uchar* y, uint i [[thread_position_in_grid]]) {
  y[i] = fp8_from_float<F, saturated>(float(x[i]));
}
#define INSTANCE(name, ...) \\
  template [[host_name(name)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;
#define ENCODE(F, T)                                      \\
  INSTANCE("encode_" #F "_" #T, encode<F, T, false>)      \\
  INSTANCE("saturate_" #F "_" #T, encode<F, T, true>)
#define KIND(F) INSTANCE("decode_" #F, decode<F>) ENCODE(F, float) ENCODE(F, half) ENCODE(F, bfloat)
KIND(E4m3)
KIND(E5m2)
"""


@pytest.fixture(scope="module")
def conversions() -> Any:
    return anymetal.compile_shader(KernelFile(FOLDER / "shared/fp8.h").text + CONVERSIONS)


def encoded(kernel: Callable[..., None], values: torch.Tensor) -> torch.Tensor:
    codes = torch.empty(values.shape, dtype=torch.uint8)
    kernel(values, codes)
    return codes


def same_codes(codes: torch.Tensor, expected: torch.Tensor, values: torch.Tensor) -> None:
    wrong = (codes != expected.view(torch.uint8)).nonzero().flatten()
    assert not len(wrong), (values[wrong[:5]], codes[wrong[:5]], expected[wrong[:5]])


def all_16_bit(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


def float32_around_every_rounding() -> torch.Tensor:
    """Every pattern of the upper 14 bits, with what follows it just below, at and above a tie."""
    upper = torch.arange(-(2**13), 2**13, dtype=torch.int64) << 18
    lower = torch.tensor([0, 1, 2**16, 2**17 - 1, 2**17, 2**17 + 1, 2**18 - 1])
    return (upper[:, None] + lower).flatten().to(torch.int32).view(torch.float32)


# --- conversions ----------------------------------------------------------------------------------


@each_kind
def test_all_codes_become_torchs_floats(conversions: Any, kind: str) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    values = torch.empty(256)
    getattr(conversions, f"decode_{kind}")(codes, values)
    expected = codes.view(KINDS[kind]).float()
    number = ~expected.isnan()
    assert torch.equal(values[number].view(torch.int32), expected[number].view(torch.int32))
    assert values[~number].isnan().all()


@each_kind
@pytest.mark.parametrize("name", DTYPES)
def test_floats_become_torchs_codes(conversions: Any, kind: str, name: str) -> None:
    dtype = DTYPES[name]
    values = float32_around_every_rounding() if name == "float" else all_16_bit(dtype)
    codes = encoded(getattr(conversions, f"encode_{kind}_{name}"), values)
    same_codes(codes, values.to(KINDS[kind]), values)
    largest = torch.finfo(KINDS[kind]).max
    codes = encoded(getattr(conversions, f"saturate_{kind}_{name}"), values)
    same_codes(codes, values.float().clamp(-largest, largest).to(KINDS[kind]), values)


@each_kind
def test_codes_survive_the_way_there_and_back(conversions: Any, kind: str) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    values = torch.empty(256)
    getattr(conversions, f"decode_{kind}")(codes, values)
    back = encoded(getattr(conversions, f"encode_{kind}_float"), values)
    number = ~values.isnan()
    assert torch.equal(back[number], codes[number])
    assert (back[~number] & 0x7F == 0x7F).all()


# --- append ---------------------------------------------------------------------------------------


def caches_for(dtype: torch.dtype, form: str, shape: tuple[int, ...]) -> list[torch.Tensor]:
    kept = dtype if form == "auto" else torch.uint8
    return [torch.full(shape, 77, dtype=kept) for _ in range(2)]


@each_format
@each_dtype
def test_tokens_go_into_their_slots(dtype: torch.dtype, form: str) -> None:
    key, value = (300 * torch.randn(2, 5, 3, 33)).to(dtype)
    slots = torch.tensor([7, -1, 0, 23, 4])
    scales = {"k_scale": torch.tensor([0.3, 1.0, 7.0]), "v_scale": 0.7}
    caches = caches_for(dtype, form, (4, 6, 3, 33))
    expected = [cache.clone() for cache in caches]
    with anymetal.check(outputs=()) as report, variants.recorded() as keys:
        ops.reshape_and_cache(key, value, *caches, slots, kv_cache_dtype=form, **scales)
    assert not report.findings, report
    name = {v: k for k, v in DTYPES.items()}[dtype] if form == "auto" else form
    assert keys[0].endswith(f"/elementwise_{name}/scalar")
    each = (scales["k_scale"][:, None], torch.tensor(0.7))
    for cache, wanted, tensor, scale in zip(caches, expected, (key, value), each, strict=True):
        scaled = tensor.float() / scale
        if form == "auto":
            stored = scaled.to(dtype)
        else:
            largest = torch.finfo(FP8[form]).max
            stored = scaled.clamp(-largest, largest).to(FP8[form]).view(torch.uint8)
        for token, slot in enumerate(slots.tolist()):
            if slot >= 0:
                wanted[slot // 6, slot % 6] = stored[token]
        assert torch.equal(cache, wanted)


def test_caches_of_torchs_8_bit_floats_are_written() -> None:
    key, value = torch.randn(2, 2, 1, 8)
    caches = [torch.zeros(1, 4, 1, 8, dtype=torch.float8_e5m2) for _ in range(2)]
    ops.reshape_and_cache(key, value, *caches, torch.tensor([3, 1]))
    assert torch.equal(caches[0][0, 3].float(), key[0].to(torch.float8_e5m2).float())
    assert torch.equal(caches[1][0, 1].float(), value[1].to(torch.float8_e5m2).float())


def test_parts_of_a_joint_projection_and_strided_caches() -> None:
    joint = torch.randn(5, 4, 3, 16)  # query, query, key and value of a token side by side
    around = torch.zeros(2, 3, 3, 6, 20)
    caches = [around[i].transpose(1, 2)[..., 2:18] for i in range(2)]
    slots = torch.tensor([0, 5, 17, 8, 11], dtype=torch.int32)
    ops.reshape_and_cache(joint[:, 2], joint[:, 3], *caches, slots)
    for token, slot in enumerate(slots.tolist()):
        assert torch.equal(caches[0][slot // 6, slot % 6], joint[token, 2])
        assert torch.equal(caches[1][slot // 6, slot % 6], joint[token, 3])
    assert not around[..., :2].any()
    assert not around[..., 18:].any()
    assert around.count_nonzero() == 2 * 5 * 3 * 16


def test_key_whose_heads_are_not_dense() -> None:
    key = torch.randn(16, 3, 2).permute(2, 1, 0)
    caches = caches_for(torch.float32, "auto", (1, 4, 3, 16))
    ops.reshape_and_cache(key, key, *caches, torch.tensor([2, 0]))
    assert torch.equal(caches[0][0, 2], key[0])


def test_no_tokens_change_nothing() -> None:
    caches = caches_for(torch.float32, "auto", (1, 4, 3, 16))
    none = torch.empty(0, 3, 16)
    ops.reshape_and_cache(none, none, *caches, torch.empty(0, dtype=torch.int64))
    assert (caches[0] == 77).all()


def test_wrong_appends_are_named() -> None:
    key = torch.randn(2, 3, 16)
    caches = caches_for(torch.float32, "auto", (2, 4, 3, 16))
    slots = torch.tensor([0, 1])

    def wrong(
        message: str, *args: Any, error: type[Exception] = ValueError, **options: Any
    ) -> None:
        with pytest.raises(error, match=message):
            ops.reshape_and_cache(*args, **options)

    wrong("holds 8, but 'key_cache' has 8 slots", key, key, *caches, torch.tensor([0, 8]))
    wrong("holds 1 2 times; a slot takes one token", key, key, *caches, torch.tensor([1, 1]))
    wrong(r"'slot_mapping' expects shape \[2\]", key, key, *caches, slots[:1])
    wrong("'slot_mapping' expects int32, int64", key, key, *caches, key[:, 0, 0], error=TypeError)
    wrong(r"'key' expects shape \[tokens, 3, 16\]", key[0], key[0], *caches, slots)
    wrong(r"'value' expects shape \[2, 3, 16\]", key, key[:1], *caches, slots)
    wrong("'value' expects float32", key, key.half(), *caches, slots, error=TypeError)
    wrong("'key' expects float32", key.double(), key.double(), *caches, slots, error=TypeError)
    sideways = [cache.transpose(1, 3) for cache in caches_for(key.dtype, "auto", (2, 16, 3, 4))]
    wrong("the elements of a head must stand side by side", key, key, *sideways, slots)
    repeated = caches[0][:1].expand(2, -1, -1, -1)
    wrong("several elements in one place", key, key, repeated, repeated, slots)
    wrong("'k_scale' expects one number or 3", key, key, *caches, slots, k_scale=torch.ones(2))
    assert all((cache == 77).all() for cache in caches)


def test_slots_on_a_gpu_that_do_not_exist_are_skipped(mps: torch.device) -> None:
    key = torch.randn(4, 3, 16)
    caches = caches_for(torch.float32, "auto", (2, 4, 3, 16))
    slots = torch.tensor([3, 8, -(2**40), 2**40])
    moved = [t.to(mps) for t in (key, key, *caches, slots)]
    ops.reshape_and_cache(*moved)
    result = moved[2].cpu()
    assert torch.equal(result[0, 3], key[0])
    result[0, 3] = 77
    assert (result == 77).all()


# --- blocks ---------------------------------------------------------------------------------------


def numbered(blocks: int, dtype: torch.dtype, size: int = 16) -> torch.Tensor:
    shape = (blocks, 4, 2, size)
    return (
        torch.randint(-100, 100, shape).to(dtype if dtype.itemsize > 1 else torch.float32).to(dtype)
    )


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "vec4": lambda cache: cache,
    "scalar heads first": lambda cache: cache.transpose(1, 2).contiguous().transpose(1, 2),
    "scalar padded": lambda cache: torch.nn.functional.pad(cache, (0, 1))[..., :-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.float8_e4m3fn], ids=str
)
def test_blocks_are_copied_in_every_layer(dtype: torch.dtype, layout: str) -> None:
    whole = [numbered(6, dtype).view(torch.uint8).view(6, 4, 2, -1) for _ in range(4)]
    caches = [LAYOUTS[layout](cache.view(dtype)) for cache in whole]
    expected = [cache.view(torch.uint8).clone() for cache in map(torch.clone, caches)]
    pairs = torch.tensor([[0, 5], [3, 1], [0, 2]])
    with anymetal.check(outputs=()) as report, variants.recorded() as keys:
        ops.copy_blocks(caches[:2], caches[2:], pairs)
    assert not report.findings, report
    assert {key.split("/")[-1] for key in keys} == {layout.split()[0]}
    for cache, wanted in zip(caches, expected, strict=True):
        wanted[pairs[:, 1]] = wanted[pairs[:, 0]]
        assert torch.equal(cache.clone().view(torch.uint8), wanted)


def test_blocks_of_odd_size_are_copied() -> None:
    cache = torch.randn(5, 3, 1, 7)
    expected = cache.clone()
    expected[4] = cache[1]
    ops.copy_blocks([cache], [cache.clone()], [(1, 4)])
    assert torch.equal(cache, expected)


def test_nothing_to_copy() -> None:
    cache = torch.randn(5, 3, 1, 7)
    expected = cache.clone()
    ops.copy_blocks([cache], [cache], [])
    ops.copy_blocks([], [], [])
    ops.swap_blocks(cache, cache, [])
    assert torch.equal(cache, expected)


def test_wrong_copies_are_named() -> None:
    cache = torch.randn(5, 3, 1, 7)
    expected = cache.clone()

    def wrong(message: str, pairs: Any, error: type[Exception] = ValueError) -> None:
        with pytest.raises(error, match=message):
            ops.copy_blocks([cache], [cache.clone()], pairs)

    wrong("holds 5 as a source, which has 5 blocks", [(5, 0)])
    wrong("holds -1 as a target", [(0, -1)])
    wrong("2 pairs with 1 different targets", [(0, 2), (1, 2)])
    wrong("block 2 as a source and as a target", [(0, 2), (2, 3)])
    wrong(r"'block_mapping' expects shape \[pairs, 2\]", torch.tensor([1, 2]))
    wrong("'block_mapping' expects int32, int64", torch.ones(1, 2), TypeError)
    with pytest.raises(ValueError, match="'value_caches' has 0 caches, 'key_caches' 1"):
        ops.copy_blocks([cache], [], [(0, 1)])
    with pytest.raises(TypeError, match=r"'key_caches\[0\]' expects .* got int32"):
        ops.copy_blocks([cache.int()], [cache], [(0, 1)])
    assert torch.equal(cache, expected)


def test_swap_copies_between_caches() -> None:
    source, target = numbered(5, torch.float16), numbered(3, torch.float16)
    expected = target.clone()
    expected[[2, 0]] = source[[4, 1]]
    ops.swap_blocks(source, target, [(4, 2), (1, 0)])
    assert torch.equal(target, expected)
    with pytest.raises(ValueError, match=r"'target' expects shape \[3, 4, 2, 16\]"):
        ops.swap_blocks(source, target[:, :2], [(0, 0)])
    with pytest.raises(TypeError, match="'target' expects float16, got bfloat16"):
        ops.swap_blocks(source, target.bfloat16(), [(0, 0)])
    with pytest.raises(ValueError, match="holds 3 as a target, which has 3 blocks"):
        ops.swap_blocks(source, target, [(0, 3)])
    ops.swap_blocks(source, source, [(0, 4)])
    assert torch.equal(source[4], source[0])


def test_swap_copies_between_devices(mps: torch.device) -> None:
    source, target = numbered(5, torch.float16), numbered(3, torch.float16)
    expected = target.clone()
    expected[[2, 0]] = source[[4, 1]]
    there = target.to(mps)
    ops.swap_blocks(source, there, [(4, 2), (1, 0)])
    assert torch.equal(there.cpu(), expected)
    back = torch.zeros_like(source)
    ops.swap_blocks(there, back, [(2, 3)])
    assert torch.equal(back[3], source[4])
    ops.swap_blocks(there, there, torch.tensor([[2, 1]]).to(mps))
    assert torch.equal(there[1].cpu(), source[4])


# --- what torch asks of an operator ---------------------------------------------------------------


def calls() -> dict[str, tuple[Any, ...]]:
    key, value = torch.randn(2, 3, 2, 16)
    caches = [numbered(4, torch.float32) for _ in range(2)]
    return {
        "reshape_and_cache": (key, value, *caches, torch.tensor([4, 0, 9])),
        "copy_blocks": (caches[:1], caches[1:], torch.tensor([[0, 3]])),
        "swap_blocks": (caches[0], caches[1], torch.tensor([[0, 3]])),
    }


@pytest.mark.parametrize("name", calls())
def test_opcheck_passes(name: str) -> None:
    torch.library.opcheck(getattr(torch.ops.anymetal, name).default, calls()[name])


@pytest.mark.parametrize("name", calls())
def test_gradients_are_refused(name: str) -> None:
    args = calls()[name]
    first = args[0][0] if isinstance(args[0], list) else args[0]
    first.requires_grad_()
    with pytest.raises(RuntimeError, match=f"anymetal::{name} has no gradient: "):
        getattr(torch.ops.anymetal, name)(*args)
    with torch.no_grad():
        getattr(torch.ops.anymetal, name)(*args)


def test_autograd_notices_that_a_cache_was_written() -> None:
    key, value, key_cache, value_cache, slots = calls()["reshape_and_cache"]
    weight = torch.ones_like(key_cache, requires_grad=True)
    product = weight * key_cache
    ops.reshape_and_cache(key, value, key_cache, value_cache, slots)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_append_and_attention_compile_together() -> None:
    key, value, key_cache, value_cache, slots = calls()["reshape_and_cache"]
    tables, lengths = torch.tensor([[0, 1, 2]]), torch.tensor([10])

    def step(key: torch.Tensor, value: torch.Tensor, *caches: torch.Tensor) -> torch.Tensor:
        ops.reshape_and_cache(key, value, *caches, slots)
        return ops.paged_attention(key[:1], *caches, tables, lengths)

    copies = [key_cache.clone(), value_cache.clone()]
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    result = compiled(key, value, *copies)
    assert torch.equal(result, step(key, value, key_cache, value_cache))
    assert torch.equal(copies[0], key_cache)
    torch._dynamo.reset()


def test_inference_mode() -> None:
    with torch.inference_mode():
        inside = calls()["reshape_and_cache"]
        ops.reshape_and_cache(*inside)
    outside = calls()["reshape_and_cache"]
    ops.reshape_and_cache(*outside[:2], *inside[2:4], outside[4])
    assert torch.equal(inside[2][1, 0], outside[0][0])
