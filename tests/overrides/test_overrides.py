"""Overrides come and go without a trace, take what they can in full, and say what they did."""

from __future__ import annotations

import copy
import functools
import logging
import pickle
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
import torch._dynamo  # which itself replaces torch.manual_seed
import torch.nn.functional as F
from torch import Tensor, nn

from anymetal import ops, overrides
from anymetal.errors import KernelFault, ToolchainError
from anymetal.ops.activations.plain import _silu
from anymetal.ops.declare import OPERATORS
from anymetal.overrides import switch
from anymetal.overrides.table import TABLE

HOLDERS = (torch, F, torch.linalg, torch.optim, torch.Tensor, torch.nn.utils, nn.utils.clip_grad)


def everything() -> dict[tuple[str, str], Any]:
    """Every attribute of torch's modules and of its tensors, as an object."""
    return {
        (holder.__name__, name): value
        for holder in HOLDERS
        for name, value in vars(holder).items()
        if name != "__warningregistry__"
    }


def unchanged(before: dict[tuple[str, str], Any]) -> bool:
    """Every object is the same, and new are only modules that someone imported."""
    now = everything()
    new = [now[key] for key in now.keys() - before.keys()]
    same = all(key in now and now[key] is value for key, value in before.items())
    return same and all(isinstance(value, ModuleType) for value in new)


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("ANYMETAL_OVERRIDES", "ANYMETAL_OVERRIDES_LOG", "ANYMETAL_OVERRIDES_STRICT"):
        monkeypatch.delenv(name, raising=False)
    before = everything()
    overrides.reset()
    yield
    overrides.disable()
    overrides.reset()
    assert unchanged(before)


