"""MSL text -> Program: preprocess, rewrite to C++, compile to LLVM IR with stock clang."""

from anymetal.msl.check import check_all
from anymetal.msl.compile import compile_program
from anymetal.msl.prepare import prepare

__all__ = ["check_all", "compile_program", "prepare"]
