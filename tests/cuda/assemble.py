"""A bundle's kernels through NVIDIA's assembler: registers, stack, spills and shared memory.

`python tests/cuda/assemble.py BUNDLE [--all]` prints the kernels that keep something in local
memory, or all; the exit status is 1 where one is not assembled.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import nvidia

from anymetal.engines.cuda.executable import CudaExecutable
from anymetal.store.bundle import read_bundle

_PARTS = {
    "registers": r"Used (\d+) registers",
    "stack": r"(\d+) bytes stack frame",
    "stores": r"(\d+) bytes spill stores",
    "shared": r"(\d+) bytes smem",
}


@dataclass(frozen=True)
class Assembled:
    """What ptxas said of a kernel; `said` has its words where it refused."""

    name: str
    registers: int = 0
    stack: int = 0
    stores: int = 0
    shared: int = 0
    said: str = ""


def assemble(executable: CudaExecutable, processor: str, number: int = 0) -> Assembled:
    """One of an executable's texts; the second is for usual launches."""
    name = f"{executable.name}, usual launches" if number else executable.name
    (place,) = nvidia.__path__
    (assembler,) = Path(place).glob("cu*/bin/ptxas")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel.ptx").write_text(executable.texts[number])
        command = [assembler, "-v", f"-arch={processor}", "kernel.ptx", "-o", "kernel.cubin"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        return Assembled(name, said=done.stderr)
    found = {part: re.search(pattern, done.stderr) for part, pattern in _PARTS.items()}
    return Assembled(name, **{p: int(m[1]) if m else 0 for p, m in found.items()})


def main(path: Path, *, every: bool) -> int:
    bundle = read_bundle(path)
    processor = bundle.target.removeprefix("cuda-").replace("sm", "sm_")
    executables = [CudaExecutable(e.payload, e.note) for e in bundle.executables.values()]
    texts = [(one, number) for one in executables for number in range(len(one.texts))]
    with ThreadPoolExecutor() as pool:
        rows = list(pool.map(lambda text: assemble(text[0], processor, text[1]), texts))
    print("| kernel | registers | stack | spill stores | shared |\n|---|---|---|---|---|")
    for row in sorted(rows, key=lambda row: (-row.stores, -row.stack, row.name)):
        if every or row.stack:
            print(f"| {row.name} | {row.registers} | {row.stack} | {row.stores} | {row.shared} |")
    refused = [row for row in rows if row.said]
    for row in refused:
        print(f"{row.name}: {row.said}")
    spilling = sum(row.stores > 0 for row in rows)
    kept = sum(row.stack > 0 for row in rows)
    print(
        f"{len(executables)} kernels for {processor}, {len(rows)} texts: {len(refused)} refused,"
        f" {spilling} spill, {kept} keep something in local memory, at most"
        f" {max(row.registers for row in rows)} registers"
    )
    return bool(refused)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), every="--all" in sys.argv))
