"""LoRA: thin products beside frozen weights, alone and in the blocks of a transformer."""

from anymetal.ops.lora.blocks import lora_attention, swiglu_mlp
from anymetal.ops.lora.lora_linear import lora_linear

__all__ = ["lora_attention", "lora_linear", "swiglu_mlp"]
