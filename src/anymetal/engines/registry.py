"""Every engine and every front end, a line each."""

from __future__ import annotations

from anymetal.engines.contract import Engine, Frontend
from anymetal.engines.cpu.simdgroups.engine import SimdgroupEngine
from anymetal.engines.cpu.threads.engine import ThreadEngine
from anymetal.msl.frontend import MetalFrontend
from anymetal.nouns import Source

# In the order in which they are tried.
ENGINES: tuple[Engine, ...] = (SimdgroupEngine(), ThreadEngine())

METAL = MetalFrontend()
FRONTENDS: dict[type[Source], Frontend] = {Source: METAL}


def engine_called(name: str) -> Engine:
    return next(engine for engine in ENGINES if engine.name == name)
