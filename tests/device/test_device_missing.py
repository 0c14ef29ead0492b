"""Operators that MPS lacks: the table they come from, and the three things they can do."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
import torchgen
from torchgen.gen import parse_native_yaml
from torchgen.model import DispatchKey

from anymetal.device import enable
from anymetal.device.missing import missing_operators, parse, read_table

TABLE = """
- func: good(Tensor self) -> Tensor
  dispatch:
    CPU, CUDA: good_cpu
    # a comment between kernels
    MPS: good_mps
  autogen: good.out

- func: composite(Tensor self) -> Tensor

- func: explicit(Tensor self) -> Tensor
  dispatch:
    CompositeExplicitAutograd: explicit

- func: lacking.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  dispatch:
    CPU, CUDA: lacking_out

- func: lacking(Tensor self) -> Tensor
  structured_delegate: lacking.out

- func: alone_(Tensor(a!) self) -> Tensor(a!)
  dispatch:
    CPU: alone_
  autogen: alone, alone.out
"""


def test_rows_are_read() -> None:
    rows = {row.name: row for row in parse(TABLE)}
    assert rows["good"].keys == {"CPU", "CUDA", "MPS"}
    assert rows["good"].generated == ("good.out",)
    assert rows["lacking"].delegate == "lacking.out"
    assert rows["composite"].keys == frozenset()


def test_missing_operators_of_a_table() -> None:
    assert missing_operators(TABLE) == {
        "aten::lacking.out": "aten::lacking.out",
        "aten::lacking": "aten::lacking.out",
        "aten::alone_": "aten::alone_",
        "aten::alone": "aten::alone_",
        "aten::alone.out": "aten::alone_",
    }


def test_table_of_this_torch_agrees_with_its_own_test_lists() -> None:
    """Names from torch/testing/_internal/common_mps.py, among those that are not implemented."""
    missing = missing_operators()
    for name in ("put_", "put", "take", "heaviside", "geqrf", "frexp.Tensor", "mode", "ormqr"):
        assert f"aten::{name}" in missing, name
    for name in ("add.Tensor", "mm", "softmax.int", "native_layer_norm", "cumsum", "_to_copy"):
        assert f"aten::{name}" not in missing, name
    assert 200 < len(set(missing.values())) < 500


def test_rows_of_this_torch_are_as_torchgen_reads_them() -> None:
    """torchgen's own reader is too slow for every import of torch; here it is the judge of ours."""
    folder = Path(torchgen.__file__).parent / "packaged/ATen/native"
    read = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
    functions = {str(one.func.name): one for one in read.native_functions}
    rows = list(parse(read_table()))
    generated = {name for row in rows for name in row.generated}
    assert {row.name for row in rows} == functions.keys() - generated
    for row in rows:
        function = functions[row.name]
        for key in ("MPS", "SparseCPU"):  # torchgen adds CPU and CUDA to some itself
            kernels = read.backend_indices[DispatchKey.parse(key)]
            assert kernels.has_kernel(function) == (key in row.keys), row
        assert row.delegate == (function.structured_delegate and str(function.structured_delegate))
        assert row.generated == tuple(str(name) for name in function.autogen)
        explicit = "CompositeExplicitAutograd" in row.keys
        assert function.has_composite_explicit_autograd_kernel == explicit, row


def heaviside() -> torch.Tensor:
    return torch.heaviside(torch.tensor([-1.0, 2.0], device="mps"), torch.ones(2, device="mps"))


def test_missing_operator_raises_as_on_a_mac() -> None:
    enable(missing="error")
    text = "The operator 'aten::heaviside.out' is not currently implemented for the MPS device"
    with pytest.raises(NotImplementedError, match=text):
        heaviside()
    assert (torch.ones(2, device="mps") + 1).tolist() == [2, 2]


def test_missing_operator_warns_once() -> None:
    enable(missing="warn")
    x = torch.tensor([3.0, 1.0, 3.0], device="mps")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert torch.mode(x).values.item() == 3
        assert torch.mode(x).values.item() == 3
    texts = [str(warning.message) for warning in caught]
    assert sum("'aten::mode' is not implemented for the MPS device" in text for text in texts) == 1


def test_missing_operator_runs_silently() -> None:
    enable(missing="run")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert heaviside().tolist() == [0, 1]


def test_fallback_variable_turns_errors_into_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    enable(missing="error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert heaviside().tolist() == [0, 1]


def test_operators_that_a_mac_runs_on_its_cpu_do_not_raise() -> None:
    enable(missing="error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = torch.linalg.svd(torch.eye(2, device="mps")).S
    assert values.tolist() == [1, 1]


def test_unknown_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 'run', 'warn' or 'error'"):
        enable(missing="ignore")  # type: ignore[arg-type]
