"""Models of diffusers with our operators."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import zoo
from test_patch_transformers import LONG, NEAR, assert_same, thorough, traces

from anymetal import patch


def unet() -> Any:
    # Importing it takes seconds, and most workers run no test of this file.
    from diffusers import UNet2DConditionModel  # noqa: PLC0415

    torch.manual_seed(1)
    model: Any = UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, norm_num_groups=4,
        block_out_channels=(32, 32), down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=16,
        attention_head_dim=2,  # as it counts heads: each has 16 elements
    )  # fmt: skip
    return model


def run(model: Any) -> dict[str, torch.Tensor]:
    """A sample; in the long tests with a mask, and with all gradients."""
    draw = torch.Generator().manual_seed(2)
    picture = torch.randn(2, 4, 8, 8, generator=draw, requires_grad=True)
    text = torch.randn(2, 5, 16, generator=draw)
    if not LONG:
        with torch.no_grad():
            return {"sample": model(picture, 3, text).sample}
    mask = torch.tensor([[1, 1, 1, 0, 1], [1, 1, 1, 1, 1]])
    model.zero_grad()
    found = model(picture, 3, text, encoder_attention_mask=mask).sample
    found.square().sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    return {"sample": found.detach(), "gradient of the input": picture.grad, **gradients}


def test_unet_does_what_it_did_and_undo_leaves_no_trace() -> None:
    model = unet()
    expected = run(model)
    before = traces(model)
    handle = patch.diffusers(model)
    counts = {}
    for row in handle.rows:
        if row.replaced:
            counts[row.why] = counts.get(row.why, 0) + 1
    assert counts == {
        "ops.scaled_dot_product_attention": 8, "ops.geglu": 4, "ops.group_norm": 4,
        "ops.group_norm_silu": 17, "ops.layer_norm": 12, "ops.silu": 10,
    }  # fmt: skip
    once = traces(model)
    assert patch.diffusers(model).count == 0
    assert_same(traces(model), once)
    found = run(model)
    largest = max(float(value.abs().max()) for value in expected.values())
    for name, value in expected.items():
        scale = float(value.abs().max()) if name == "sample" else largest
        assert float((found[name] - value).abs().max()) <= NEAR * scale, name
    model.zero_grad()
    handle.undo()
    assert_same(traces(model), before)


def test_pipeline_is_patched_part_by_part() -> None:
    from diffusers.models.attention_processor import AttnProcessor  # noqa: PLC0415

    model = unet()
    model.down_blocks[0].attentions[0].transformer_blocks[0].attn1.processor = AttnProcessor()
    text = zoo.build("bert")
    before = traces(model) | {f"text {n}": one for n, one in traces(text).items()}
    pipeline = SimpleNamespace(components={"unet": model, "text_encoder": text, "scheduler": None})
    handle = patch.diffusers(pipeline)
    left = [row for row in handle.rows if "AttnProcessor" in row.kind and not row.replaced]
    assert [row.why for row in left] == ["it does not call torch's scaled_dot_product_attention"]
    assert left[0].name.startswith("unet.down_blocks.0")
    assert sum(row.name.startswith("text_encoder.") for row in handle.rows if row.replaced) == 11
    handle.undo()
    assert_same(traces(model) | {f"text {n}": one for n, one in traces(text).items()}, before)
    with pytest.raises(TypeError, match=r"expects a pipeline or an nn\.Module, got int"):
        patch.diffusers(3)


@thorough
def test_processor_that_dispatches() -> None:
    from diffusers import FluxTransformer2DModel  # noqa: PLC0415

    torch.manual_seed(1)
    model = FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=8,
        axes_dims_rope=(4, 4, 8),
    )  # fmt: skip
    given = {
        "hidden_states": torch.randn(1, 6, 4), "encoder_hidden_states": torch.randn(1, 3, 32),
        "pooled_projections": torch.randn(1, 8), "timestep": torch.tensor([0.5]),
        "img_ids": torch.randn(6, 3), "txt_ids": torch.randn(3, 3),
    }  # fmt: skip
    expected = model(**given).sample
    handle = patch.diffusers(model)
    assert sum("FluxAttnProcessor" in row.kind for row in handle.rows if row.replaced) == 2
    found = model(**given).sample
    assert (found - expected).abs().max() <= NEAR * expected.abs().max()
    handle.undo()
