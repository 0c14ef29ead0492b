"""A small Llama generates the same tokens with our operators in the place of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.models.llama import modeling_llama

from anymetal import ops
from anymetal.ops.declare import variants

OURS = "anymetal"
TOKENS = 12


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(4)
    config = transformers.LlamaConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=112,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,  # so that tokens depend on the prompt
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
    )
    return transformers.LlamaForCausalLM(config).eval()


def attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers asks of an attention function: heads after the sequence in the result."""
    is_causal = attention_mask is None and query.shape[2] > 1
    result = ops.scaled_dot_product_attention(
        query, key, value, attention_mask, is_causal=is_causal, scale=scaling, enable_gqa=True
    )
    assert module.num_key_value_groups == 2
    return result.transpose(1, 2), None


def norm(self: Any, hidden_states: torch.Tensor) -> torch.Tensor:
    return ops.rms_norm(hidden_states, self.weight, eps=self.variance_epsilon)


def rotary(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, unsqueeze_dim: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    assert unsqueeze_dim == 1
    turned: tuple[torch.Tensor, torch.Tensor] = ops.rope(q, k, cos, sin)
    return turned


def feed_forward(self: Any, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = self.down_proj(ops.swiglu(self.gate_proj(x), self.up_proj(x)))
    return result


@pytest.fixture
def our_operators(model: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The model with attention, rotation, norm and SwiGLU of ours; gives the kernels that ran."""
    transformers.AttentionInterface.register(OURS, attention)
    AttentionMaskInterface.register(OURS, sdpa_mask)
    monkeypatch.setattr(modeling_llama.LlamaRMSNorm, "forward", norm)
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", rotary)
    monkeypatch.setattr(modeling_llama.LlamaMLP, "forward", feed_forward)
    before = model.config._attn_implementation
    model.set_attn_implementation(OURS)
    with variants.recorded() as keys:
        yield keys
    model.set_attn_implementation(before)


def generated(model: Any, prompt: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, Any]:
    with torch.no_grad():
        found = model.generate(
            prompt,
            attention_mask=mask,
            max_new_tokens=TOKENS,
            do_sample=False,
            output_logits=True,
            return_dict_in_generate=True,
        )
    return found.sequences, torch.stack(found.logits)


@pytest.fixture(scope="module")
def prompts() -> tuple[torch.Tensor, torch.Tensor]:
    """Two of different lengths: the shorter one begins with padding, which no token may see."""
    prompt = torch.randint(2, 97, (2, 11), generator=torch.Generator().manual_seed(8))
    mask = torch.ones_like(prompt)
    mask[1, :4] = 0
    return prompt * mask, mask


@pytest.fixture(scope="module")
def expected(model: Any, prompts: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, Any]:
    return generated(model, *prompts)


def test_same_tokens_as_with_transformers_own(
    model: Any,
    prompts: tuple[torch.Tensor, torch.Tensor],
    expected: tuple[torch.Tensor, Any],
    our_operators: list[str],
) -> None:
    tokens, logits = generated(model, *prompts)
    assert torch.equal(tokens, expected[0])
    torch.testing.assert_close(logits, expected[1], rtol=1e-4, atol=1e-4)
    assert len(set(tokens[0, 11:].tolist())) > 3  # no token again and again
    used = {key.rsplit("/", 1)[0] for key in our_operators}
    assert used >= {
        "scaled_dot_product_attention/fp32/tiles",
        "scaled_dot_product_attention/fp32/decode",
        "rope/fp32/elementwise",
        "rms_norm/fp32/single_simdgroup",
        "swiglu/fp32/elementwise",
    }


def test_same_gradients_as_with_transformers_own(
    model: Any, prompts: tuple[torch.Tensor, torch.Tensor], request: pytest.FixtureRequest
) -> None:
    def gradients() -> list[torch.Tensor]:
        model.zero_grad()
        model(prompts[0], attention_mask=prompts[1], labels=prompts[0]).loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    theirs = gradients()
    request.getfixturevalue("our_operators")
    for mine, own in zip(gradients(), theirs, strict=True):
        torch.testing.assert_close(mine, own, rtol=1e-3, atol=1e-5 + 1e-4 * own.abs().max().item())