def data(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def taken(name: str) -> int:
    calls = overrides.report().functions.get(name)
    return calls.taken if calls else 0


def reasons(name: str) -> list[str]:
    return list(overrides.report().functions[name].passed)


# --- on and off -----------------------------------------------------------------------------------


def test_every_place_is_replaced_and_comes_back_as_it_was() -> None:
    before = everything()
    paths = [path for row in TABLE.rows for path in row.places]
    assert len(set(paths)) == len(paths)
    originals = {path: functools.reduce(getattr, path.split("."), torch) for path in paths}
    overrides.enable("all")
    for path, original in originals.items():
        mine: Any = functools.reduce(getattr, path.split("."), torch)
        assert mine is not original
        assert mine.__name__ == original.__name__
    assert set(overrides.active()) == {f"torch.{path}" for path in paths}
    overrides.disable()
    assert unchanged(before)
    assert overrides.active() == {}


def test_unknown_names_are_errors_that_list_the_known() -> None:
    with pytest.raises(ValueError, match=r"'norms'; the groups are activations, norm, .*, all"):
        overrides.enable("norms")
    with pytest.raises(ValueError, match="'gpu'; they are cpu, mps, virtual-mps, cuda"):
        overrides.enable("norm", devices=("gpu",))
    assert {row.group for row in TABLE.rows} == set(overrides.GROUPS)


def test_blocks_end_by_exceptions_nested_and_in_any_order() -> None:
    before = everything()
    with pytest.raises(KeyError), overrides.enabled("all"):
        raise KeyError
    assert unchanged(before)
    first, second = overrides.enabled("norm"), overrides.enabled("norm", "softmax")
    first.__enter__()
    second.__enter__()
    mine = F.rms_norm
    first.__exit__(None, None, None)
    assert F.rms_norm is mine
    assert "torch.softmax" in overrides.active()
    second.__exit__(None, None, None)
    assert unchanged(before)
    with overrides.enabled("norm"), overrides.enabled("all"):
        overrides.disable()
        assert unchanged(before)


def test_kinds_of_devices_are_those_of_all_that_ask() -> None:
    overrides.enable("activations", devices=("mps",))
    F.silu(data(3))
    assert reasons("torch.nn.functional.silu") == ["device cpu"]
    with overrides.enabled("activations", devices=("cpu",)):
        assert overrides.active()["torch.nn.functional.silu"] == ("cpu", "mps")
        F.silu(data(3))
        assert taken("torch.nn.functional.silu") == 1
    assert overrides.active()["torch.nn.functional.silu"] == ("mps",)


def test_threads_come_and_go() -> None:
    x, expected, errors = data(5, 8), F.silu(data(5, 8)), []

    def work(index: int) -> None:
        groups = ("activations", "norm", "softmax", "all")
        try:
            for i in range(20):
                with overrides.enabled(groups[(index + i) % 4]):
                    torch.testing.assert_close(F.silu(x), expected)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert overrides.active() == {}


def test_environment_turns_all_off(monkeypatch: pytest.MonkeyPatch) -> None:
    before = everything()
    monkeypatch.setenv("ANYMETAL_OVERRIDES", "0")
    overrides.enable("all")
    assert unchanged(before)
    with overrides.enabled("norm"):
        assert unchanged(before)


# --- what is taken --------------------------------------------------------------------------------


def test_modules_of_torch_get_the_kernels() -> None:
    model = nn.Sequential(
        nn.Embedding(11, 16), nn.RMSNorm(16), nn.Linear(16, 16), nn.SiLU(), nn.Sigmoid(),
        nn.Softmax(-1),
    )  # fmt: skip
    index = torch.arange(10)
    expected = model(index)
    model.zero_grad()
    nn.CrossEntropyLoss()(expected, index).backward()
    gradients = [p.grad for p in model.parameters()]
    model.zero_grad()
    with overrides.enabled("all"):
        result = model(index)
        nn.CrossEntropyLoss()(result, index).backward()
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close([p.grad for p in model.parameters()], gradients)
    for name in ("embedding", "rms_norm", "linear", "silu", "softmax", "cross_entropy"):
        assert taken(f"torch.nn.functional.{name}") == 1, name
    assert taken("torch.sigmoid") == 1


def test_what_ours_does_not_take_is_torchs_with_its_reason() -> None:
    x = data(4, 8)
    table = data(5, 3)

    class Sub(Tensor):
        pass

    calls: dict[str, tuple[Any, str]] = {
        "inplace=True": (lambda: F.silu(x.clone(), inplace=True), "nn.functional.silu"),
        "dtype torch.float64": (lambda: F.silu(x.double()), "nn.functional.silu"),
        "a tensor of class Sub": (lambda: torch.sigmoid(x.as_subclass(Sub)), "sigmoid"),
        "a class with __torch_function__": (
            lambda: F.silu(x.as_subclass(Sub)),
            "nn.functional.silu",
        ),
        "device meta": (lambda: F.silu(x.to("meta")), "nn.functional.silu"),
        "layout torch.sparse_coo": (lambda: torch.mm(x.to_sparse(), x.mT), "mm"),
        "tensors of several dtypes": (
            lambda: F.layer_norm(x.bfloat16(), (8,), data(8), data(8)),
            "nn.functional.layer_norm",
        ),
        "dtype=torch.float64": (lambda: torch.softmax(x, 1, torch.float64), "softmax"),
        "max_norm": (
            lambda: F.embedding(torch.tensor([1]), table.clone(), max_norm=0.1),
            "nn.functional.embedding",
        ),
        "sparse=True": (
            lambda: F.embedding(torch.tensor([1]), table, sparse=True),
            "nn.functional.embedding",
        ),
        "not contiguous": (
            lambda: F.group_norm(data(1, 4, 2, 3).contiguous(memory_format=torch.channels_last), 2),
            "nn.functional.group_norm",
        ),
        "out=": (lambda: torch.linalg.det(table[:3], out=torch.empty(())), "linalg.det"),
    }
    for reason, (call, path) in calls.items():
        expected = call()
        with overrides.enabled("all"):
            result = call()
        assert result.dtype == expected.dtype
        assert result.stride() == expected.stride() if expected.layout == torch.strided else True
        if expected.device.type != "meta":
            assert torch.equal(result.to_dense(), expected.to_dense())
        assert reason in reasons(f"torch.{path}"), reason


def test_unknown_arguments_reach_torch() -> None:
    x, room = data(4, 8), torch.empty(4, 8)
    with overrides.enabled("all"):
        assert torch.sigmoid(x, out=room) is room
        with pytest.raises(TypeError, match=r"silu.* unexpected keyword argument 'slope'"):
            F.silu(x, slope=1)  # type: ignore[call-arg]
        with pytest.raises(ValueError, match="batch_size"):
            F.cross_entropy(x, torch.zeros(3, dtype=torch.int64))
    torch.testing.assert_close(room, torch.sigmoid(x))


def test_whoever_watches_sees_torchs_functions() -> None:
    x = data(4, 8)
    seen = []

    class Watching(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    original = F.silu
    with overrides.enabled("all"):
        with Watching():
            F.silu(x)
        assert seen == [original]
        traced = torch.jit.trace(lambda x: F.silu(x), (x,))  # type: ignore[no-untyped-call]
        assert "anymetal" not in str(traced.graph)
        drawn = torch.fx.symbolic_trace(lambda x: F.silu(x))
        assert original in [node.target for node in drawn.graph.nodes]
        exported = torch.export.export(nn.SiLU(), (x,), strict=True)
        assert "anymetal" not in str(exported.graph)
        with torch.device("cpu"):
            F.silu(x)
    assert taken("torch.nn.functional.silu") == 1


def test_script_compiles_torchs_functions() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.silu(F.layer_norm(x, [8])) + torch.sigmoid(x)

    expected = Model()(data(4, 8))
    with overrides.enabled("all"):
        scripted = torch.jit.script(Model())
        torch.testing.assert_close(scripted(data(4, 8)), expected)


def test_functions_are_copied_and_saved_by_name() -> None:
    original = F.silu
    with overrides.enabled("all"):
        assert copy.deepcopy(F.silu) is F.silu
        saved = pickle.dumps((F.silu, torch.softmax))
    assert pickle.loads(saved) == (original, torch.softmax)


# --- derivatives, transforms, autocast, compile ---------------------------------------------------


@pytest.mark.parametrize("name", ["cross_entropy", "kl_div", "scaled_dot_product_attention"])
def test_gradients_of_gradients_are_there(name: str) -> None:
    calls: dict[str, Any] = {
        "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([1, 0, 2, 7])),
        "kl_div": lambda x: F.kl_div(x, data(4, 8).abs(), reduction="sum") * x.sum(),
        "scaled_dot_product_attention": lambda x: F.scaled_dot_product_attention(
            x[None], x[None], x[None], attn_mask=data(4, 4)
        ).sum(),
    }
    results = []
    for groups in ((), ("all",)):
        x = data(4, 8).requires_grad_()
        if groups:
            overrides.enable(*groups)
        (first,) = torch.autograd.grad(calls[name](x), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        results.append((first, second))
    assert taken(f"torch.nn.functional.{name}") == 1
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-4)


def test_transforms_of_torch_func() -> None:
    x = data(3, 8)
    expected = (
        torch.func.vmap(F.silu)(x),
        torch.func.grad(lambda x: F.softmax(x, -1).square().sum())(x),
        torch.func.jvp(F.silu, (x,), (x,)),
    )
    with overrides.enabled("all"):
        found = (
            torch.func.vmap(F.silu)(x),
            torch.func.grad(lambda x: F.softmax(x, -1).square().sum())(x),
            torch.func.jvp(F.silu, (x,), (x,)),
        )
    torch.testing.assert_close(found, expected)
    assert reasons("torch.nn.functional.silu") == ["inside a transform of torch.func"]


AUTOCAST: dict[str, Any] = {
    "nn.functional.silu": lambda x: F.silu(x),
    "softmax": lambda x: torch.softmax(x, -1),
    "nn.functional.layer_norm": lambda x: F.layer_norm(x, (8,), data(8), data(8)),
    "nn.functional.linear": lambda x: F.linear(x, data(8, 8), data(8)),
    "nn.functional.cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([1, 0, 2, 7])),
    "nn.functional.kl_div": lambda x: F.kl_div(x, data(4, 8).abs(), reduction="sum"),
    "gather": lambda x: torch.gather(x, 1, torch.tensor([[1], [0], [2], [7]])),
}


@pytest.mark.parametrize("path", AUTOCAST)
def test_autocast_is_torchs(path: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        results = []
        for groups in ((), ("all",)):
            x = data(4, 8).to(dtype).requires_grad_()
            if groups:
                overrides.enable(*groups)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = AUTOCAST[path](x)
            (gradient,) = torch.autograd.grad(y.float().sum(), x)
            results.append((y, gradient))
        overrides.disable()
        torch.testing.assert_close(*results, rtol=3e-2, atol=3e-2)
    calls = overrides.report().functions[f"torch.{path}"]
    assert calls.taken or "torch.autocast" in calls.passed


def test_compiled_code_has_ours_and_no_more_when_they_are_gone() -> None:
    def model(x: Tensor, weight: Tensor) -> Tensor:
        return (
            F.silu(F.rms_norm(x, (8,), weight)) @ torch.softmax(x, -1).mT + F.silu(x.double()).sum()
        )

    x, weight = data(4, 8).requires_grad_(), data(8)
    expected = model(x, weight)
    (gradient,) = torch.autograd.grad(expected.sum(), x)
    graphs: list[str] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph.code)
        return graph.forward

    compiled = torch.compile(model, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(x, weight), expected)
    assert "anymetal" not in graphs[-1]
    with overrides.enabled("all"):
        result = compiled(x, weight)
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(torch.autograd.grad(result.sum(), x)[0], gradient)
        for name in ("silu", "rms_norm", "softmax"):
            assert f"anymetal.{name}" in graphs[-1]
        compiled(x, weight)
        assert len(graphs) == 2
    compiled(x, weight)
    assert len(graphs) == 2  # the first is still right
    whole = torch.compile(model, fullgraph=True, backend="aot_eager")
    with overrides.enabled("all"):
        torch.testing.assert_close(whole(x, weight), expected)
    torch._dynamo.reset()


# --- when ours fails ------------------------------------------------------------------------------


def failing(error: Exception) -> Any:
    def run(*_: Any, **__: Any) -> None:
        raise error

    return run


def test_error_of_a_kernel_falls_back_once_and_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    x = data(4, 8)
    expected = F.silu(x)
    monkeypatch.setattr(_silu, "_run", failing(KernelFault("silu_float: wild")))
    with overrides.enabled("activations"):
        assert torch.equal(F.silu(x), expected)
        assert torch.equal(F.silu(x), expected)
    (record,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    for words in ("torch.nn.functional.silu", "silu_float: wild", "float32[4, 8] on cpu"):
        assert words in record.getMessage()
    calls = overrides.report().functions["torch.nn.functional.silu"]
    assert calls.switched_off == "KernelFault: silu_float: wild"
    assert calls.passed["switched off after an error"] == 1
    assert "switched off: KernelFault" in str(overrides.report())


def test_error_of_a_gradient_falls_back_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    x = data(4, 8).requires_grad_()
    (expected,) = torch.autograd.grad(F.silu(x).sum(), x)
    operator = OPERATORS["silu_backward"]
    monkeypatch.setattr(operator, "_run", failing(ToolchainError("no clang")))
    with overrides.enabled("activations"):
        result = F.silu(x)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), x)[0], expected)
    assert "anymetal::silu_backward failed with ToolchainError: no clang" in caplog.text
    with pytest.raises(ToolchainError):  # who calls ours by its name is told
        ops.silu(x).sum().backward()


