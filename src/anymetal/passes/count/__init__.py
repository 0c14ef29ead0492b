"""Instrumentation that counts what a kernel does."""
