"""The bundle for recorded launches: `python tests/cuda/pack.py BUNDLE FILE...`."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from anymetal.engines.ahead import compile_bundle
from anymetal.engines.compiler import Compiler
from anymetal.engines.contract import PLAIN
from anymetal.errors import EngineError
from anymetal.nouns import Scalar, Source
from anymetal.store.bundle import write_bundle

TARGET = "cuda-sm90"


def kernels(files: list[str]) -> Iterator[tuple[Source, str, Mapping[str, Scalar]]]:
    """Each kernel of the launches once; those that the engine refuses are named and left out."""
    seen = set()
    for launch in (one for file in files for one in pickle.loads(Path(file).read_bytes())):
        text, defines, fast_math, language = launch["source"]
        source = Source(text, defines=defines, fast_math=fast_math, language=language)
        name, constants = launch["kernel"], launch["constants"]
        key = (source, name, repr(constants))
        if key in seen:
            continue
        seen.add(key)
        try:
            Compiler(source).compile(name, constants, PLAIN, TARGET)
        except EngineError as error:
            print(f"{name}: {error}")
            continue
        yield source, name, constants


if __name__ == "__main__":
    bundle = compile_bundle(TARGET, kernels(sys.argv[2:]))
    write_bundle(Path(sys.argv[1]), bundle)
    print(f"{len(bundle.executables)} kernels")
