"""QuantizedLinear and quantize_model: state, dtypes, training around it, and a small Llama."""

from __future__ import annotations

import copy
import io

import gguf.quants
import pytest
import torch
import torch.nn.functional as F
from gguf import GGMLQuantizationType
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from anymetal import ops
from anymetal.ops.quantised.schemes import SCHEMES

each_scheme = pytest.mark.parametrize("scheme", SCHEMES)


def linear(inputs: int = 64, outputs: int = 9, bias: bool = True) -> nn.Linear:
    with torch.random.fork_rng():
        torch.manual_seed(inputs + outputs)
        return nn.Linear(inputs, outputs, bias)


def float_twin(layer: ops.QuantizedLinear, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, layer.quantized.dequantize(x.dtype), layer.bias)


# --- the layer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@each_scheme
def test_layer_is_the_float_layer_with_its_weights(scheme: str, bias: bool) -> None:
    layer = ops.QuantizedLinear.from_float(linear(bias=bias), scheme)
    for shape in ((64,), (1, 64), (2, 5, 64), (0, 64)):
        x = torch.randn(shape)
        torch.testing.assert_close(layer(x), float_twin(layer, x), rtol=1e-5, atol=1e-5)


@each_scheme
def test_weights_are_near_those_they_were_made_of(scheme: str) -> None:
    source = linear()
    layer = ops.QuantizedLinear.from_float(source, scheme)
    steps = 7 if SCHEMES[scheme].bits == 4 else 100
    error = (layer.quantized.dequantize(torch.float32) - source.weight).abs().max()
    assert 0 < error <= source.weight.abs().max() / steps
    assert layer.bias is source.bias


@each_scheme
def test_state_dict_goes_through_a_file_into_a_new_layer(scheme: str) -> None:
    layer = ops.QuantizedLinear.from_float(linear(), scheme, group_size=32)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = ops.QuantizedLinear(64, 9, scheme=scheme, group_size=32)
    x = torch.randn(3, 64)
    assert torch.equal(other(x), torch.zeros(3, 9))
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x), layer(x))
    expected = {"words", "scales", "layout", "bias"}
    if SCHEMES[scheme].kind != "symmetric":
        expected.add("offsets")
    assert set(layer.state_dict()) == expected
    assert [name for name, _ in layer.named_parameters()] == ["bias"]


def test_state_dict_of_another_scheme_is_refused() -> None:
    state = ops.QuantizedLinear.from_float(linear(), "mlx_4bit").state_dict()
    for scheme, numbers in (("int4_zero_point", r"\[4, 64, 1\]"), ("mlx_8bit", r"\[8, 64, 2\]")):
        message = rf"layout: .* scheme '{scheme}' are {numbers}, but \[4, 64, 2\]"
        with pytest.raises(RuntimeError, match=message):
            ops.QuantizedLinear(64, 9, scheme=scheme).load_state_dict(state)


def test_repr_says_what_it_is() -> None:
    layer = ops.QuantizedLinear.from_float(linear(), "q4_0", activation="silu")
    assert repr(layer) == (
        "QuantizedLinear(in_features=64, out_features=9, bias=True, scheme=q4_0, group_size=32,"
        " activation=silu)"
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@each_scheme
def test_layer_follows_the_dtype_of_a_model(scheme: str, dtype: torch.dtype) -> None:
    layer = ops.QuantizedLinear.from_float(linear(), scheme)
    before = layer.scales.clone()
    layer.to(dtype)
    if SCHEMES[scheme].is_ggml:
        assert layer.scales.dtype == torch.float16
        assert torch.equal(layer.scales, before)
    else:
        assert layer.scales.dtype == dtype
    x = torch.randn(2, 64).to(dtype)
    eps = torch.finfo(dtype).eps
    exact = F.linear(x.float(), layer.quantized.dequantize(torch.float32), layer.bias.float())
    torch.testing.assert_close(layer(x).float(), exact, rtol=eps, atol=1e-6)


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])
def test_activation_is_part_of_the_layer(activation: str) -> None:
    layer = ops.QuantizedLinear.from_float(linear(), "int8", activation=activation)
    x = torch.randn(3, 64)
    function = F.silu if activation == "silu" else F.gelu
    options = {"approximate": "tanh"} if activation == "gelu_tanh" else {}
    expected = function(float_twin(layer, x), **options)
    torch.testing.assert_close(layer(x), expected, rtol=1e-5, atol=1e-5)


def test_layers_around_it_learn() -> None:
    first, last = linear(8, 64), ops.QuantizedLinear.from_float(linear(64, 4), "int8")
    generator = torch.Generator().manual_seed(5)
    x, target = torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)
    parameters = [*first.parameters(), *last.parameters()]
    words = last.words.clone()
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    losses = []
    for _ in range(30):
        loss = F.mse_loss(last(first(x)), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert torch.equal(last.words, words)


def test_layer_can_be_copied_and_compiled() -> None:
    layer = copy.deepcopy(ops.QuantizedLinear.from_float(linear(), "mlx_4bit"))
    x = torch.randn(3, 64)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), layer(x))
    torch._dynamo.reset()


def test_layers_that_cannot_be_say_why() -> None:
    with pytest.raises(ValueError, match=r"in_features 100 are no whole groups of 64"):
        ops.QuantizedLinear(100, 4)
    with pytest.raises(ValueError, match=r"'group_size' expects 32, 64, 128 .*, got 16"):
        ops.QuantizedLinear(64, 4, group_size=16)
    with pytest.raises(ValueError, match=r"'activation' expects None, .*, got 'relu'"):
        ops.QuantizedLinear(64, 4, activation="relu")
    with pytest.raises(TypeError, match=r"'linear' expects an nn.Linear, got Conv1d"):
        ops.QuantizedLinear.from_float(nn.Conv1d(1, 1, 1), "int4")  # type: ignore[arg-type]