def test_strict_mode_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYMETAL_OVERRIDES_STRICT", "1")
    x = data(4, 8).requires_grad_()
    with overrides.enabled("all"):
        result = F.silu(x)
        monkeypatch.setattr(OPERATORS["silu_backward"], "_run", failing(KernelFault("back")))
        with pytest.raises(KernelFault, match="back"):
            result.sum().backward()
        monkeypatch.setattr(_silu, "_run", failing(KernelFault("forth")))
        with pytest.raises(KernelFault, match="forth"):
            F.silu(x)
        with pytest.raises(IndexError, match="Dimension out of range"):
            torch.softmax(x, 7)


def test_each_reason_is_logged_once_where_asked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ANYMETAL_OVERRIDES_LOG", "1")
    with overrides.enabled("activations"):
        for _ in range(3):
            F.silu(data(3).double())
    assert caplog.messages == ["torch.nn.functional.silu: torch's own, dtype torch.float64"]


def test_report_is_readable() -> None:
    assert str(overrides.report()) == "no call of a replaced function yet"
    with overrides.enabled("activations"):
        F.silu(data(3))
        F.silu(data(3).double())
    assert str(overrides.report()).splitlines() == [
        "torch.nn.functional.silu: 1 taken, 1 passed on",
        "         1  dtype torch.float64",
    ]


