"""GGUF files: formats bit for bit as the gguf package's, models filled whole or untouched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Type
from torch import Tensor, nn
from transformers import GemmaConfig, GemmaForCausalLM, LlamaConfig, LlamaForCausalLM

from anymetal import patch, weights
from anymetal.errors import WeightsError
from anymetal.ops.modules import PackedLinear
from anymetal.ops.quantised.blocks import FORMATS as PACKED

SMALL: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 32,
}  # fmt: skip


def random_blocks(name: str, rows: int, blocks: int) -> np.ndarray[Any, Any]:
    """Random bytes; halves among them are finite, since a NaN is not equal to itself."""
    known = weights.FORMATS[name]
    made = np.random.default_rng(len(name) + rows).integers(
        0, 256, (rows * blocks, known.size), dtype=np.uint8
    )
    halves = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q6_K": (208,), "F16": (0,)}
    for at in halves.get(name, (0,)):
        made[:, at + 1] &= 0xBB  # no exponent of all ones
    if name in ("BF16", "F32"):
        made[:, -1] &= 0xBF
    return made.reshape(rows, blocks * known.size)


@pytest.mark.parametrize("name", weights.FORMATS)
def test_formats_are_ggmls_bit_for_bit(name: str) -> None:
    for rows, blocks in ((1, 1), (3, 5), (31, 2)):
        given = random_blocks(name, rows, blocks)
        expected = gguf.quants.dequantize(given, Type[name]).astype(np.float32)
        found = weights.dequantize_ggml(torch.from_numpy(given), name)
        assert found.dtype == torch.float32
        assert torch.equal(found, torch.from_numpy(expected).view(found.shape))


def test_bytes_that_are_no_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown format 'Q9'"):
        weights.dequantize_ggml(torch.zeros(1, 18, dtype=torch.uint8), "Q9")
    for wrong in (torch.zeros(1, 19, dtype=torch.uint8), torch.zeros(18, dtype=torch.uint8)):
        with pytest.raises(ValueError, match="blocks of 18 bytes for Q4_0, got"):
            weights.dequantize_ggml(wrong, "Q4_0")


def written(path: Path, model: nn.Module, architecture: str, kinds: dict[str, Type]) -> None:
    """A model of transformers as llama.cpp's converter writes it."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(SMALL["num_hidden_layers"])
    writer.add_head_count(SMALL["num_attention_heads"])
    writer.add_head_count_kv(SMALL["num_key_value_heads"])
    kind = next(k for k, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(kind, SMALL["num_hidden_layers"])
    for name, parameter in model.named_parameters():
        value = parameter.detach().clone()
        tensor = names.get_name(name, try_suffixes=(".weight",))
        assert tensor is not None
        heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
        if architecture == "llama" and heads:
            value = value.view(heads, 2, -1, 32).transpose(1, 2).reshape(value.shape)
        if architecture == "gemma" and "norm" in name:
            value = value + 1
        add(writer, tensor, value, kinds.get(name, Type.F32))
    finish(writer)


def add(writer: Any, name: str, value: Tensor, kind: Type) -> None:
    data = gguf.quants.quantize(value.numpy(), kind)
    writer.add_tensor(name, data, raw_dtype=kind)


def finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_llama_has_the_logits_it_was_written_with(tmp_path: Path) -> None:
    torch.manual_seed(0)
    source = LlamaForCausalLM(LlamaConfig(**SMALL))
    quantised = {
        "model.layers.0.mlp.down_proj.weight": Type.Q8_0,
        "model.layers.1.mlp.gate_proj.weight": Type.Q5_1,
        "lm_head.weight": Type.F16,
    }
    written(tmp_path / "m.gguf", source, "llama", quantised)
    model = LlamaForCausalLM(LlamaConfig(**SMALL))
    loaded = weights.load_gguf(tmp_path / "m.gguf", model)
    assert loaded.unused == ()
    for name, parameter in source.named_parameters():
        kind = quantised.get(name, Type.F32)
        exact = gguf.quants.dequantize(gguf.quants.quantize(parameter.detach().numpy(), kind), kind)
        assert torch.equal(model.get_parameter(name), torch.from_numpy(exact.astype(np.float32)))
        assert loaded.formats[name] == kind.name
    tokens = torch.arange(8)[None]
    torch.testing.assert_close(model(tokens).logits, source(tokens).logits, rtol=0.05, atol=0.02)


def test_tied_gemma_in_another_dtype(tmp_path: Path) -> None:
    torch.manual_seed(1)
    source = GemmaForCausalLM(GemmaConfig(**SMALL))
    for name, parameter in source.named_parameters():
        if "norm" in name:
            nn.init.uniform_(parameter, -0.25, 0.25)
    written(tmp_path / "g.gguf", source, "gemma", {})
    model = GemmaForCausalLM(GemmaConfig(**SMALL)).bfloat16()
    weights.load_gguf(tmp_path / "g.gguf", model)
    for name, parameter in source.named_parameters():
        torch.testing.assert_close(model.get_parameter(name), parameter.bfloat16())


WIDE = {**SMALL, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1}
KINDS = {"q_proj": Type.Q4_K, "k_proj": Type.Q6_K, "v_proj": Type.Q8_0, "down_proj": Type.Q4_K,
         "lm_head": Type.Q6_K}  # fmt: skip


def random_llama(path: Path) -> None:
    """A file with blocks of several formats, of about the size that weights have."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 1)
    generator = torch.Generator().manual_seed(2)
    for name, parameter in LlamaForCausalLM(LlamaConfig(**WIDE)).named_parameters():
        tensor = names.get_name(name, try_suffixes=(".weight",))
        kind = KINDS.get(name.split(".")[-2], Type.F32)
        if kind in (Type.Q4_K, Type.Q6_K):
            packing = PACKED[kind.name.lower().replace("k", "K")]
            made, _ = packing.random(*parameter.shape, 0, generator)
            writer.add_tensor(tensor, made.numpy(), raw_dtype=kind)
        else:
            add(writer, tensor, parameter.detach(), kind)
    finish(writer)


def test_layers_that_stay_packed(tmp_path: Path) -> None:
    random_llama(tmp_path / "m.gguf")
    plain, kept = (LlamaForCausalLM(LlamaConfig(**WIDE)).eval() for _ in range(2))
    assert weights.load_gguf(tmp_path / "m.gguf", plain).packed == ()
    loaded = weights.load_gguf(tmp_path / "m.gguf", kept, packed=True)
    assert {name.split(".")[-1] for name in loaded.packed} == set(KINDS)
    for name in loaded.packed:
        layer, exact = kept.get_submodule(name), plain.get_parameter(f"{name}.weight")
        held = layer.weight if isinstance(layer, PackedLinear) else layer.quantized
        assert torch.equal(held.dequantize(torch.float32), exact), name
    tokens = torch.arange(3)[None]
    expected = plain(tokens).logits.detach()
    for patched in (False, True):  # our operators around the packed layers
        handle = patch.transformers(kept) if patched else None
        found = kept(tokens).logits
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
        if handle:
            handle.undo()
    state = kept.state_dict()
    assert state["model.layers.0.self_attn.q_proj.blocks"].dtype == torch.uint8
    adapted = patch.transformers(kept, lora=2)
    kept.train()(tokens, labels=tokens).loss.backward()
    assert kept.model.layers[0].self_attn.k_proj.b.grad is not None
    adapted.undo()


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3, 32), 7.0))


def plain_file(path: Path, value: Tensor, kind: Type = Type.Q4_0, more: bool = False) -> Path:
    writer = gguf.GGUFWriter(path, "other")
    add(writer, "w", value, kind)
    if more:
        add(writer, "rest", torch.ones(4), Type.F32)
    finish(writer)
    return path


def test_names_of_any_model(tmp_path: Path) -> None:
    value, model = torch.randn(3, 32), Plain()
    path = plain_file(tmp_path / "p.gguf", value, more=True)
    loaded = weights.load_gguf(path, model, names={"weight": "w"})
    assert loaded.unused == ("rest",)
    kept = gguf.quants.dequantize(gguf.quants.quantize(value.numpy(), Type.Q4_0), Type.Q4_0)
    assert torch.equal(model.weight, torch.from_numpy(kept))


def test_files_that_do_not_fit_leave_the_model_as_it_was(tmp_path: Path) -> None:
    good = plain_file(tmp_path / "good.gguf", torch.randn(3, 32)).read_bytes()
    files: dict[str, tuple[bytes | None, dict[str, str] | None, str]] = {
        "missing": (None, None, "no such file"),
        "empty": (b"", None, "no whole GGUF file"),
        "noise": (bytes(range(256)) * 9, None, "no whole GGUF file"),
        "architecture": (good, None, "architecture 'other' is not known here"),
        "name": (good, {"weight": "x"}, "no tensor 'x' for parameter 'weight'"),
        "wide": (
            plain_file(tmp_path / "wide.gguf", torch.randn(3, 64)).read_bytes(),
            {"weight": "w"},
            r"'w' has shape \[3, 64\], but parameter 'weight' has \[3, 32\]",
        ),
    }
    for name, (content, names, message) in files.items():
        path, model = tmp_path / f"{name}.bad", Plain()
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(WeightsError, match=message):
            weights.load_gguf(path, model, names=names)
        assert (model.weight == 7).all()


def test_truncated_anywhere(tmp_path: Path) -> None:
    whole = plain_file(tmp_path / "good.gguf", torch.randn(3, 32)).read_bytes()
    path = tmp_path / "cut.gguf"
    end = len(whole) - 3 * 18  # of the data; the rest of the file is padding
    for length in [*range(0, end, 7), end + 20]:
        path.write_bytes(whole[:length])
        model = Plain()
        with pytest.raises(WeightsError, match="no whole GGUF file"):
            weights.load_gguf(path, model, names={"weight": "w"})
        assert (model.weight == 7).all()


def test_unknown_type(tmp_path: Path) -> None:
    path, model = tmp_path / "t.gguf", Plain()
    model.weight = nn.Parameter(torch.full((1, 256), 7.0))
    writer = gguf.GGUFWriter(path, "other")
    writer.add_tensor("w", np.zeros((1, 84), dtype=np.uint8), raw_dtype=Type.Q2_K)
    finish(writer)
    with pytest.raises(WeightsError, match="'w' is of type Q2_K; known are Q4_0"):
        weights.load_gguf(path, model, names={"weight": "w"})
    assert (model.weight == 7).all()
