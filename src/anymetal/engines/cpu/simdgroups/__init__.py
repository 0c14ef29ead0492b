"""The fast CPU engine: whole simdgroups as vectors, masked only in regions where lanes part."""

from anymetal.engines.cpu.simdgroups.engine import RegionsEngine, RegionsExecutable
from anymetal.passes.simdgroup.graph import NotVectorisable

__all__ = ["NotVectorisable", "RegionsEngine", "RegionsExecutable"]
