"""Modules, optimizers, and what is saved and loaded."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn


def convnet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * 16, 10),
        nn.LayerNorm(10),
    )


def test_parameters_stay_the_same_objects() -> None:
    net = convnet()
    parameters = list(net.parameters())
    optimizer = torch.optim.AdamW(net.parameters())
    net.to("mps")
    for before, after in zip(parameters, net.parameters(), strict=True):
        assert before is after
        assert after.is_mps
        assert isinstance(after, nn.Parameter)
    net(torch.randn(2, 1, 8, 8, device="mps")).sum().backward()
    optimizer.step()
    net.cpu()
    assert parameters[0].is_cpu


def test_forward_is_that_of_the_cpu() -> None:
    net = convnet()
    x = torch.randn(4, 1, 8, 8)
    expected = copy.deepcopy(net)(x)
    assert torch.allclose(net.to("mps")(x.to("mps")).cpu(), expected, atol=1e-6)


@pytest.mark.parametrize(
    "module",
    [
        nn.LSTM(8, 5, batch_first=True),
        nn.GRU(8, 5, num_layers=2),
        nn.MultiheadAttention(8, 2, batch_first=True),
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        nn.Conv1d(3, 4, 3),
        nn.ConvTranspose1d(3, 4, 3),
        nn.Upsample(scale_factor=2),
        nn.PReLU(),
        nn.Bilinear(8, 8, 3),
    ],
    ids=lambda module: type(module).__name__,
)
def test_module_and_its_gradients(module: nn.Module) -> None:
    x = torch.randn(2, 3, 8)
    count = {"MultiheadAttention": 3, "Bilinear": 2}.get(type(module).__name__, 1)

    def run(device: str) -> tuple[torch.Tensor, list[torch.Tensor]]:
        torch.manual_seed(1)
        moved = copy.deepcopy(module).to(device).eval()
        leaf = x.to(device).requires_grad_()
        result = moved(*[leaf] * count)
        first = result[0] if isinstance(result, tuple) else result
        first.sum().backward()
        return first.detach().cpu(), [t.grad.cpu() for t in (leaf, *moved.parameters())]

    ours, our_gradients = run("mps")
    expected, expected_gradients = run("cpu")
    assert torch.allclose(ours, expected, atol=1e-5)
    for mine, other in zip(our_gradients, expected_gradients, strict=True):
        assert torch.allclose(mine, other, atol=1e-5)


def test_attention_masks_and_groups() -> None:
    query = torch.randn(1, 4, 6, 8)
    key, value = torch.randn(2, 1, 2, 6, 8)
    mask = torch.rand(6, 6) > 0.3
    mask.fill_diagonal_(True)
    attend = nn.functional.scaled_dot_product_attention
    for keywords in ({"is_causal": True}, {"attn_mask": mask}, {"scale": 0.5}):
        moved = {
            name: v.to("mps") if isinstance(v, torch.Tensor) else v for name, v in keywords.items()
        }
        ours = attend(query.to("mps"), key.to("mps"), value.to("mps"), enable_gqa=True, **moved)
        expected = attend(query, key, value, enable_gqa=True, **keywords)
        assert torch.allclose(ours.cpu(), expected, atol=1e-5)


def test_packed_sequences() -> None:
    padded = torch.randn(3, 5, 4, device="mps")
    packed = nn.utils.rnn.pack_padded_sequence(padded, [5, 3, 2], batch_first=True)
    output, _ = nn.LSTM(4, 6, batch_first=True, device="mps")(packed)
    unpacked, lengths = nn.utils.rnn.pad_packed_sequence(output, batch_first=True)
    assert unpacked.shape == (3, 5, 6)
    assert lengths.tolist() == [5, 3, 2]


def test_embedding_and_losses() -> None:
    table = nn.Embedding(10, 4, device="mps")
    logits = table(torch.tensor([1, 2], device="mps")) @ table.weight.T
    nn.functional.cross_entropy(logits, torch.tensor([3, 4], device="mps")).backward()
    assert table.weight.grad is not None
    assert table.weight.grad.is_mps


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "LBFGS", "Muon"])
def test_optimizer_steps_are_those_of_the_cpu(name: str) -> None:
    start = torch.randn(4, 4)

    def train(device: str) -> torch.Tensor:
        weight = start.to(device).requires_grad_()
        optimizer = getattr(torch.optim, name)([weight], lr=0.1)

        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            value = (weight**2).sum()
            value.backward()
            return value

        for _ in range(3):
            optimizer.step(loss)
        return weight.detach().cpu()

    assert torch.allclose(train("mps"), train("cpu"), atol=1e-5)


def test_gradients_are_clipped() -> None:
    net = nn.Linear(4, 4, device="mps")
    net(torch.ones(2, 4, device="mps")).sum().backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    assert nn.utils.get_total_norm([p.grad for p in net.parameters()]).item() <= 0.5001


@pytest.mark.parametrize("weights_only", [True, False])
def test_saved_state_is_loaded(weights_only: bool) -> None:
    net = convnet().to("mps")
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    for location, kind in ((None, "mps"), ("cpu", "cpu"), ("mps", "mps")):
        file.seek(0)
        state = torch.load(file, map_location=location, weights_only=weights_only)
        assert {tensor.device.type for tensor in state.values()} == {kind}
        assert torch.equal(state["0.weight"].cpu(), net[0].weight.detach().cpu())
    other = convnet()
    other.load_state_dict(net.state_dict())
    assert torch.equal(other[0].weight, net[0].weight.cpu())


def test_saved_views_share_memory_after_loading() -> None:
    x = torch.arange(6.0, device="mps")
    file = io.BytesIO()
    torch.save([x, x[2:]], file)
    file.seek(0)
    whole, part = torch.load(file)
    part[0] = 9
    assert whole[2].item() == 9


def test_pickle_and_copies() -> None:
    x = torch.arange(3.0, device="mps")
    again = pickle.loads(pickle.dumps(x))
    assert again.is_mps
    assert torch.equal(again, x)
    twin = copy.deepcopy(x)
    twin[0] = 5
    assert x[0].item() == 0


def test_safetensors(tmp_path: Path) -> None:
    net = convnet().to("mps")
    path = tmp_path / "net.safetensors"
    save_file(net.state_dict(), path)
    loaded = load_file(path, device="mps")
    assert all(tensor.is_mps for tensor in loaded.values())
    assert torch.equal(loaded["0.weight"], net[0].weight)


def test_optimizer_state_is_saved_and_loaded() -> None:
    weight = torch.ones(3, device="mps", requires_grad=True)
    optimizer = torch.optim.Adam([weight])
    weight.sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    other = torch.optim.Adam([weight])
    other.load_state_dict(torch.load(file))
    assert other.state[weight]["exp_avg"].is_mps


def test_scripted_and_traced_modules() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).to("mps")
    x = torch.ones(2, 3, device="mps")
    assert torch.equal(torch.jit.trace(net, x)(x), net(x))
