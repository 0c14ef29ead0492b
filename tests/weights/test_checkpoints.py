"""Checkpoints of MLX, GPTQ, AWQ and bitsandbytes: models filled as those libraries unpack them, or
untouched; layers that keep their weights packed compute with the same weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bitsandbytes.functional as bnb
import mlx.core as mx
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from test_packed_weights import as_words, codes, random, words_of
from torch import Tensor, nn

from anymetal import ops, weights
from anymetal.errors import WeightsError
from anymetal.ops.modules import PackedLinear, QuantizedLinear

Tensors = dict[str, Tensor]
Written = tuple[Tensors, dict[str, Any], dict[str, Tensor]]  # tensors, configuration, weights


class Block(nn.Module):
    """Two linear layers, one of them tied to an embedding; a norm that nobody packs."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(64, 128)
        self.norm = nn.RMSNorm(128)
        self.up = nn.Linear(128, 96)
        self.head = nn.Linear(128, 64, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((self.up(self.norm(x)), self.head(x)), -1)


def plain(dtype: torch.dtype) -> Tensors:
    return {"norm.weight": random(128, dtype=dtype), "up.bias": random(96, dtype=dtype)}


def of_mlx(array: mx.array) -> Tensor:
    if array.dtype == mx.bfloat16:
        return torch.from_numpy(np.array(array.view(mx.uint16))).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def mlx(bits: int = 4, dtype: Any = mx.float16) -> Written:
    tensors: Tensors = {}
    expected = {}
    for name, rows in (("up", 96), ("table", 64)):
        given = mx.array(random(rows, 128).numpy()).astype(dtype)
        parts = mx.quantize(given, group_size=64, bits=bits)
        exact = mx.dequantize(*parts, group_size=64, bits=bits)
        for part, array in zip(("weight", "scales", "biases"), parts, strict=True):
            tensors[f"{name}.{part}"] = of_mlx(array)
        expected[f"{name}.weight"] = of_mlx(exact)
    tensors |= plain(expected["up.weight"].dtype)
    return tensors, {"quantization": {"bits": bits, "group_size": 64}}, expected


def gptq(bits: int = 4, ordered: bool = True) -> Written:
    given, zeros = codes(bits, 128, 96), codes(bits, 4, 96).clamp(min=1)
    scales = random(4, 96, dtype=torch.float16)
    group = torch.arange(128) // 32 if ordered else torch.arange(128) % 4
    by_column = [words_of(column, bits) for column in given.t().tolist()]
    tensors = {
        "up.qweight": as_words(by_column).t().contiguous(),
        "up.qzeros": as_words([words_of(row, bits) for row in (zeros - 1).tolist()]),
        "up.scales": scales,
        "up.g_idx": group.int(),
        "table.weight": random(64, 128, dtype=torch.float16),
    }
    exact = ((given - zeros[group]).half() * scales[group]).t()
    settings = {"quant_method": "gptq", "bits": bits, "group_size": 32}
    return tensors | plain(torch.float16), {"quantization_config": settings}, {"up.weight": exact}


def awq() -> Written:
    given, zeros = codes(4, 128, 96), codes(4, 4, 96).flip(0)
    scales = random(4, 96, dtype=torch.float16)
    turned = [8 * (i // 8) + (0, 2, 4, 6, 1, 3, 5, 7)[i % 8] for i in range(96)]
    tensors = {
        "up.qweight": as_words([words_of(row, 4) for row in given[:, turned].tolist()]),
        "up.qzeros": as_words([words_of(row, 4) for row in zeros[:, turned].tolist()]),
        "up.scales": scales,
        "table.weight": random(64, 128, dtype=torch.float16),
    }
    group = torch.arange(128) // 32
    exact = ((given - zeros[group]).half() * scales[group]).t()
    settings = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm"}
    return tensors | plain(torch.float16), {"quantization_config": settings}, {"up.weight": exact}


def nf4(nested: bool = True, dtype: torch.dtype = torch.float16) -> Written:
    given = random(96, 128, dtype=dtype)
    data, state = bnb.quantize_4bit(given, quant_type="nf4", compress_statistics=nested)
    tensors = {"up.weight": data, "table.weight": random(64, 128, dtype=dtype)}
    tensors |= {f"up.weight.{key}": value for key, value in state.as_dict(packed=True).items()}
    return tensors | plain(dtype), {}, {"up.weight": bnb.dequantize_4bit(data, state)}


Case = tuple[Callable[..., weights.Loaded], Written, str, type[nn.Module] | None]
CASES: dict[str, Callable[[], Case]] = {
    **{f"mlx-{bits}": lambda b=bits: (weights.load_mlx, mlx(b), f"mlx_{b}bit",
                                      QuantizedLinear if b in (4, 8) else None)
       for bits in (2, 3, 4, 6, 8)},
    "mlx-bf16": lambda: (weights.load_mlx, mlx(8, mx.bfloat16), "mlx_8bit", QuantizedLinear),
    "mlx-fp32": lambda: (weights.load_mlx, mlx(4, mx.float32), "mlx_4bit", QuantizedLinear),
    "gptq-4": lambda: (weights.load_gptq, gptq(4), "gptq_4bit", QuantizedLinear),
    "gptq-8": lambda: (weights.load_gptq, gptq(8), "gptq_8bit", QuantizedLinear),
    "gptq-2": lambda: (weights.load_gptq, gptq(2), "gptq_2bit", None),
    "gptq-any-order": lambda: (weights.load_gptq, gptq(4, False), "gptq_4bit", None),
    "awq": lambda: (weights.load_awq, awq(), "awq_4bit", QuantizedLinear),
    "nf4-nested": lambda: (weights.load_nf4, nf4(), "nf4", PackedLinear),
    "nf4": lambda: (weights.load_nf4, nf4(False, torch.bfloat16), "nf4", PackedLinear),
}  # fmt: skip


def saved(folder: Path, written: Written, shards: int = 1) -> Path:
    """A checkpoint as transformers writes it."""
    tensors, config, _ = written
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    names = sorted(tensors)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    index = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        save_file({name: tensors[name] for name in names[shard::shards]}, folder / file)
        index |= dict.fromkeys(names[shard::shards], file)
    text = json.dumps({"metadata": {}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_models_get_the_weights_of_their_library(case: str, tmp_path: Path) -> None:
    load, written, format, layer = CASES[case]()
    path = saved(tmp_path / "whole", written)
    tensors, _, expected = written
    dtype = expected["up.weight"].dtype
    model = Block().to(dtype)
    loaded = load(path, model)
    for name, exact in expected.items():
        assert torch.equal(model.get_parameter(name), exact), name
    for name in model.state_dict().keys() - expected.keys() - {"head.weight"}:
        assert torch.equal(model.get_parameter(name), tensors.get(name, expected.get(name)))
    assert loaded.formats["up.weight"] == format
    assert loaded.unused == () and loaded.packed == ()

    shards, wide = saved(tmp_path / "shards", written, 3), Block().float()
    load(shards / "model.safetensors.index.json", wide)
    for name, parameter in model.named_parameters():
        assert torch.equal(wide.get_parameter(name), parameter.float())

    kept = Block().float().eval()
    loaded = load(shards, kept, packed=True)
    assert loaded.packed == (("up",) if layer else ())
    assert type(kept.up) is (layer or nn.Linear) and type(kept.head) is nn.Linear
    assert not kept.up.training
    if layer is not None:
        held = kept.up.quantized if isinstance(kept.up, QuantizedLinear) else kept.up.weight
        matrix = held.dequantize(torch.float32)  # not rounded to the dtype of the scales
        largest = float(matrix.abs().max())
        rounding = torch.finfo(dtype).eps
        torch.testing.assert_close(matrix, wide.up.weight, rtol=rounding, atol=rounding * largest)
        wide.up.weight = nn.Parameter(matrix)
    x = random(5, 128)
    result, exact = kept(x).detach(), wide(x).detach()
    torch.testing.assert_close(result, exact, rtol=0, atol=2e-6 * float(exact.abs().max()))


def test_nf4_layer_is_bitsandbytes_own_bytes(tmp_path: Path) -> None:
    path, model = saved(tmp_path / "m", nf4()), Block()
    weights.load_nf4(path, model, packed=True)
    tensors, _, expected = nf4()
    assert torch.equal(model.up.blocks.flatten(), tensors["up.weight"].flatten())
    assert torch.equal(model.up.weight.dequantize(torch.float16), expected["up.weight"])
    half = model.half()
    assert half.up.scales.dtype == torch.float32  # as bitsandbytes has them
    lora = ops.modules.LoRALinear(half.up, rank=4, dtype=torch.float16)
    lora(random(3, 128, dtype=torch.float16)).sum().backward()
    assert lora.b.grad is not None


def test_other_names(tmp_path: Path) -> None:
    tensors, config, expected = awq()
    renamed = {f"body.{name}": tensor for name, tensor in tensors.items()}
    path, model = saved(tmp_path / "m", (renamed, config, {})), Block().half()
    names = {name: f"body.{name}" for name, _ in model.named_parameters()}
    weights.load_awq(path, model, names=names)
    assert torch.equal(model.up.weight, expected["up.weight"])


def without(name: str) -> Callable[[Written], Written]:
    return lambda w: ({key: one for key, one in w[0].items() if key != name}, *w[1:])


def having(name: str, tensor: Tensor) -> Callable[[Written], Written]:
    return lambda w: ({**w[0], name: tensor}, *w[1:])


def configured(**words: Any) -> Callable[[Written], Written]:
    return lambda w: (w[0], {key: {**one, **words} for key, one in w[1].items()}, w[2])


def state(text: str) -> Tensor:
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)


STATE = "up.weight.quant_state.bitsandbytes__"
BAD: list[tuple[str, Callable[[Written], Written], str]] = [
    ("mlx-4", without("norm.weight"), "no tensor 'norm.weight' for parameter 'norm.weight'"),
    ("mlx-4", without("up.biases"), "no tensor 'up.biases'"),
    ("mlx-4", lambda w: (w[0], {}, w[2]), "has no 'bits' under 'quantization'"),
    ("mlx-4", configured(bits=5), "table: bits 5 is not known, only 2, 3, 4, 6, 8"),
    ("mlx-4", configured(bits=8), r"'table.weight' has shape \[64, 16\]; expected \[64, 32\]"),
    ("mlx-4", configured(mode="mxfp4"), "mode 'mxfp4' is not known, only 'affine'"),
    ("mlx-4", having("norm.weight", torch.ones(5)), r"\[5\], but parameter 'norm.weight' has"),
    ("mlx-4", having("norm.weight", torch.ones(128).int()), "'norm.weight' is of type I32"),
    ("gptq-4", having("up.g_idx", torch.full((128,), 9)), "groups from 9 to 9, but there are 4"),
    ("gptq-4", having("up.scales", torch.ones(4, 8)), r"'up.scales' has shape \[4, 8\]; expected"),
    ("gptq-4", having("up.qweight", torch.zeros(16, 96)), "'up.qweight' is of type F32"),
    ("gptq-4", having("up.qweight", torch.zeros(16).int()), "expected 2 dimensions"),
    ("gptq-4", configured(bits=3), "GPTQ's bits 3 is not known"),
    ("gptq-4", configured(checkpoint_format="marlin"), "checkpoint_format 'marlin' is not known"),
    ("awq", configured(version="gemv"), "AWQ's version 'gemv' is not known"),
    ("awq", configured(group_size=64), r"'up.qzeros' has shape \[4, 12\]; expected \[2, 12\]"),
    ("nf4", having("up.weight", torch.zeros(7).byte()), r"has shape \[7\]; expected 6144 bytes"),
    ("nf4", having(f"{STATE}nf4", state("{}")), "is no state of bitsandbytes: 'dtype'"),
    ("nf4", having("up.weight.quant_map", torch.ones(16)), "is not the table of nf4"),
    ("nf4", without("up.weight.absmax"), "no tensor 'up.weight.absmax'"),
]  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
def test_checkpoints_that_do_not_fit_leave_the_model_as_it_was(
    packed: bool, tmp_path: Path
) -> None:
    for number, (case, change, message) in enumerate(BAD):
        load, written, _, _ = CASES[case]()
        refused(load, saved(tmp_path / str(number), change(written)), message, packed)
    fp4 = {name.replace("__nf4", "__fp4"): one for name, one in nf4()[0].items()}
    refused(weights.load_nf4, saved(tmp_path / "fp4", (fp4, {}, {})), "type 'fp4' is not", packed)


def refused(load: Any, path: Path, message: str, packed: bool = False) -> None:
    model = Block()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modules = list(model.modules())
    with pytest.raises(WeightsError, match=message):
        load(path, model, packed=packed)
    assert list(model.modules()) == modules
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_files_that_are_missing_cut_or_no_files(tmp_path: Path) -> None:
    load, written, _, _ = CASES["awq"]()
    whole = saved(tmp_path / "m", written)
    file = whole / "model.safetensors"
    content = file.read_bytes()
    for length in (0, 5, 9, 200, len(content) - 1):
        file.write_bytes(content[:length])
        refused(load, whole, "no whole safetensors file")
    file.unlink()
    refused(load, whole, "model.safetensors: no such file")
    shards = saved(tmp_path / "s", written, 2)
    (shards / "config.json").write_text("{")
    refused(load, shards, "config.json: no JSON file")
    index = shards / "model.safetensors.index.json"
    known = json.loads(index.read_text())
    known["weight_map"]["more"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(known))
    refused(load, shards, "the index names 'more', which model-00001-of-00002.safetensors has not")
    (shards / "model-00002-of-00002.safetensors").unlink()
    refused(load, shards, "model-00002-of-00002.safetensors: no such file")
    index.write_text("{}")
    refused(load, shards, "it has no weight_map")


def test_parameters_without_memory_are_named(tmp_path: Path) -> None:
    with torch.device("meta"):
        model = Block()
    with pytest.raises(WeightsError, match=r"'table.weight' has no memory to be filled"):
        weights.load_nf4(saved(tmp_path / "m", nf4()), model, packed=True)