# --- quantised, and rows that torch's samples do not have -----------------------------------------


def test_product_with_packed_bytes() -> None:
    x, scales = data(3, 64), data(5).abs()
    weight = torch.randint(-128, 128, (5, 64), dtype=torch.int8)
    expected = torch._weight_int8pack_mm(x, weight, scales)
    with overrides.enabled("quantised"):
        result = torch._weight_int8pack_mm(x, weight, scales)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-3)
    assert taken("torch._weight_int8pack_mm") == 1


def test_calls_on_the_virtual_device_are_taken(mps: torch.device) -> None:
    x = data(4, 8).to(mps)
    with overrides.enabled("softmax", devices=("virtual-mps",)):
        result = torch.softmax(x, -1)
        torch.softmax(x.cpu(), -1)
    torch.testing.assert_close(result.cpu(), x.cpu().softmax(-1))
    assert taken("torch.softmax") == 1
    assert reasons("torch.softmax") == ["device cpu"]


def test_a_place_that_is_inherited_is_deleted_again() -> None:
    assert "softmax" not in vars(torch.Tensor)
    with overrides.enabled("softmax"):
        assert "softmax" in vars(torch.Tensor)
    assert "softmax" not in vars(torch.Tensor)
    assert switch.SWITCH.replaced == {}


def test_torchs_lists_of_its_functions_are_of_its_functions() -> None:
    method = torch.Tensor.softmax
    with overrides.enabled("softmax"):
        assert not torch.overrides.is_tensor_method_or_property(method)
    assert torch.overrides.is_tensor_method_or_property(method)
    assert torch.softmax in torch.overrides.get_testing_overrides()