# --- whole models ---------------------------------------------------------------------------------


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = linear(64, 96)
        self.blocks = nn.ModuleList([nn.Sequential(linear(96, 64), nn.GELU())])
        self.again = self.up
        self.head = linear(64, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks[0](self.up(x))
        return self.head(self.blocks[0](self.again(x)))


def test_model_has_its_linears_replaced() -> None:
    model = Model()
    assert ops.quantize_model(model, "int8", group_size=32) is model
    kinds = {name: type(module) for name, module in model.named_modules()}
    assert kinds["up"] is kinds["blocks.0.0"] is kinds["head"] is ops.QuantizedLinear
    assert model.again is model.up  # one layer in two places stays one
    x = torch.randn(3, 64)
    torch.testing.assert_close(model(x), Model()(x), rtol=0, atol=0.02)


def test_filter_chooses_layers() -> None:
    model = Model()
    ops.quantize_model(model, "q8_0", filter=lambda name, _: name != "head")
    assert type(model.head) is nn.Linear
    assert type(model.up) is ops.QuantizedLinear
    # A second call finds what is left.
    ops.quantize_model(model, "int4", filter=lambda _, module: module.out_features == 5)
    assert isinstance(model.head, ops.QuantizedLinear)
    assert model.head.scheme == "int4"
    with pytest.raises(ValueError, match=r"no nn.Linear of the model to quantise: it has none"):
        ops.quantize_model(model, "int4")
    with pytest.raises(ValueError, match="the filter refused all 4"):
        ops.quantize_model(Model(), "int4", filter=lambda *_: False)


def test_a_linear_is_a_model_too() -> None:
    layer = ops.quantize_model(linear(), "int4")
    assert isinstance(layer, ops.QuantizedLinear)


def test_subclasses_of_linear_are_left_alone() -> None:
    # nn.MultiheadAttention takes its projection's weight and never calls it.
    model = nn.Sequential(linear(64, 64), nn.MultiheadAttention(64, 2))
    ops.quantize_model(model, "int4")
    assert isinstance(model[0], ops.QuantizedLinear)
    assert isinstance(model[1].out_proj, nn.Linear)


def test_nothing_changes_where_a_layer_does_not_fit() -> None:
    model = Model()
    with pytest.raises(ValueError, match=r"groups of 64, but 'blocks.0.0' has in_features 96\."):
        ops.quantize_model(model, "int4")
    assert type(model.up) is nn.Linear
    with pytest.raises(ValueError, match=r"'up' is torch.float64"):
        ops.quantize_model(Model().double(), "q4_0")
    with pytest.raises(ValueError, match=r"'up' has no weights yet \(device meta\)"):
        ops.quantize_model(Model().to("meta"), "q4_0")
    with pytest.raises(ValueError, match="quantize_model: argument 'scheme' expects one of"):
        ops.quantize_model(Model(), "q2")
    with pytest.raises(TypeError, match=r"'model' expects an nn.Module, got list"):
        ops.quantize_model([], "int4")  # type: ignore[arg-type]


# --- a small Llama --------------------------------------------------------------------------------


def llama(dtype: torch.dtype = torch.float32) -> LlamaForCausalLM:
    with torch.random.fork_rng():
        torch.manual_seed(11)
        config = LlamaConfig(
            vocab_size=97,
            hidden_size=64,
            intermediate_size=160,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            initializer_range=0.2,
            bos_token_id=1,
            eos_token_id=2,
        )
        return LlamaForCausalLM(config).eval().to(dtype)


def ggml_twin(model: LlamaForCausalLM, kind: GGMLQuantizationType) -> LlamaForCausalLM:
    """The same model with the weights that gguf gives back."""
    twin = copy.deepcopy(model)
    for module in twin.modules():
        if isinstance(module, nn.Linear):
            blocks = gguf.quants.quantize(module.weight.detach().float().numpy(), kind)
            weight = torch.from_numpy(gguf.quants.dequantize(blocks, kind))
            module.weight.data.copy_(weight)
    return twin


@pytest.mark.parametrize(
    ("scheme", "kind"),
    [("q4_0", GGMLQuantizationType.Q4_0), ("q8_0", GGMLQuantizationType.Q8_0)],
)
def test_llama_of_ggml_weights_agrees_with_gguf_s(scheme: str, kind: GGMLQuantizationType) -> None:
    plain = llama()
    twin = ggml_twin(plain, kind)
    quantized = ops.quantize_model(copy.deepcopy(plain), scheme)
    names = [n for n, m in quantized.named_modules() if isinstance(m, ops.QuantizedLinear)]
    assert len(names) == 2 * 7 + 1
    tokens = torch.randint(0, 97, (2, 11), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        mine, theirs = quantized(tokens).logits, twin(tokens).logits
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
        # It is the quantisation that is compared: the plain model is another one.
        assert (plain(tokens).logits - theirs).abs().max() > 0.01
        settings = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 2}
        generated = quantized.generate(tokens[:1], **settings)
        assert torch.equal(generated, twin.generate(tokens[:1], **settings))


def test_llama_in_bfloat16_keeps_ggml_s_scales() -> None:
    model = llama()
    quantized = ops.quantize_model(copy.deepcopy(model), "q4_0").bfloat16()
    twin = ggml_twin(model, GGMLQuantizationType.Q4_0)
    tokens = torch.randint(0, 97, (1, 6), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        mine, theirs = quantized(tokens).logits, twin(tokens).logits
    error = (mine.float() - theirs).abs().max() / theirs.abs().max()
    assert error < 0.05
