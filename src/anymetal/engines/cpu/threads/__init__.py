"""The coroutine engine."""

from anymetal.engines.cpu.threads.engine import CoroutineEngine, CoroutineExecutable

__all__ = ["CoroutineEngine", "CoroutineExecutable"]
