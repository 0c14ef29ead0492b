"""Instrumentation for the checker: a check before every access and beside doubtful arithmetic."""
