"""MSL text -> Program: preprocess, rewrite to C++, compile to LLVM IR with stock clang."""

from anymetal.msl.compile import check_all, compile_program
from anymetal.msl.prepare import prepare

__all__ = ["check_all", "compile_program", "prepare"]
