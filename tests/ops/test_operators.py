"""Every operator, every dtype: results and gradients against float64, and what torch asks of one.

The operators come from their declarations: a new one is tested here without a line added.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from judging import called, converted, differentiable, doubled, judge, tensors_of

import anymetal
import anymetal.ops
from anymetal.ops.declare import OPERATORS as DECLARED
from anymetal.ops.declare import AnyOperator, Case

CPU = torch.device("cpu")
# Those of other rooms, such as linalg, have tests of their own.
OPERATORS = {n: o for n, o in DECLARED.items() if o.__module__.startswith("anymetal.ops.")}
DIFFERENTIABLE = [name for name, operator in OPERATORS.items() if operator.differentiable]
DTYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
# They take only caches with dense heads: a cache is not copied.
ON_CACHES = {"reshape_and_cache", "copy_blocks", "swap_blocks"}
each_operator = pytest.mark.parametrize("name", OPERATORS)
each_differentiable = pytest.mark.parametrize("name", DIFFERENTIABLE)


def in_dtypes(names: Iterable[str]) -> pytest.MarkDecorator:
    """Every operator in float32 and in one narrower dtype; in both with ANYMETAL_TEST_ALL=1."""
    narrow = [dtype for dtype in DTYPES if dtype is not torch.float32]

    def dtypes_of(name: str) -> list[torch.dtype]:
        if os.environ.get("ANYMETAL_TEST_ALL") == "1":
            return list(DTYPES)
        family = name.removesuffix("_backward")  # shares its kernels
        return [torch.float32, narrow[zlib.crc32(family.encode()) % len(narrow)]]

    values = [(name, dtype) for name in names for dtype in dtypes_of(name)]
    ids = [f"{DTYPES[dtype]}-{name}" for name, dtype in values]
    return pytest.mark.parametrize(("name", "dtype"), values, ids=ids)


@pytest.fixture(autouse=True)
def poisoned_outputs() -> Iterator[None]:
    """torch.empty gives NaN, so that an element no kernel writes is seen."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


def test_poison_works() -> None:
    assert torch.empty(5).isnan().all()


def made(case: Case, dtype: torch.dtype) -> tuple[list[Any], dict[str, Any]]:
    return case.make(dtype, CPU, torch.Generator().manual_seed(zlib.crc32(case.name.encode())))


def own(operator: AnyOperator) -> Any:
    """Torch's own function, or the composition that the reference is."""
    return operator.baseline or operator.reference


def exact_call(operator: AnyOperator, args: list[Any], keywords: dict[str, Any]) -> Any:
    doubles = {name: doubled(value) for name, value in keywords.items()}
    return operator.outcome(operator.reference, doubled(args), doubles)


def fresh(value: Any) -> Any:
    """Tensors that an operator may mutate."""
    return converted(value, torch.clone)


def results_of(operator: AnyOperator, args: list[Any], keywords: dict[str, Any]) -> Any:
    return operator.outcome(operator, args, keywords)


def own_results(operator: AnyOperator, args: list[Any], keywords: dict[str, Any]) -> Any:
    named = {name: fresh(value) for name, value in keywords.items()}
    return operator.outcome(own(operator), fresh(args), named)


def some(operator: AnyOperator, count: int) -> list[Case]:
    """A few cases that have elements, from the first to the last."""
    filled = [case for case in operator.cases if _filled(case)]
    step = max(1, (len(filled) - 1) // max(1, count - 1))
    return list(reversed(filled[::-1][::step][:count]))


def cases_of(operator: AnyOperator, dtype: torch.dtype) -> list[Case]:
    """All in float32; in half the last with elements, in bfloat the first, and the empty ones:
    a case of theirs differs in its kernels alone, whose arithmetic is float32's. `make thorough`
    takes all."""
    if dtype is torch.float32 or os.environ.get("ANYMETAL_TEST_ALL") == "1":
        return list(operator.cases)
    chosen = some(operator, 2)[-1 if dtype is torch.float16 else 0]
    return [chosen, *(case for case in operator.cases if not _filled(case))]


def gradient_cases_of(operator: AnyOperator, dtype: torch.dtype) -> list[Case]:
    """Likewise, in float32 three of those with elements: a gradient has several kernels a case."""
    cases = cases_of(operator, dtype)
    if dtype is not torch.float32 or os.environ.get("ANYMETAL_TEST_ALL") == "1":
        return cases
    chosen = some(operator, 3)
    return [case for case in cases if case in chosen or not _filled(case)]


def _filled(case: Case) -> bool:
    args, _ = made(case, torch.float32)
    return all(tensor.numel() for tensor in tensors_in(args))


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list):
            yield from tensors_in(value)


