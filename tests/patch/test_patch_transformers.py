"""Models of transformers with our operators: what they did before, and nothing left afterwards."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from types import MethodType
from typing import Any

import pytest
import torch
import zoo
from transformers.masking_utils import AttentionMaskInterface, sliding_window_causal_mask_function
from transformers.modeling_utils import AttentionInterface
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from anymetal import ops, patch
from anymetal.patch import attention

NEAR = 2e-4
LONG = bool(os.environ.get("ANYMETAL_TEST_ALL"))
thorough = pytest.mark.skipif(not LONG, reason="ANYMETAL_TEST_ALL=1 runs it")
# Each has something that the others lack; the rest is for `make thorough`.
SAMPLE = ("llama", "qwen3", "gemma2", "phi3", "olmo2", "gpt2", "mamba")


# --- what is compared -----------------------------------------------------------------------------


def results(name: str, model: Any) -> dict[str, torch.Tensor]:
    """The loss and all gradients in training; logits and generated tokens without it."""
    given = zoo.inputs(name)
    found = training(model, given) if LONG or name not in zoo.LONG_TO_TRAIN else {}
    model.eval()
    with torch.no_grad():
        found["logits"] = model(**given).logits
        if zoo.KINDS[name].generates:
            prompt = {key: value for key, value in given.items() if key != "labels"}
            found["tokens"] = model.generate(
                **prompt, max_new_tokens=6, max_length=None, do_sample=False
            )
    return found


def training(model: Any, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    model.zero_grad()
    output = model.train()(**given)
    output.loss.backward()
    found = {"loss": output.loss.detach(), "training logits": output.logits.detach()}
    gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    return found | {f"gradient of {n}": grad.clone() for n, grad in gradients.items()}


def assert_near(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    # Gradients of a key's bias are zero but for rounding: each is judged by the largest of all.
    gradients = [e for n, e in expected.items() if n.startswith("gradient")]
    largest = max((float(gradient.abs().max()) for gradient in gradients), default=0.0)
    for name, value in expected.items():
        if name == "tokens":
            assert torch.equal(found[name], value)
            continue
        scale = largest if name.startswith("gradient") else float(value.abs().max())
        error = float((found[name] - value).abs().max())
        assert error <= NEAR * scale, f"{name}: {error} of {scale}"


def traces(model: Any) -> dict[str, Any]:
    """Everything that a patch could change, by name: objects to be compared as the same ones."""
    found: dict[str, Any] = {}
    for name, module in model.named_modules():
        found[f"{name} class"] = type(module)
        for key, value in vars(module).items():
            found[f"{name}.{key}"] = value
            if isinstance(value, dict):
                found |= {f"{name}.{key}[{inner}]": held for inner, held in value.items()}
        for key, value in vars(type(module)).items():
            found[f"{name} class {key}"] = value
        config = getattr(module, "config", None)
        if config is not None:
            found |= {f"{name}.config.{key}": held for key, held in vars(config).items()}
    for registry in (AttentionInterface, AttentionMaskInterface):
        found |= {f"{registry.__name__}[{k}]": v for k, v in registry._global_mapping.items()}
    found["keys"] = tuple(model.state_dict())
    found["trained"] = tuple(p.requires_grad for p in model.parameters())
    return found


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    changed = [n for n in found if found[n] is not expected[n] and found[n] != expected[n]]
    assert changed == []


@pytest.fixture
def llama() -> Iterator[Any]:
    yield zoo.build("llama")
    assert attention.NAME not in AttentionInterface._global_mapping


# --- models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", zoo.KINDS if LONG else SAMPLE)
def test_model_does_what_it_did_and_undo_leaves_no_trace(name: str) -> None:
    model = zoo.build(name)
    expected = results(name, model)
    before = traces(model)
    handle = patch.transformers(model, linear_loss_from=0)
    assert handle.count == sum(zoo.KINDS[name].replaced.values())
    for operator, number in zoo.KINDS[name].replaced.items():
        rows = [row for row in handle.rows if row.replaced and f"ops.{operator}" in row.why]
        assert len(rows) >= number, f"{operator}\n{handle.report()}"
    once = traces(model)
    again = patch.transformers(model)
    assert again.count == 0
    assert_same(traces(model), once)
    again.undo()
    assert_same(traces(model), once)
    assert_near(results(name, model), expected)
    model.zero_grad()
    handle.undo()
    assert_same(traces(model), before)
    assert handle.count == 0


@pytest.mark.parametrize("name", [pytest.param("gemma2", marks=thorough), "mistral"])
def test_padding_and_caches(name: str) -> None:
    """Left padding, static and dynamic caches, a prompt in two parts."""
    model = zoo.build(name)
    ids = zoo.inputs(name)["input_ids"]
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    padded = {"input_ids": ids.masked_fill(mask == 0, 0), "attention_mask": mask}

    def run() -> list[torch.Tensor]:
        with torch.no_grad():
            tokens = [
                model.generate(
                    **padded, max_new_tokens=5, max_length=None, do_sample=False,
                    cache_implementation=kind,
                )
                for kind in ("dynamic", "static")
            ]  # fmt: skip
            first = model(ids[:, :5], use_cache=True)
            second = model(ids[:, 5:], past_key_values=first.past_key_values)
            logits = model(**padded).logits[mask.bool()]
        return [*tokens, second.logits, logits]

    expected = run()
    handle = patch.transformers(model)
    for found, one in zip(run(), expected, strict=True):
        assert float((found - one).abs().max()) <= NEAR * float(one.abs().max())
    handle.undo()


def test_weights_of_attention_come_where_they_are_asked_for(llama: Any) -> None:
    ids = zoo.inputs("llama")["input_ids"]
    eager = zoo.build("llama", attn_implementation="eager")
    expected = eager(ids, output_attentions=True)
    handle = patch.transformers(eager)
    found = eager(ids, output_attentions=True)
    for ours, theirs in zip(found.attentions, expected.attentions, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    handle.undo()


def test_window_replaces_its_mask_only_where_attention_is_given_it() -> None:
    model = zoo.build("mistral")
    size = model.config.sliding_window
    given = {
        "batch_size": 1, "q_length": 9, "kv_length": 9, "local_size": size,
        "mask_function": sliding_window_causal_mask_function(size),
    }  # fmt: skip
    handle = patch.transformers(model)
    assert attention.mask(**given, config=model.config) is None
    other = attention.mask(**given, config=copy.deepcopy(model.config))
    assert other is not None and other.sum() == 4 * 6 + 3 + 2 + 1
    padded = torch.tensor([[False] + [True] * 8])
    assert attention.mask(**given, config=model.config, attention_mask=padded) is not None
    handle.undo()


# --- loss -----------------------------------------------------------------------------------------


def test_loss_takes_what_transformers_loss_takes(llama: Any) -> None:
    ids = zoo.inputs("llama")["input_ids"]
    labels = ids.clone()
    labels[0, 4:] = -100
    calls: list[dict[str, Any]] = [
        {"labels": labels, "num_items_in_batch": 5},
        {"labels": labels, "num_items_in_batch": torch.tensor(7)},
        {"labels": labels, "shift_labels": labels.roll(2, 1)},
        {"labels": labels, "logits_to_keep": 0, "return_dict": False},
    ]
    llama.train()
    expected = [llama(ids, **call)[0] for call in calls]
    handle = patch.transformers(llama, linear_loss_from=0)
    for call, loss in zip(calls, expected, strict=True):
        torch.testing.assert_close(llama(ids, **call)[0], loss, rtol=1e-5, atol=1e-6)
    output = llama(input_ids=ids, labels=labels)
    assert "logits" not in output  # they are computed when they are asked for
    assert output.logits.shape == (*ids.shape, zoo.VOCABULARY)
    hook = llama.lm_head.register_forward_hook(lambda *_: None)
    assert "logits" in llama(input_ids=ids, labels=labels)
    hook.remove()
    handle.undo()


def test_logits_are_made_for_a_loss_unless_they_are_large(llama: Any) -> None:
    given = zoo.inputs("llama")
    expected = llama.train()(**given).loss
    size = 4 * given["labels"].numel() * zoo.VOCABULARY
    for linear_from, made in ((size + 1, True), (size, False)):
        handle = patch.transformers(llama, linear_loss_from=linear_from)
        output = llama(**given)
        assert ("logits" in output) is made
        name = ops.variants.last() or ""
        assert name.startswith("cross_entropy") is made, name
        torch.testing.assert_close(output.loss, expected, rtol=1e-5, atol=1e-6)
        handle.undo()
    handle = patch.transformers(llama)
    row = next(row for row in handle.rows if "loss" in row.kind)
    assert row.why == "ops.cross_entropy; ops.linear_cross_entropy from 256 MiB of logits"
    handle.undo()


# --- LoRA and quantised weights -------------------------------------------------------------------


def test_lora_trains_its_own_weights_alone(llama: Any) -> None:
    given = zoo.inputs("llama")
    before = traces(llama)
    expected = llama(**given).logits.detach()
    handle = patch.transformers(llama, lora={"rank": 4, "alpha": 8, "targets": ["q_proj"]})
    trained = [name for name, p in llama.named_parameters() if p.requires_grad]
    assert len(trained) == 4 and all(name.endswith(("q_proj.a", "q_proj.b")) for name in trained)
    once = traces(llama)
    assert patch.transformers(llama, lora={"targets": ["q_proj"]}).count == 0
    assert_same(traces(llama), once)
    second = patch.transformers(llama, lora=4, skip=patch.GROUPS)
    assert second.count == 6  # k, v and o of two layers
    assert sum(p.requires_grad for p in llama.parameters()) == 16
    torch.testing.assert_close(llama(**given).logits, expected, rtol=1e-4, atol=1e-4)
    llama.train()(**given).loss.backward()
    assert all(p.grad is not None for p in llama.parameters() if p.requires_grad)
    with pytest.raises(ValueError, match="no linear layer is called c_attn; this model has"):
        patch.transformers(llama, lora={"targets": ["c_attn"]})
    with pytest.raises(ValueError, match="rank, alpha and targets, got ranks"):
        patch.transformers(llama, lora={"ranks": 4})
    llama.eval().zero_grad()
    second.undo()
    handle.undo()
    assert_same(traces(llama), before)


@pytest.mark.parametrize("quantise", [pytest.param(8, marks=thorough), 4])
def test_quantised_weights_are_those_of_their_codes(llama: Any, quantise: int) -> None:
    given = zoo.inputs("llama")
    before = traces(llama)
    handle = patch.transformers(llama, quantise=quantise)
    layers = {n: m for n, m in llama.named_modules() if isinstance(m, ops.QuantizedLinear)}
    assert len(layers) == 12 and isinstance(llama.lm_head, torch.nn.Linear)
    assert "gives the logits" in handle.report()
    assert "its 96 inputs are no whole groups" in handle.report()
    plain = zoo.build("llama")
    for name, layer in layers.items():
        plain.get_submodule(name).weight.data = ops.dequantize(layer.quantized)
    expected = plain(**given).logits
    assert (llama(**given).logits - expected).abs().max() <= NEAR * expected.abs().max()
    assert patch.transformers(llama, quantise=quantise).count == 0
    handle.undo()
    assert_same(traces(llama), before)


# --- what is not understood -----------------------------------------------------------------------


class OtherNorm(LlamaRMSNorm):
    """Named as one that is known, and computes another thing."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return (self.weight + 2.0) * super().forward(hidden_states)


