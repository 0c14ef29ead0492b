"""Does anymetal run other people's kernels? `python -m conformance` from the repository's root.

Fetches the newest macOS wheel of metalcore from PyPI, compiles every kernel in it and in torch's
c10/metal headers, runs a choice of them against float64, and says whose fault each failure is.
Nothing of the wheel is kept in the repository.
"""
