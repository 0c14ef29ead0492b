"""The coroutine engine."""

from anymetal.engines.coroutine.engine import CoroutineEngine, CoroutineExecutable

__all__ = ["CoroutineEngine", "CoroutineExecutable"]
