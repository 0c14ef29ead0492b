"""Runs static constructors and prints the bytes they leave: a program, started by initialisers.py.

It reads {"ir", "constructors", "sizes": {name: bytes}} as JSON from its standard input.
"""

from __future__ import annotations

import ctypes
import json
import sys

import llvmlite.binding as llvm


def main() -> None:
    question = json.load(sys.stdin)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=1
    )
    code = llvm.create_mcjit_compiler(_visible(question), machine)
    code.finalize_object()
    for name in question["constructors"]:
        ctypes.CFUNCTYPE(None)(code.get_function_address(name))()
    values = {
        name: ctypes.string_at(code.get_global_value_address(name), size).hex()
        for name, size in question["sizes"].items()
    }
    json.dump(values, sys.stdout)


def _visible(question: dict[str, object]) -> llvm.ModuleRef:
    module = llvm.parse_assembly(question["ir"])
    for name in question["constructors"]:  # type: ignore[attr-defined]
        module.get_function(name).linkage = llvm.Linkage.external
    return module


if __name__ == "__main__":
    main()
