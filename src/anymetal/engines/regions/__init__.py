"""The fast CPU engine: whole simdgroups as vectors, masked only in regions where lanes part."""

from anymetal.engines.regions.engine import RegionsEngine, RegionsExecutable
from anymetal.passes.lanes.graph import NotVectorisable

__all__ = ["NotVectorisable", "RegionsEngine", "RegionsExecutable"]