@each_operator
def test_operator_has_cases_with_and_without_elements(name: str) -> None:
    cases = OPERATORS[name].cases
    filled = [_filled(case) for case in cases]
    assert any(filled)
    assert not all(filled)


@in_dtypes(OPERATORS)
def test_result_is_as_near_to_float64_as_torchs(name: str, dtype: torch.dtype) -> None:
    operator = OPERATORS[name]
    for case in cases_of(operator, dtype):
        args, keywords = made(case, dtype)
        judge(
            results_of(operator, fresh(args), keywords),
            exact_call(operator, args, keywords),
            own_results(operator, args, keywords),
            f"{name} {case.name}",
        )


@in_dtypes(DIFFERENTIABLE)
def test_gradient_is_as_near_to_float64_as_torchs(name: str, dtype: torch.dtype) -> None:
    operator = OPERATORS[name]
    for case in gradient_cases_of(operator, dtype):
        args, keywords = made(case, dtype)
        doubles = doubled(args)
        double_keywords = {key: doubled(value) for key, value in keywords.items()}
        judge(
            called(operator, args, keywords, operator),
            called(operator.reference, doubles, double_keywords, operator),
            called(own(operator), args, keywords, operator),
            f"gradient of {name} {case.name}",
        )


@each_operator
def test_operator_has_a_gradient_or_says_why_not(name: str) -> None:
    operator = OPERATORS[name]
    args, keywords = made(some(operator, 1)[0], torch.float32)
    args = with_gradients(operator, args)
    reason = f"anymetal::{name} has no gradient: "
    if operator.mutates and not operator.differentiable:
        with pytest.raises(RuntimeError, match=reason):
            operator(*args, **keywords)
        return
    results = results_of(operator, args, keywords)
    outputs = [out for out in tensors_of(results) if out.requires_grad]
    assert outputs
    total = sum((out.sum() for out in outputs), start=torch.zeros(()))
    if operator.differentiable:
        total.backward()
    else:
        with pytest.raises(RuntimeError, match=reason):
            total.backward()


def with_gradients(operator: AnyOperator, args: list[Any]) -> list[Any]:
    """Arguments that require gradients; what is mutated may be no leaf."""

    def required(tensor: torch.Tensor) -> torch.Tensor:
        leaf = tensor.requires_grad_()
        return leaf * 1 if operator.mutates else leaf

    required_args: list[Any] = converted(args, required)
    return required_args


@each_operator
def test_opcheck_passes(name: str) -> None:
    operator = OPERATORS[name]
    args, keywords = made(some(operator, 2)[-1], torch.float32)
    if operator.differentiable:
        args = with_gradients(operator, args)
    overload = getattr(torch.ops.anymetal, name).default
    torch.library.opcheck(overload, tuple(args), keywords)


@each_differentiable
def test_compiled_call_and_gradient_are_the_same(name: str) -> None:
    operator = OPERATORS[name]
    args, keywords = made(some(operator, 2)[-1], torch.float32)
    # aot_eager traces forward and backward as the default backend does, and needs no compiler.
    compiled = torch.compile(
        lambda *args: operator(*args, **keywords), fullgraph=True, backend="aot_eager"
    )
    once = operator.outcome(compiled, fresh(args), {})
    again = results_of(operator, fresh(args), keywords)
    for mine, eager in zip(tensors_of(once), tensors_of(again), strict=True):
        torch.testing.assert_close(mine, eager, rtol=0, atol=0, equal_nan=True)
    gradients = called(compiled, args, {}, operator)
    for mine, eager in zip(gradients, called(operator, args, keywords, operator), strict=False):
        torch.testing.assert_close(mine, eager, rtol=0, atol=0, equal_nan=True)
    torch._dynamo.reset()


@each_operator
def test_checker_is_silent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYMETAL_CHECK_LEVEL", "0")  # no finding depends on optimisation
    operator = OPERATORS[name]
    for case, start in zip(some(operator, 2), (1, 0), strict=False):
        args, keywords = made(case, torch.bfloat16)
        # An element further on, vectors are not aligned: the kernels that take one at a time.
        args = converted(args, lambda tensor, by=start: offset(tensor, by)[0])
        with anymetal.check(outputs=() if operator.in_part else None) as report:
            operator(*args, **keywords)
        assert not report.findings, report


