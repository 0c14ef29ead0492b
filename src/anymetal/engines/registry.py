"""Every engine and every front end, a line each."""

from __future__ import annotations

from anymetal.air.frontend import AirFrontend
from anymetal.engines.contract import Engine, Frontend
from anymetal.engines.cpu.simdgroups.engine import SimdgroupEngine
from anymetal.engines.cpu.threads.engine import ThreadEngine
from anymetal.engines.cuda.engine import CudaEngine
from anymetal.msl.frontend import MetalFrontend
from anymetal.nouns import MetallibSource, Source

# For tensors in this machine's memory.
# In the order in which they are tried.
ENGINES: tuple[Engine, ...] = (SimdgroupEngine(), ThreadEngine())

# For tensors on `cuda` devices, by the least compute capability, the highest first.
CUDA_ENGINES: dict[tuple[int, int], Engine] = {
    (9, 0): CudaEngine("sm_90"),
    (8, 0): CudaEngine("sm_80"),
}

METAL = MetalFrontend()
FRONTENDS: dict[type[Source], Frontend] = {Source: METAL, MetallibSource: AirFrontend()}


def engine_called(name: str) -> Engine:
    every = (*ENGINES, *CUDA_ENGINES.values())
    return next(engine for engine in every if engine.name == name)
