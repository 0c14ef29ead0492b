"""Compares our unpacking of GPTQ and AWQ with the code that their packages publish.

    python tests/weights/published.py

Both packages need a GPU's toolchain to install, so pip fetches their sources alone, and the
functions that unpack weights are taken out of them: random words, all bits, bit for bit.
"""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
import tarfile
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from anymetal import weights

PACKAGES = ("autoawq==0.2.9", "gptqmodel==7.7.0")


def fetched(folder: Path) -> None:
    """The sources of the packages, unpacked."""
    options = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-d", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "download", *options, *PACKAGES], check=True)
    for archive in folder.glob("*.tar.gz"):
        with tarfile.open(archive) as content:
            content.extractall(folder, filter="data")


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def functions(path: Path, *names: str) -> dict[str, Any]:
    """Functions of a file, methods among them, without what else the file imports."""
    tree = ast.parse(path.read_text())
    wanted = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name in names]
    space: dict[str, Any] = {"t": torch}
    exec(compile(ast.Module(wanted, []), str(path), "exec"), space)
    return space


def words(*shape: int) -> torch.Tensor:
    return torch.randint(-(2**31), 2**31, shape).to(torch.int32)


def compare_awq(folder: Path) -> None:
    theirs = module(folder / "autoawq-0.2.9/awq/utils/packing_utils.py").dequantize_gemm
    for size in (32, 64, 128):
        parts = (words(256, 8), words(256 // size, 8), torch.randn(256 // size, 64).half())
        found = weights.dequantize_awq(*parts, group_size=size)
        assert torch.equal(found.t(), theirs(*parts, 4, size)), size


def compare_gptq(folder: Path) -> None:
    file = folder / "gptqmodel-7.7.0/gptqmodel/nn_modules/qlinear/__init__.py"
    names = ("dequantize_weight", "_dequantize_from_codes", "_torch_right_shift")
    code = functions(file, *names)
    for bits in (2, 4, 8):
        shifts = torch.arange(0, 32, bits, dtype=torch.int32)
        held = SimpleNamespace(
            planar=False, bits=bits, pack_factor=32 // bits, maxq=2**bits - 1, in_features=256,
            dequant_dtype=torch.int16 if bits == 8 else torch.int8,
            wf_unsqueeze_zero=shifts[None, None], wf_unsqueeze_neg_one=shifts[None, :, None],
            qweight=words(256 * bits // 32, 64), qzeros=words(4, 64 * bits // 32),
            scales=torch.randn(4, 64).half(), g_idx=torch.randint(0, 4, (256,)),
            _init_wf_unsqueeze_buffers=lambda: None,
        )  # fmt: skip
        held._dequantize_from_codes = partial(code["_dequantize_from_codes"], held)
        found = weights.dequantize_gptq(
            held.qweight, held.qzeros, held.scales, held.g_idx, bits=bits, zeros_less_one=False
        )
        assert torch.equal(found.t(), code["dequantize_weight"](held)), bits
        # The first format's zeros: ones are added to whole words.
        first = held.qzeros.clone()
        held.qzeros += sum(1 << place for place in range(0, 32, bits))
        found = weights.dequantize_gptq(
            held.qweight, first, held.scales, held.g_idx, bits=bits, zeros_less_one=True
        )
        assert torch.equal(found.t(), code["dequantize_weight"](held)), bits


def main() -> None:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        fetched(Path(folder))
        compare_awq(Path(folder))
        compare_gptq(Path(folder))
    print("AWQ in groups of 32, 64 and 128, GPTQ of 2, 4 and 8 bits: equal, bit for bit")


if __name__ == "__main__":
    main()
