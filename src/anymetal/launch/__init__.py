"""Calls: Python arguments become a launch of a compiled kernel."""