def test_what_is_not_understood_is_left(llama: Any) -> None:
    llama.model.norm = OtherNorm(zoo.WIDTH)
    mine = llama.model.layers[0].mlp
    mine.forward = MethodType(lambda self, x: x, mine)
    given = zoo.inputs("llama")
    expected = llama(**given).logits
    handle = patch.transformers(llama, skip=["loss"])
    left = {row.name: row.why for row in handle.rows if not row.replaced}
    assert left.keys() == {"model.norm", "model.layers.0.mlp"}
    assert left["model.norm"].startswith("computes (self.weight + 2.0) * super().forward")
    assert "was replaced by" in left["model.layers.0.mlp"]
    torch.testing.assert_close(llama(**given).logits, expected, rtol=1e-4, atol=1e-4)
    handle.undo()
    assert "forward" in vars(mine)


def test_double_precision_goes_torchs_way(llama: Any) -> None:
    llama.double()
    given = zoo.inputs("llama")
    expected = llama.train()(**given)
    handle = patch.transformers(llama, linear_loss_from=0)
    found = llama(**given)
    torch.testing.assert_close(found.loss, expected.loss)
    torch.testing.assert_close(found.logits, expected.logits)
    handle.undo()


def test_undo_refuses_to_drop_what_came_later(llama: Any) -> None:
    before = traces(llama)
    handle = patch.transformers(llama)
    norm = llama.model.norm
    ours = norm.forward
    norm.forward = MethodType(lambda self, x: ours(x), norm)
    with pytest.raises(RuntimeError, match=r"model\.norm\.forward was set to .* Take that back"):
        handle.undo()
    assert llama.config._attn_implementation == attention.NAME
    norm.forward = ours
    handle.undo()
    assert_same(traces(llama), before)


