"""Tiny models of transformers, with random weights: forward, loss, backward, generate, loading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, Qwen3Config

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "qwen": Qwen3Config(**SIZES),
    "gemma": Gemma3TextConfig(**SIZES, sliding_window=8),
}


def make(name: str) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIGS[name]).eval()


@pytest.mark.parametrize("name", CONFIGS)
def test_model_does_what_it_does_on_the_cpu(name: str) -> None:
    tokens = torch.randint(1, 128, (2, 12))

    def run(device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        model = make(name).to(device)
        moved = tokens.to(device)
        generated = model.generate(moved, max_new_tokens=8, do_sample=False)
        output = model(moved, labels=moved)
        output.loss.backward()
        gradient = model.get_input_embeddings().weight.grad
        assert generated.device.type == gradient.device.type == device
        return generated.cpu(), output.logits.detach().cpu(), gradient.cpu()

    generated, logits, gradient = run("mps")
    expected, expected_logits, expected_gradient = run("cpu")
    assert torch.equal(generated, expected)
    torch.testing.assert_close(logits, expected_logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-3, atol=1e-5)


def test_sampling_and_half_precision() -> None:
    model = make("llama").to("mps")
    tokens = torch.randint(1, 128, (1, 4), device="mps")
    torch.manual_seed(3)
    first = model.generate(tokens, max_new_tokens=6, do_sample=True, top_k=5)
    torch.manual_seed(3)
    assert torch.equal(first, model.generate(tokens, max_new_tokens=6, do_sample=True, top_k=5))
    for dtype in (torch.float16, torch.bfloat16):
        assert model.to(dtype)(tokens).logits.dtype == dtype


def test_saved_model_is_loaded_onto_the_device(tmp_path: Path) -> None:
    model = make("llama")
    model.save_pretrained(tmp_path)
    tokens = torch.randint(1, 128, (1, 4))
    expected = model(tokens).logits
    for keywords in ({"device_map": "mps"}, {"device_map": {"": "mps"}}):
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, **keywords)
        assert {p.device.type for p in loaded.parameters()} == {"mps"}
        torch.testing.assert_close(loaded(tokens.to("mps")).logits.cpu(), expected)
