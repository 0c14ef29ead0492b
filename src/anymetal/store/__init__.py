"""Compiled things on disk."""
