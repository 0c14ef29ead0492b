"""Whole-simdgroup vectorisation: one function runs 32 lanes at once, as vectors of 32 values."""
