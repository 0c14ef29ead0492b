"""Kernels compiled ahead of time: written, read, found, and run where no compiler is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from anymetal import load_library
from anymetal.engines import bundles
from anymetal.engines.ahead import compile_bundle
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN
from anymetal.errors import BundleError
from anymetal.nouns import Source
from anymetal.store.bundle import Bundle, read_bundle, write_bundle
from anymetal.store.cache import encode

TARGET = "cuda-sm80"
TEXT = """#include <metal_stdlib>
constant uint factor [[function_constant(0)]];
kernel void scale(device uint* x, constant uint& n, uint i [[thread_position_in_grid]]) {
  if (i < n) x[i] *= factor;
}
"""


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return compile_bundle(TARGET, [(Source(TEXT), "scale", {"factor": f}) for f in (2, 3)])


@pytest.fixture
def file(bundle: Bundle, tmp_path: Path) -> Path:
    write_bundle(tmp_path / "kernels.bundle", bundle)
    return tmp_path / "kernels.bundle"


def test_bundle_is_read_as_it_was_written(bundle: Bundle, file: Path) -> None:
    again = read_bundle(file)
    assert again.target == TARGET
    assert len(again.executables) == 2
    assert {k: e.payload for k, e in again.executables.items()} == {
        k: e.payload for k, e in bundle.executables.items()
    }
    first = file.read_bytes()
    write_bundle(file, again)
    assert file.read_bytes() == first


def test_one_wrong_byte_is_refused(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(BundleError, match="its digest is wrong"):
        read_bundle(file)
    file.write_bytes(data[:-100])
    with pytest.raises(BundleError, match="its digest is wrong"):
        read_bundle(file)


def test_other_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.bundle"
    path.write_bytes(encode({"kind": "anymetal bundle", "version": 0}, b""))
    with pytest.raises(BundleError, match="version 0, this anymetal reads version 6"):
        read_bundle(path)


def test_library_of_a_bundle_has_its_kernels(file: Path) -> None:
    library = load_library(file)
    assert dir(library) == ["scale"]
    kernel = library.specialize("scale", {"factor": 3})
    assert kernel.engine == TARGET
    assert [argument.name for argument in kernel.arguments] == ["x", "n", "i"]
    with pytest.raises(BundleError, match="no code of kernel 'scale', factor=5"):
        library.specialize("scale", {0: 5})


RUN = """
import json, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("llvmlite", "ziglang"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import anymetal
from anymetal.engines.contract import PLAIN
kernel = anymetal.compile_shader(sys.argv[1]).specialize("scale", {"factor": 2})
import anymetal.ops
print(json.dumps([kernel.engine, kernel._known.executable.ptx]))
"""


def test_kernel_is_found_without_any_compiler(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYMETAL_BUNDLE", str(file))
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(tmp_path / "cache"))
    done = subprocess.run(
        [sys.executable, "-c", RUN, TEXT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    engine, ptx = json.loads(done.stdout)
    assert engine == TARGET
    monkeypatch.delenv("ANYMETAL_BUNDLE")
    compiled = Compiler(Source(TEXT)).compile("scale", {"factor": 2}, PLAIN, TARGET)
    assert ptx == compiled.ptx  # type: ignore[attr-defined]


def test_headers_of_another_installation_do_not_matter(tmp_path: Path) -> None:
    header = tmp_path / "factor.h"
    header.write_text("#define FACTOR 3\n")
    text = f'#include "{header}"\n' + TEXT.replace("*= factor", "*= factor * FACTOR")
    source = Source(text)
    write_bundle(
        tmp_path / "kernels.bundle", compile_bundle(TARGET, [(source, "scale", {"factor": 2})])
    )
    bundle = bundles.use(tmp_path / "kernels.bundle")
    try:
        assert bundles.bundles_of(source) == (bundle,)
        header.write_text("#define FACTOR 4\n")
        assert bundles.bundles_of(source) == ()
        header.unlink()
        assert bundles.bundles_of(source) == (bundle,)
    finally:
        bundles._used.remove(bundle)