def test_models_are_patched_apart(llama: Any) -> None:
    other = zoo.build("llama")
    ids = zoo.inputs("llama")["input_ids"]
    handle, second = patch.transformers(llama), patch.transformers(other)
    expected = other(ids).logits
    handle.undo()
    assert torch.equal(other(ids).logits, expected)
    assert not any("forward" in vars(module) for module in llama.modules())
    second.undo()


def test_bad_arguments_are_named_and_nothing_is_changed(llama: Any) -> None:
    before = traces(llama)
    with pytest.raises(TypeError, match=r"'model' expects an nn\.Module, got str"):
        patch.transformers("llama")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"'skip' expects groups of attention, .* got 'norm'"):
        patch.transformers(llama, skip=["norm"])
    with pytest.raises(ValueError, match="'quantise' expects 4, 8 or a scheme, got 5"):
        patch.transformers(llama, quantise=5)
    with pytest.raises(ValueError, match="no linear layer"):
        patch.transformers(llama, quantise=8, lora={"targets": ["c_attn"]})
    assert_same(traces(llama), before)


# --- longer ---------------------------------------------------------------------------------------


@thorough
@pytest.mark.parametrize("name", ["llama", "gemma2", "whisper"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_is_as_near_to_double_as_torch(name: str, dtype: torch.dtype) -> None:
    given = {k: v.to(dtype) if v.is_floating_point() else v for k, v in zoo.inputs(name).items()}
    exact = zoo.build(name).to(dtype).double()
    doubles = {k: v.double() if v.is_floating_point() else v for k, v in given.items()}
    expected = exact(**doubles).logits
    model = zoo.build(name).to(dtype)
    theirs = (model(**given).logits - expected).abs().max()
    handle = patch.transformers(model)
    ours = (model(**given).logits - expected).abs().max()
    assert ours <= 2 * theirs + 1e-3 * expected.abs().max()
    handle.undo()


@thorough
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_patched_model_compiles_whole(name: str) -> None:
    model = zoo.build(name)
    ids = zoo.inputs(name)["input_ids"]
    expected = model(ids).logits
    handle = patch.transformers(model)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(ids).logits, expected, rtol=1e-4, atol=1e-3)
    torch.compiler.reset()
    handle.undo()
