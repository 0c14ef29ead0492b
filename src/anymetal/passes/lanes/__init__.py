"""Whole-simdgroup vectorisation: one function that runs 32 lanes at once as vectors of 32 values."""
