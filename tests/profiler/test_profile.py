"""The profiler's counts, against kernels counted by hand and against `kernel.count`; its hints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

import anymetal
from anymetal.cli.app import app
from anymetal.evidence.tables import as_text
from anymetal.passes.simdgroup.observers import bank_cycles
from anymetal.profiler.hints import hints
from anymetal.profiler.lines import KernelProfile
from anymetal.profiler.listing import as_data, bounds_table, listing, source_table
from anymetal.profiler.page import page
from anymetal.profiler.roofline import Chip, bound, chips, intensity, operations

HERE = Path(__file__).parent
SOURCE = (HERE / "profiled.metal").read_text()
LINES = SOURCE.splitlines()


def line_of(mark: str) -> int:
    """The line that ends with `// mark`."""
    return next(n for n, text in enumerate(LINES, 1) if text.endswith(f"// {mark}"))


@pytest.fixture(scope="module")
def library() -> Any:
    return anymetal.compile_shader(SOURCE, name="profiled.metal")


def profiled(kernel: Any, *args: Any, **keywords: Any) -> KernelProfile:
    with anymetal.profile() as found:
        kernel(*args, **keywords)
    return found[kernel.name]


def kinds(profile: KernelProfile) -> set[str]:
    return {hint.kind for hint in hints(profile)}


def test_counts_of_a_kernel_counted_by_hand(library: Any) -> None:
    x, y = torch.randn(1024), torch.empty(1024)
    profile = profiled(library.tiled, x, y, threads=1024, group_size=64)
    assert torch.equal(y.view(-1, 64), x.view(-1, 64).flip(1) * 2 + 1)
    load, wait, store = (profile.lines[line_of(m)] for m in ("load", "wait", "store"))
    assert load.executions == 32 and load.lanes == 1024 and load.idle == 0
    assert load.reads == {"device": 1024} and load.writes == {"threadgroup": 1024}
    assert load.bytes == {"device": 4096, "threadgroup": 4096}
    assert load.moved_bytes == load.least_bytes == 32 * 128
    assert load.bank_cycles == load.least_cycles == 32
    assert wait.barriers == 1024
    assert store.operations["fp32"] == 2 * 1024  # a fused multiplication and addition
    assert store.reads == {"threadgroup": 1024} and store.writes == {"device": 1024}
    assert profile.touched_bytes == 2 * 4096 and profile.threadgroup_bytes == 256
    assert profile.groups_at_once == 128 and profile.threads_at_once == 128 * 64
    assert not hints(profile) and not profile.never


def test_counts_agree_with_count(library: Any) -> None:
    x, y = torch.randn(1000), torch.empty(1000)
    for name in ("tiled", "strided", "branches"):
        kernel = getattr(library, name)
        given = (x, y) if name != "branches" else (x, y, 3)
        counted = kernel.count(*given, threads=1000, group_size=64)
        total = profiled(kernel, *given, threads=1000, group_size=64).total
        reads = total.reads["device"] + total.reads["constant"]
        assert reads == counted.device_reads and total.writes["device"] == counted.device_writes
        assert total.bytes["device"] + total.bytes["constant"] == (
            counted.device_bytes_read + counted.device_bytes_written
        )
        assert total.reads["threadgroup"] == counted.threadgroup_reads
        assert total.writes["threadgroup"] == counted.threadgroup_writes
        assert total.barriers == counted.barriers


def test_results_are_those_of_a_plain_run(library: Any) -> None:
    x = torch.randn(997)
    plain, counted = torch.empty(997), torch.empty(997)
    library.branches(x, plain, 3, threads=997, group_size=96)
    profiled(library.branches, x, counted, 3, threads=997, group_size=96)
    assert torch.equal(plain, counted)


def test_strided_reads(library: Any) -> None:
    x, y = torch.randn(16 * 1024), torch.empty(1024)
    profile = profiled(library.strided, x, y, threads=1024, group_size=64)
    line = profile.lines[line_of("strided")]
    assert line.moved_bytes == 32 * (16 + 1) * 128 and line.least_bytes == 32 * 2 * 128
    (hint,) = hints(profile)
    assert hint.kind == "coalescing" and hint.line == line_of("strided")
    assert "each lane reads 'x' 16 elements apart: 16x the bytes" in hint.text
    assert hint.saves == line.moved_bytes - line.least_bytes
    assert "coalescing" not in kinds(profiled(library.tiled, x, y, threads=1024, group_size=64))


def test_a_view_that_begins_within_a_line_moves_more(library: Any) -> None:
    storage, y = torch.randn(1024 + 16), torch.empty(1024)
    aligned = profiled(library.tiled, storage[:1024], y, threads=1024, group_size=64)
    shifted = profiled(library.tiled, storage[16:], y, threads=1024, group_size=64)
    moved = [p.lines[line_of("load")].moved_bytes for p in (aligned, shifted)]
    assert moved == [32 * 128, 64 * 128]
    assert kinds(shifted) == {"alignment"} and not kinds(aligned)


def test_bank_conflicts(library: Any) -> None:
    x, y = torch.randn(1024), torch.empty(1024)
    bad = profiled(library.transposed, x, y, 32, threads=1024, group_size=1024)
    good = profiled(library.transposed, x, y, 33, threads=1024, group_size=1024)
    assert torch.equal(y.view(32, 32), x.view(32, 32).T)
    line = bad.lines[line_of("column")]
    assert line.bank_cycles == 32 * 32 and line.least_cycles == 32 and line.worst_bank == 32
    assert [h.text[:6] for h in hints(bad) if h.kind == "banks"] == ["32-way"]
    assert "banks" not in kinds(good)
    assert good.lines[line_of("column")].bank_cycles == 32


def test_cycles_of_banks_counted_by_hand() -> None:
    lanes = range(32)
    assert bank_cycles(tuple(4 * lane for lane in lanes), 4) == (1, 1)
    assert bank_cycles(tuple(8 * lane for lane in lanes), 4) == (2, 1)
    assert bank_cycles(tuple(128 * lane for lane in lanes), 4) == (32, 1)
    assert bank_cycles(tuple(132 * lane for lane in lanes), 4) == (1, 1)
    assert bank_cycles((0,) * 32, 4) == (1, 1)  # all lanes get one word at once
    assert bank_cycles(tuple(16 * lane for lane in lanes), 16) == (4, 4)


def test_divergence_and_coverage(library: Any) -> None:
    x, y = torch.randn(1024), torch.empty(1024)
    profile = profiled(library.branches, x, y, 3, threads=1024, group_size=64)
    even, never = profile.lines[line_of("even")], profile.lines[line_of("never")]
    assert even.lanes == 3 * 512 and even.idle == pytest.approx(0.5)
    assert never.executions == 0 and line_of("never") in profile.never
    assert line_of("taken") in {branch.line for branch in profile.one_way}
    (hint,) = [hint for hint in hints(profile) if hint.kind == "divergence"]
    assert "50 % of the lanes idle" in hint.text and hint.saves > 0
    assert "divergence" not in kinds(profiled(library.tiled, x, y, threads=1024, group_size=64))
    both = profiled(library.branches, x, y, 700, threads=1024, group_size=64)
    assert line_of("never") not in both.never


def test_lanes_that_the_grid_lacks_are_no_hint(library: Any) -> None:
    x, y = torch.randn(8), torch.empty(8)
    profile = profiled(library.strided, x.repeat(16), y, threads=8, group_size=8)
    assert profile.lines[line_of("strided")].idle == 0.75 and "divergence" not in kinds(profile)


def test_passes_over_a_buffer(library: Any) -> None:
    x, y = torch.randn(64, 256), torch.empty(64)
    two = profiled(library.spread, x, y, 256, threads=64 * 32, group_size=32)
    (hint,) = [hint for hint in hints(two) if hint.kind == "passes"]
    assert hint.line == line_of("again") and "two passes over x" in hint.text
    assert hint.saves == x.numel() * 4
    one = profiled(library.means, x, y, 256, threads=64 * 32, group_size=32)
    assert "passes" not in kinds(one) and one.total.collectives > 0
    torch.testing.assert_close(y, x.mean(1))


def test_atomics(library: Any) -> None:
    x, count = torch.zeros(1024, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    bad = profiled(library.histogram, x, count, threads=1024, group_size=64)
    line = bad.lines[line_of("atomic")]
    assert line.atomics == {"device": 1024} and line.contended == 1024
    (hint,) = [hint for hint in hints(bad) if hint.kind == "atomics"]
    assert "32 lanes of a simdgroup wait for one address" in hint.text
    assert hint.saves == 1024 - 32
    spread = torch.arange(1024, dtype=torch.int32) % 64
    good = profiled(library.histogram, spread, count, threads=1024, group_size=64)
    assert good.lines[line_of("atomic")].contended == 32 and "atomics" not in kinds(good)


def test_private_memory_and_occupancy(library: Any) -> None:
    x, y = torch.randn(64), torch.empty(64)
    order = torch.arange(64, dtype=torch.int32) % 8
    bad = profiled(library.private_array, x, y, order, threads=64, group_size=64)
    assert "private" in kinds(bad) and bad.total.bytes["private"] > 0
    assert bad.threads_at_once == 64 and "occupancy" in kinds(bad)
    good = profiled(library.tiled, x, y, threads=64, group_size=64)
    assert not kinds(good) & {"private", "occupancy"}


def test_launches_are_added_up(library: Any) -> None:
    x, y = torch.randn(1024), torch.empty(1024)
    with anymetal.profile() as found:
        for _ in range(3):
            library.tiled(x, y, threads=1024, group_size=64)
        library.tiled(x, y, threads=0, group_size=64)
    profile = found["tiled"]
    assert profile.launches == 4 and profile.total.barriers == 3 * 1024
    assert profile.touched_bytes == 3 * 8192
    with pytest.raises(KeyError, match="no kernel 'absent' was launched"):
        found["absent"]


def test_bounds(library: Any) -> None:
    x, y = torch.randn(1024), torch.empty(1024)
    profile = profiled(library.tiled, x, y, threads=1024, group_size=64)
    assert operations(profile) == 2048 and intensity(profile) == 2048 / 8192
    one = bound(profile, Chip("test", bandwidth=100, fp32=2.0))
    assert one.memory == pytest.approx(8192 / 100e9 * 1e6)
    assert one.compute == pytest.approx(2048 / 2e12 * 1e6)
    assert one.least == one.memory and one.limit == "memory"
    unknown = bound(profile, Chip("half known", bandwidth=100))
    assert unknown.compute is None and unknown.limit == "memory at least"


def test_every_figure_of_a_chip_has_its_source() -> None:
    names = [chip.name for chip in chips()]
    assert {"M1", "M2", "M3", "M4", "M5"} <= {name.split()[0] for name in names}
    for chip in chips():
        known = {n for n in ("cores", "bandwidth", "fp32", "fp16") if getattr(chip, n) is not None}
        assert known == set(chip.source), chip.name


def test_texts_fit_and_data_are_numbers(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    x, y = torch.randn(1024), torch.empty(1024)
    profile = profiled(library.branches, x, y, 3, threads=1024, group_size=64)
    text = listing(profile)
    assert max(map(len, text.splitlines())) <= 80
    assert "never executed: lines" in text and "not a prediction" in text
    for table in (source_table(profile), bounds_table(profile)):
        assert "…" not in as_text(table, width=80)
    data = json.loads(json.dumps(as_data(profile)))
    assert data["lines"][str(line_of("even"))]["lanes"] == 3 * 512
    assert data["bounds"][0]["chip"] == "M1" and data["hints"][0]["saves"] > 0


def test_page_has_source_heat_plot_and_table(library: Any) -> None:
    x, y = torch.randn(16 * 1024), torch.empty(1024)
    with anymetal.profile() as found:
        library.tiled(x, y, threads=1024, group_size=64)
        library.strided(x, y, threads=1024, group_size=64)
    text = page(found.kernels)
    assert text.count("<svg") == 1 and "GFLOP/s" in text  # strided computes nothing
    assert "prefers-color-scheme: dark" in text and "color-scheme: light dark" in text
    assert "rgba(var(--heat), 0.5)" in text and "16 elements apart" in text
    assert "&lt;metal_stdlib&gt;" in text and "<script" not in text
    assert text.count('<table class="bounds">') == 2


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_command_profiles_a_kernel(tmp_path: Path) -> None:
    html = tmp_path / "profile.html"
    given = ("profile", HERE / "profiled.metal", "--kernel", "strided", "--threads", "1024")
    given += ("--arg", "float32[16384]=random", "--arg", "float32[1024]", "--group-size", "64")
    result = run(*given, "--html", html)
    assert result.exit_code == 0, result.output
    assert "16 elements apart" in " ".join(result.stdout.split()) and "<svg" not in result.stdout
    assert "profile.html" in result.stdout and html.read_text().startswith("<!doctype html>")
    data = json.loads(run(*given, "--json").stdout)
    assert data["kernels"][0]["total"]["reads"]["device"] == 1024


def test_command_profiles_a_program(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch, anymetal\n"
        f"library = anymetal.compile_shader(open({str(HERE / 'profiled.metal')!r}).read())\n"
        "x, y = torch.randn(1024), torch.empty(1024)\n"
        "if len(sys.argv) == 1: library.tiled(x, y, threads=1024, group_size=64)\n"
        "sys.exit(3 if len(sys.argv) == 1 else 0)\n"
    )
    result = run("profile", script)
    assert result.exit_code == 3 and "tiled: 1 launch, 1,024 threads" in result.stdout
    assert run("profile", script, "nothing").exit_code == 5


def test_command_refuses_mistakes(tmp_path: Path) -> None:
    metal = HERE / "profiled.metal"
    assert "no such folder" in run("profile", metal, "--html", "/nonesuch/p.html").output
    assert "no such file" in run("profile", "absent.metal").output
    assert run("profile", metal, "--kernel", "tiled").exit_code == 2


def test_a_kernel_that_cannot_be_profiled_runs_and_says_so() -> None:
    source = """
    #include <metal_stdlib>
    using namespace metal;
    float depth(float x, int n) { return n <= 0 ? x : depth(x + 1, n - 1) * 1.5f + x; }
    kernel void recursive(device float* x, constant int& n, uint i [[thread_position_in_grid]]) {
      if (i == 3) { float (*f)(float, int) = depth; x[i] = f(x[i], n); }
    }
    """
    x = torch.ones(8)
    with anymetal.profile() as found:
        anymetal.compile_shader(source).recursive(x, 1, threads=8)
    profile = found["recursive"]
    assert x[3] == 4.0 and profile.launches == 1
    if profile.unprofiled:
        assert "not profiled" in str(found)
