"""Kernels in the ways that programs for GPUs call them: CUDA graphs, streams, threads, compiled.

    python tests/cuda/programs.py --compile programs.bundle
    ANYMETAL_BUNDLE=programs.bundle python tests/cuda/programs.py

The first compiles the kernels on any machine; the second runs each program beside a plain one, or
beside torch.
"""

from __future__ import annotations

import argparse
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import anymetal
from anymetal import ops, optim

sys.path.insert(0, str(Path(__file__).parent))
from bundling import write_kernels

TEXT = """#include <metal_stdlib>
using namespace metal;
struct Wide { float values[64]; };

kernel void sums(device float* y, constant array<device float*, 3>& parts [[buffer(1)]],
                 constant Wide& wide [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  y[i] = parts[0][i] + 2 * parts[1][i] + 3 * parts[2][i] + wide.values[i % 64];
}
kernel void alone(device float* y, constant array<device float*, 2>& parts [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
  y[i] = parts[0][i] - parts[1][i];
}
kernel void far(device ulong* out, uint3 at [[thread_position_in_grid]],
                uint3 size [[threads_per_grid]], uint3 groups [[threadgroups_per_grid]],
                uint3 group [[threadgroup_position_in_grid]]) {
  const uint i = (at.z * size.y + at.y) * size.x + at.x;
  out[i] = ((ulong(group.z) * groups.y + group.y) << 20) + simd_sum(at.x + 1);
}
"""
VOCABULARY, WIDTH, HEADS, TOKENS = 1000, 128, 4, 96


class Network(torch.nn.Module):
    """A block of a language model: every kind of launch that training has."""

    def __init__(self, device: str) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(7)

        def parameter(*shape: int) -> torch.nn.Parameter:
            values = torch.randn(shape, generator=generator) * shape[-1] ** -0.5
            return torch.nn.Parameter(values.to(device))

        self.table = parameter(VOCABULARY, WIDTH)
        self.scale = torch.nn.Parameter(torch.ones(WIDTH, device=device))
        self.into, self.out = parameter(3 * WIDTH, WIDTH), parameter(WIDTH, WIDTH)
        self.gates, self.down = parameter(8 * WIDTH, WIDTH), parameter(WIDTH, 4 * WIDTH)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = ops.embedding(tokens, self.table)
        parts = ops.linear(ops.rms_norm(x, (WIDTH,), self.scale), self.into).chunk(3, -1)
        q, k, v = (part.view(*tokens.shape, HEADS, -1).transpose(1, 2) for part in parts)
        q, k = ops.rope(q, k)
        seen = ops.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + ops.linear(seen.transpose(1, 2).reshape(x.shape), self.out)
        x = x + ops.linear(ops.swiglu(ops.linear(x, self.gates)), self.down)
        logits = ops.linear(x, self.table).flatten(0, 1)
        return ops.cross_entropy(logits, targets.flatten())


class Training:
    """The network, its optimizer and places for a batch."""

    def __init__(self, device: str) -> None:
        self.network = Network(device)
        self.optimizer = optim.AdamW(self.network.parameters(), lr=1e-3)
        places = torch.zeros(2, 2, TOKENS, dtype=torch.int64, device=device)
        self.tokens, self.targets = places
        self.loss = torch.zeros((), device=device)

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=False)
        loss = self.network(self.tokens, self.targets)
        loss.backward()
        optim.clip_grad_norm_(list(self.network.parameters()), 1.0)
        self.optimizer.step()
        self.loss.copy_(loss.detach())

    def feed(self, number: int) -> None:
        generator = torch.Generator().manual_seed(number)
        batch = torch.randint(VOCABULARY, (2, 2, TOKENS), generator=generator)
        self.tokens.copy_(batch[0])
        self.targets.copy_(batch[1])


def training_as_a_graph(device: str) -> None:
    """Whole steps recorded, and replayed with other batches."""
    plain, recorded = Training(device), Training(device)
    for each in (plain, recorded):
        for number in range(3):
            each.feed(number)
            each.step()
    if device == "cpu":
        return
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded.step()
    for number in range(3, 12):
        for each, run in ((plain, plain.step), (recorded, graph.replay)):
            each.feed(number)
            run()
        close(recorded.loss, plain.loss, f"loss of step {number}", 1e-5)
    pairs = zip(recorded.network.parameters(), plain.network.parameters(), strict=True)
    for number, (ours, theirs) in enumerate(pairs):
        close(ours, theirs, f"parameter {number} after 12 steps", 1e-4)


