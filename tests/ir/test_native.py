"""LLVM's modules are freed before their contexts, whoever frees them and when."""

from __future__ import annotations

import subprocess
import sys

import pytest

from anymetal.ir import native

TEXT = "define i32 @one() {\n  ret i32 1\n}\n"
OTHER = "define i32 @two() {\n  ret i32 2\n}\n"

# An error on its way out of a pass, which a cycle keeps until the collector comes.
IN_A_CYCLE = """
import gc
from anymetal.engines.cpu import jit

class Kept:
    pass

def fail(*_):
    raise ValueError

jit.run_manager = fail
for _ in range(20):
    kept = Kept()
    kept.itself = kept
    try:
        jit.normalised("define i32 @one() {\\n  ret i32 1\\n}\\n")
    except ValueError as error:
        kept.error = error
    del kept
    gc.collect()
"""


def test_modules_in_garbage_are_freed_once() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_CYCLE], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


def test_modules_are_closed_where_they_end() -> None:
    with native.opened(TEXT, [OTHER]) as module:
        assert "@one" in str(module)
        assert "@two" in str(module)
        context = module._context
    assert module.closed
    assert context.closed


def test_modules_are_closed_by_errors() -> None:
    with pytest.raises(ValueError, match="meanwhile"), native.opened(TEXT) as module:
        raise ValueError("meanwhile")
    assert module.closed
    with pytest.raises(RuntimeError, match="expected"), native.opened("nothing"):
        pass
    with pytest.raises(RuntimeError, match="one"), native.opened(TEXT, [TEXT]):
        pass


def test_a_builder_serves_one_run() -> None:
    llvm = native.binding()
    llvm.initialize_native_target()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    builder = llvm.create_pass_builder(machine, options)
    with native.opened(TEXT) as module:
        manager = llvm.create_new_module_pass_manager()
        manager.add_sroa_pass()
        native.run_passes(manager, module, builder)
        assert manager.closed
        assert builder.closed


def test_bitcode_becomes_text() -> None:
    with native.opened(TEXT) as module:
        bitcode = module.as_bitcode()
    assert "@one" in native.disassembled(bitcode)
    with pytest.raises(RuntimeError):
        native.disassembled(b"no bitcode")
