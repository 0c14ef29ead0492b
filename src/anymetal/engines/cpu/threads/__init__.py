"""The reference engine: threads as coroutines."""