def recorded_without_a_call_before(device: str) -> None:
    """Code is loaded and constants are copied while the graph is recorded; many others follow."""
    library = anymetal.compile_shader(TEXT)
    parts = [torch.randn(1000, device=device) for _ in range(3)]
    y, z = (torch.zeros(1000, device=device) for _ in range(2))
    wide = [i / 8 for i in range(64)]

    def run() -> None:
        library.sums(y, parts, {"values": wide}, threads=1000, group_size=100)
        library.alone(z, [y, parts[0]], threads=1000, group_size=256)

    if device == "cpu":
        run()
        return
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    other = torch.zeros(1000, device=device)
    for number in range(1500):  # more than are kept
        library.sums(other, parts, {"values": [float(number)] * 64}, threads=1000, group_size=100)
    for _ in range(3):
        for part in parts:
            part.normal_()
        graph.replay()
        added = torch.tensor(wide, device=device).repeat(16)[:1000]
        expected = parts[0] + 2 * parts[1] + 3 * parts[2] + added
        close(y, expected, "lists and structs of a graph", 1e-6)
        close(z, expected - parts[0], "the kernel behind it", 1e-6)


def wrong_index_in_a_graph(device: str) -> None:
    table, index = (
        torch.randn(50, 4, device=device),
        torch.zeros(8, 4, dtype=torch.int64).to(device),
    )

    def run() -> Tensor:
        return ops.gather(table, 0, index)

    run()
    if device == "cpu":
        return
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    graph.replay()
    run()
    index[3, 1] = 50
    graph.replay()
    torch.cuda.synchronize()
    index[3, 1] = 0
    try:
        run()
    except RuntimeError as error:
        expect("CUDA graph" in str(error), f"what a graph reported: {str(error)[:120]}")
    else:
        expect(False, "a graph's wrong index was not reported")
    run()


def streams(device: str) -> None:
    """Launches wait for what their own stream has, and for nothing else."""
    x = torch.ones(1 << 20, device=device)
    if device == "cpu":
        ops.silu(x)
        return
    chains = [torch.cuda.Stream() for _ in range(3)]
    for round_ in range(20):
        results = []
        for number, stream in enumerate(chains):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                y = x * 0
                torch.cuda._sleep(300_000 * (3 - number))
                y += number + round_ / 8
                results.append(ops.silu(ops.silu(y)))
        for number, (stream, found) in enumerate(zip(chains, results, strict=True)):
            torch.cuda.current_stream().wait_stream(stream)
            expected = F.silu(F.silu(torch.tensor(number + round_ / 8)))
            close(found, expected.to(device).expand(1 << 20), f"stream {number}", 1e-6)


def threads(device: str) -> None:
    """Eight threads of Python, each with a stream of its own; one whose first act is a launch that
    copies constants."""
    first_act(device)
    rows, weight = torch.randn(64, 512, device=device), torch.randn(512, device=device)
    expected = ops.rms_norm(rows, (512,), weight)
    if device == "cpu":
        return
    torch.cuda.synchronize()
    faults: list[str] = []

    def work(number: int) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(300):
                    found = ops.rms_norm(rows * 1, (512,), weight)
                    if not torch.equal(found, expected):
                        faults.append(f"thread {number} has another result")
        except Exception:
            faults.append(traceback.format_exc())

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    expect(not faults, f"eight threads: {faults[:1]}")


def first_act(device: str) -> None:
    library = anymetal.compile_shader(TEXT)
    parts = [torch.randn(1000, device=device) for _ in range(3)]
    y = torch.zeros(1000, device=device)

    def work() -> None:
        wide = {"values": [4.0] * 64}
        library.sums(y, parts, wide, threads=1000, group_size=100)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    if device != "cpu":
        close(y, parts[0] + 2 * parts[1] + 3 * parts[2] + 4, "a thread's first act", 1e-6)


def compiled(device: str) -> None:
    """torch.compile, with CUDA graphs of its own too: results and gradients."""
    plain = Training(device)
    plain.feed(0)
    network = plain.network
    expected = network(plain.tokens, plain.targets)
    expected.backward()
    if device == "cpu":
        return
    gradients = [parameter.grad.clone() for parameter in network.parameters()]  # type: ignore[union-attr]
    for mode in ("default", "reduce-overhead"):
        made = torch.compile(network, fullgraph=True, mode=mode)
        for _ in range(4):  # the third call of "reduce-overhead" replays
            network.zero_grad()
            torch.compiler.cudagraph_mark_step_begin()
            loss = made(plain.tokens, plain.targets)
            loss.backward()
        close(loss, expected, f"torch.compile, {mode}", 1e-5)
        for number, parameter in enumerate(network.parameters()):
            assert parameter.grad is not None
            close(parameter.grad, gradients[number], f"{mode}: gradient {number}", 1e-4)


def autocast(device: str) -> None:
    a, b = torch.randn(64, 256, device=device), torch.randn(96, 256, device=device)
    with torch.autocast(device, torch.bfloat16):
        found = ops.linear(a, b)
        expected = F.linear(a, b)
    expect(found.dtype == expected.dtype == torch.bfloat16, f"autocast gives {found.dtype}")
    if device != "cpu":
        close(found, expected, "autocast", 1e-2)