@each_operator
def test_virtual_mps_gives_the_same(name: str, mps: torch.device) -> None:
    """In one case: what the device adds depends on no shape, and every kernel is compiled again."""
    operator = OPERATORS[name]
    args, keywords = made(some(operator, 1)[0], torch.float32)
    moved = _moved(args, mps)
    named = {key: _moved(value, mps) for key, value in keywords.items()}
    if operator.differentiable:
        same(
            called(operator, moved, named, operator),
            called(operator, args, keywords, operator),
        )
    same(results_of(operator, moved, named), results_of(operator, args, keywords))


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, list):
        return [_moved(item, device) for item in value]
    return value.to(device) if isinstance(value, torch.Tensor) else value


def same(on_mps: Any, on_cpu: Any) -> None:
    for theirs, ours in zip(tensors_of(on_mps), tensors_of(on_cpu), strict=True):
        assert theirs.is_mps
        torch.testing.assert_close(theirs.cpu(), ours, rtol=0, atol=0, equal_nan=True)


def offset(tensor: torch.Tensor, elements: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """The same values `elements` into a larger tensor of NaN, and that larger tensor."""
    around = torch.full((tensor.numel() + 2 * elements,), float("nan"), dtype=tensor.dtype)
    inside = around[elements : elements + tensor.numel()].view(tensor.shape)
    return inside.copy_(tensor), around


@each_operator
def test_offset_views_over_a_sentinel(name: str) -> None:
    operator = OPERATORS[name]
    for case in some(operator, 2):
        args, keywords = made(case, torch.float16)
        exact = exact_call(operator, args, keywords)
        torchs = own_results(operator, args, keywords)
        outside: list[torch.Tensor] = []

        def inside(tensor: torch.Tensor, kept: list[torch.Tensor] = outside) -> torch.Tensor:
            view, around = offset(tensor)
            kept += [around[:1], around[-1:]] if operator.mutates else [around]
            return view

        moved = converted(args, inside)
        before = [around.clone() for around in outside]
        where = f"{name} {case.name} at an offset"
        judge(results_of(operator, moved, keywords), exact, torchs, where)
        for old, new in zip(before, outside, strict=True):
            assert torch.equal(old.view(torch.int16), new.view(torch.int16))


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(0, -1).contiguous().transpose(0, -1) if tensor.dim() > 1 else tensor


def every_other(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() == 0:
        return tensor
    return torch.stack([tensor, torch.full_like(tensor, float("nan"))], -1)[..., 0]


def padded(tensor: torch.Tensor) -> torch.Tensor:
    """Rows with three elements of something else behind each."""
    if tensor.dim() == 0:
        return tensor
    return torch.nn.functional.pad(tensor, (0, 3), value=float("nan"))[..., : tensor.shape[-1]]


def _strided_heads(args: list[Any]) -> bool:
    """Whether a cache has heads whose elements do not stand side by side."""
    caches = (tensor for tensor in tensors_in(args) if tensor.dim() == 4)
    return any(cache.shape[-1] > 1 and cache.stride(-1) != 1 for cache in caches)


@pytest.mark.parametrize("strides", [transposed, every_other, padded])
@each_operator
def test_strided_inputs(name: str, strides: Any) -> None:
    operator = OPERATORS[name]
    for case in some(operator, 3):
        args, keywords = made(case, torch.float32)
        strided = converted(fresh(args), strides)
        if name in ON_CACHES and _strided_heads(strided):
            with pytest.raises(ValueError, match=f"{name}: .* has strides"):
                operator(*strided, **keywords)
            continue
        judge(
            results_of(operator, strided, keywords),
            exact_call(operator, args, keywords),
            own_results(operator, args, keywords),
            f"{name} {case.name}",
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32], ids=["float64", "int32"])
@each_operator
def test_wrong_dtype_says_which_operator_and_dtype(name: str, dtype: torch.dtype) -> None:
    operator = OPERATORS[name]
    args, keywords = made(some(operator, 1)[0], torch.float32)
    wrong = converted(args, lambda tensor: tensor.to(dtype))
    with pytest.raises(TypeError, match=rf"{name}: .*{str(dtype).removeprefix('torch.')}"):
        operator(*wrong, **keywords)


@each_operator
def test_tensor_past_32_bits_is_refused(name: str) -> None:
    operator = OPERATORS[name]
    args, keywords = made(some(operator, 1)[0], torch.bfloat16)
    first = next(tensor for tensor in tensors_in(args) if differentiable(tensor))
    # One element in memory, 2^31 and more to the kernel.
    shape = [1] * (max(first.dim(), 1) - 1) + [2**31 + 2]

    def large(tensor: torch.Tensor) -> torch.Tensor:
        return torch.zeros(1, dtype=tensor.dtype).expand(shape)

    same = converted(args, lambda tensor: large(tensor) if tensor.shape == first.shape else tensor)
    with pytest.raises(ValueError, match="2147483650"):
        operator(*same, **keywords)
