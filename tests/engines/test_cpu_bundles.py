"""Bundles for CPUs: their kernels run where neither clang nor LLVM is, and give the same bits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import anymetal
from anymetal.engines import bundles
from anymetal.engines.ahead import compile_bundle
from anymetal.engines.cpu import bundled
from anymetal.errors import BundleError, Unsuitable
from anymetal.machine import processor
from anymetal.nouns import Source
from anymetal.store.bundle import Bundle, read_bundle, write_bundle
from anymetal.store.cache import Entry

# Barriers, collectives, threadgroup memory, half and bfloat, a log, recursion.
TEXT = """#include <metal_stdlib>
#include <metal_logging>
using namespace metal;
constant uint factor [[function_constant(0)]];
kernel void sums(device const float* x, device float* y, constant uint& loud,
                 threadgroup float* kept [[threadgroup(0)]],
                 uint2 place [[thread_position_in_threadgroup]],
                 uint2 size [[threads_per_threadgroup]], uint2 at [[thread_position_in_grid]],
                 uint2 grid [[threads_per_grid]]) {
  const uint own = place.y * size.x + place.x, there = at.y * grid.x + at.x;
  kept[own] = x[there];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0;
  for (uint k = 0; k < size.x * size.y; ++k) sum += kept[k] * factor;
  y[there] = simd_sum(sum) + half(sum) + float(bfloat(sum));
  if (loud && there == 3) os_log_default.log("sum of thread %u", there);
}
int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
kernel void numbers(device int* y, uint i [[thread_position_in_grid]]) {
  y[i] = fibonacci(y[i]) * int(factor);
}
"""
WANTED = [(Source(TEXT), name, {"factor": 2}) for name in ("sums", "numbers")]

RUN = """
import json, logging, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("llvmlite", "ziglang"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
sys.path.insert(0, sys.argv[2])
import anymetal, test_cpu_bundles
lib = anymetal.compile_shader(test_cpu_bundles.TEXT)
other = anymetal.load_library(sys.argv[1])
assert dir(other) == dir(lib) == ["numbers", "sums"]
print(json.dumps([test_cpu_bundles.results(lib), test_cpu_bundles.results(other)]))
for call in (
    lambda: lib.specialize("sums", {"factor": 3}),
    lambda: lib.specialize("sums", {"factor": 2}).count(),
):
    try:
        call()
    except anymetal.errors.BundleError as error:
        print(error)
"""

pytestmark = pytest.mark.skipif("cpu" not in bundled.targets(), reason="bundles of CPUs: Linux")


def results(library: anymetal.ShaderLibrary) -> list[list[str]]:
    """The engine and the bits that launches of many shapes give."""
    found = []
    sums = library.specialize("sums", {"factor": 2})
    for group in ((32, 1), (64, 2), (16, 4), (20, 3), (7, 4), (256, 1)):
        x = torch.linspace(-1, 2, 41 * 5).reshape(5, 41)
        y = torch.zeros(5, 41)
        memory = {0: 4 * group[0] * group[1]}
        loud = int(group == (32, 1))
        sums(x, y, loud, threads=(41, 5), group_size=group, threadgroup_memory=memory)
        found.append([sums.engine, y.numpy().tobytes().hex()])
    numbers = library.specialize("numbers", {"factor": 2})
    y = torch.arange(12, dtype=torch.int32)
    numbers(y)
    return [*found, [numbers.engine, str(y.tolist())]]


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return compile_bundle("cpu", WANTED)


def test_kernels_run_without_any_compiler(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kernels.bundle"
    write_bundle(path, bundle)
    monkeypatch.setenv("ANYMETAL_BUNDLE", str(path))
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(tmp_path / "cache"))
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("sums thread 3: sum of thread 3") == 2
    line, *errors = done.stdout.splitlines()
    found, again = json.loads(line)
    monkeypatch.delenv("ANYMETAL_BUNDLE")
    assert found == again == results(anymetal.compile_shader(TEXT))
    assert [row[0] for row in found] == ["simdgroup"] * 7
    assert "has no code of kernel 'sums', factor=3 for the simdgroup or coroutine" in errors[0]
    assert "which has no counted code" in errors[1]


def test_what_vectors_cannot_do_has_code_for_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise Unsuitable("too much for vectors")

    monkeypatch.setattr(bundled, "write", refuse)
    text = TEXT + "// for threads\n"
    made = compile_bundle("cpu", [(Source(text), kernel, given) for _, kernel, given in WANTED])
    write_bundle(tmp_path / "kernels.bundle", made)
    library = anymetal.load_library(tmp_path / "kernels.bundle")
    bundles._used.pop()
    found = results(library)
    assert [row[0] for row in found] == ["coroutine"] * 7
    assert found[-1][1] == str([2 * n for n in (0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89)])


def test_bundle_says_where_it_runs(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = bundle.executables[bundled.runtime_key(bundle.target)]
    assert bundle.target == f"cpu-{bundled.targets()['cpu']}"
    monkeypatch.setattr(processor, "present", lambda: frozenset(("sse2",)))
    with pytest.raises(BundleError, match=r"this processor does not have: .*avx2"):
        bundled.started(runtime, bundle.target)
    for part, words in (("system", "on elsewhere, and this is"), ("layout", "another version")):
        with pytest.raises(BundleError, match=words):
            bundled.started(Entry({**runtime.note, part: "elsewhere"}, b""), bundle.target)


def test_kernels_that_no_bundle_has_are_compiled(bundle: Bundle, tmp_path: Path) -> None:
    write_bundle(tmp_path / "kernels.bundle", bundle)
    used = bundles.use(tmp_path / "kernels.bundle")
    try:
        kernel = anymetal.compile_shader(TEXT).specialize("numbers", {"factor": 7})
        y = torch.arange(5, dtype=torch.int32)
        kernel(y)
        assert y.tolist() == [0, 7, 7, 14, 21]
    finally:
        bundles._used.remove(used)


def test_damage_is_named(bundle: Bundle, tmp_path: Path) -> None:
    path = tmp_path / "kernels.bundle"
    write_bundle(path, bundle)
    data = path.read_bytes()
    for wrong in (b"", data[:40], data[:-1], data[:900] + b"?" + data[901:]):
        path.write_bytes(wrong)
        with pytest.raises(BundleError, match="its digest is wrong"):
            read_bundle(path)