def large_grids(device: str) -> None:
    """More threadgroups along y and z than CUDA has."""
    far = anymetal.compile_shader(TEXT).far
    for grid, group in (((32, 200_001, 1), (32, 1, 1)), ((5, 3, 140_000), (5, 2, 1))):
        out = torch.zeros(*reversed(grid), dtype=torch.int64, device=device)
        far(out, threads=grid, group_size=group)
        if device == "cpu":
            continue
        z, y = (torch.arange(grid[axis], device=device) // group[axis] for axis in (2, 1))
        place = z[:, None] * -(-grid[1] // group[1]) + y
        # Rows of a threadgroup share a simdgroup: those at the edge are fewer.
        down = torch.full((grid[1],), group[1], device=device)
        down[grid[1] // group[1] * group[1] :] = grid[1] % group[1]
        total = sum(range(1, grid[0] + 1)) * down
        expected = (place << 20)[:, :, None] + total[None, :, None]
        expect(torch.equal(out, expected.expand_as(out)), f"a grid of {grid}")
    weight = torch.randn(128_256, 64, device=device)
    quantised = ops.quantize(weight, "int4", 64)
    back = ops.dequantize(quantised)
    a, b = torch.randn(70_000, 8, 8, device=device), torch.randn(70_000, 8, 8, device=device)
    products = ops.matmul(a, b)
    rows = ops.softmax(a, 1)
    if device != "cpu":
        worst = float((back - weight).abs().max() / quantised.scales.abs().max())
        expect(worst <= 0.51, f"128,256 quantised rows are {worst:.2f} steps off")
        close(products, a @ b, "70,000 products", 1e-5)
        close(rows, a.softmax(1), "70,000 softmaxes", 1e-6)


def unaligned(device: str) -> None:
    """Views that begin anywhere have the results of whole tensors (vectors there: unaligned.py)."""
    base = torch.randn(64 * 96 + 1, device=device)
    weight = torch.randn(97, device=device)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x, w = base.to(dtype)[1:].view(64, 96), weight.to(dtype)[1:]
        calls: dict[str, Callable[..., Tensor]] = {
            "silu": lambda x, w: ops.silu(x),
            "rms_norm": lambda x, w: ops.rms_norm(x, (96,), w),
            "softmax": lambda x, w: ops.softmax(x, -1),
            "matmul": lambda x, w: ops.matmul(x, x.mT),
            "matvec": lambda x, w: ops.linear(w[None], x),
            "attention": lambda x, w: ops.scaled_dot_product_attention(
                *[x.view(1, 4, 16, 96)] * 3, is_causal=True
            ),
            "rope": lambda x, w: ops.rope(*[x.view(1, 4, 16, 96)] * 2, x[:16, :48], x[16:32, :48])[
                0
            ],
        }
        for name, call in calls.items():
            found, expected = call(x, w), call(x.clone(), w.clone())
            if device != "cpu":
                close(found, expected, f"{name} of an unaligned {dtype}", 1e-2)


def memory(device: str) -> None:
    """Many launches with new lists leave nothing behind."""
    library = anymetal.compile_shader(TEXT)
    parts = [torch.randn(1000, device=device) for _ in range(3)]
    y = torch.zeros(1000, device=device)

    def launches(count: int, start: int) -> None:
        for number in range(start, start + count):
            wide = {"values": [float(number)] * 64}
            library.sums(y, parts, wide, threads=1000, group_size=100)
            ops.silu(y)

    launches(1, 0)
    if device == "cpu":
        return
    launches(2000, 1)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    launches(20_000, 3000)
    torch.cuda.synchronize()
    grown = torch.cuda.memory_allocated() - before
    expect(grown <= 0, f"20,000 launches leave {grown} bytes")


def close(ours: Tensor, theirs: Tensor, what: str, relative: float) -> None:
    """Only what is wrong is printed."""
    difference = (ours.detach().double() - theirs.detach().double()).norm()
    error = float(difference / theirs.detach().double().norm().clamp_min(1e-30))
    if not error <= relative:
        expect(False, f"{what}: {error:.1e} off")


def expect(right: bool, what: str) -> None:
    if not right:
        print("WRONG", what, flush=True)
        _wrong.append(what)


_wrong: list[str] = []
PROGRAMS: tuple[Callable[[str], Any], ...] = (
    training_as_a_graph,
    recorded_without_a_call_before,
    wrong_index_in_a_graph,
    streams,
    threads,
    compiled,
    autocast,
    large_grids,
    unaligned,
    memory,
)


def main() -> int:
    for program in PROGRAMS:
        before = len(_wrong)
        try:
            program("cuda")
        except Exception as error:
            lines = traceback.format_exc(limit=-3)
            expect(
                False, f"{program.__name__}: {type(error).__name__}: {str(error)[:600]}\n{lines}"
            )
        print(f"{program.__name__}: {'right' if len(_wrong) == before else 'WRONG'}", flush=True)
    return len(_wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", type=Path)
    options = parser.parse_args()
    if options.compile:
        write_kernels(options.compile, lambda: [program("cpu") for program in PROGRAMS])
    else:
        sys.exit(main())
