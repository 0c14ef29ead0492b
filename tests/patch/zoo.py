"""Small models of transformers with random weights: one width, so that they share kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import transformers

VOCABULARY, WIDTH, INNER, LENGTH = 67, 64, 96, 9
_TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
_PLAIN = {key: _TEXT[key] for key in ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")}
_ENCODER = {
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


@dataclass(frozen=True)
class Kind:
    """A model: its class, its configuration, and how many modules get which operator."""

    model: str
    config: str
    options: dict[str, Any]
    replaced: dict[str, int]
    generates: bool = True
    inputs: str = "input_ids"


_DECODER = {"scaled_dot_product_attention": 2, "rope": 2, "swiglu": 2, "linear_cross_entropy": 1}

KINDS = {
    "llama": Kind("LlamaForCausalLM", "LlamaConfig", _TEXT, {"rms_norm": 5, **_DECODER}),
    "mistral": Kind(
        "MistralForCausalLM", "MistralConfig", {**_TEXT, "sliding_window": 4},
        {"rms_norm": 5, **_DECODER},
    ),
    "qwen2": Kind("Qwen2ForCausalLM", "Qwen2Config", _TEXT, {"rms_norm": 5, **_DECODER}),
    "qwen3": Kind("Qwen3ForCausalLM", "Qwen3Config", _TEXT, {"rms_norm": 9, **_DECODER}),
    "gemma2": Kind(
        "Gemma2ForCausalLM", "Gemma2Config",
        {**_TEXT, "sliding_window": 4, "query_pre_attn_scalar": 16, "final_logit_softcapping": 5.0,
         "attn_logit_softcapping": 3.0},
        {"rms_norm, weight_offset=1": 9, "scaled_dot_product_attention": 2, "rope": 2,
         "geglu": 2, "linear_cross_entropy": 1},
    ),
    "gemma3": Kind(
        "Gemma3ForCausalLM", "Gemma3TextConfig",
        {**_TEXT, "sliding_window": 4, "query_pre_attn_scalar": 16,
         "layer_types": ["sliding_attention", "full_attention"]},
        {"rms_norm, weight_offset=1": 13, "scaled_dot_product_attention": 2, "rope": 2,
         "geglu": 2, "linear_cross_entropy": 1},
    ),
    "phi3": Kind(
        "Phi3ForCausalLM", "Phi3Config",
        {k: v for k, v in _TEXT.items() if k != "head_dim"} | {"partial_rotary_factor": 0.5},
        {"rms_norm": 5, **_DECODER},
    ),
    "olmo2": Kind(
        "Olmo2ForCausalLM", "Olmo2Config", {k: v for k, v in _TEXT.items() if k != "head_dim"},
        {"rms_norm": 9, **_DECODER},
    ),
    "mixtral": Kind(
        "MixtralForCausalLM", "MixtralConfig",
        {**_TEXT, "num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": None},
        {"rms_norm": 5, "scaled_dot_product_attention": 2, "rope": 2, "silu": 2,
         "cross_entropy": 1},
    ),
    "gpt2": Kind(
        "GPT2LMHeadModel", "GPT2Config",
        {**_PLAIN, "n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": 64,
         "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
        {"layer_norm": 5, "scaled_dot_product_attention": 2, "gelu_tanh": 2,
         "linear_cross_entropy": 1},
    ),
    "bert": Kind(
        "BertForMaskedLM", "BertConfig",
        {**_ENCODER, **_PLAIN, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        {"layer_norm": 6, "scaled_dot_product_attention": 2, "gelu": 3}, generates=False,
    ),
    "vit": Kind(
        "ViTForImageClassification", "ViTConfig",
        {**_ENCODER, "image_size": 12, "patch_size": 4, "num_labels": 5,
         "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        {"layer_norm": 5, "scaled_dot_product_attention": 2, "gelu": 2}, False, "pixel_values",
    ),
    "whisper": Kind(
        "WhisperForConditionalGeneration", "WhisperConfig",
        {**_PLAIN, "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2,
         "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": INNER,
         "decoder_ffn_dim": INNER, "num_mel_bins": 8, "max_source_positions": 10,
         "max_target_positions": 32, "decoder_start_token_id": 1, "dropout": 0.0,
         "suppress_tokens": None, "begin_suppress_tokens": None},
        {"layer_norm": 12, "scaled_dot_product_attention": 6, "gelu": 4}, True, "input_features",
    ),
    "mamba": Kind(
        "MambaForCausalLM", "MambaConfig",
        {**_PLAIN, "hidden_size": WIDTH, "num_hidden_layers": 2, "state_size": 4,
         "use_mambapy": False},
        {"rms_norm": 3, "silu": 2, "cross_entropy": 1},
    ),
}  # fmt: skip


# Their kernels for gradients are compiled for nobody else.
LONG_TO_TRAIN = ("gemma2",)


def build(name: str, **more: Any) -> Any:
    """The model in evaluation, its weights far enough from zero that mistakes show."""
    kind = KINDS[name]
    torch.manual_seed(1)
    config = getattr(transformers, kind.config)(**{**kind.options, **more})
    model = getattr(transformers, kind.model)(config)
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 0.3 if parameter.dim() == 1 else 0.15
            parameter.add_(scale * torch.randn(parameter.shape))
    return model.eval()


def inputs(name: str, batch: int = 2, length: int = LENGTH) -> dict[str, torch.Tensor]:
    """What the model takes, with labels."""
    draw = torch.Generator().manual_seed(3)
    ids = torch.randint(2, VOCABULARY, (batch, length), generator=draw)
    if KINDS[name].inputs == "pixel_values":
        pixels = torch.randn(batch, 3, 12, 12, generator=draw)
        return {"pixel_values": pixels, "labels": ids[:, 0] % 5}
    if KINDS[name].inputs == "input_features":
        features = torch.randn(batch, 8, 20, generator=draw)
        return {"input_features": features, "labels": ids}
    return {"input_ids": ids, "labels": ids}
