"""What kernels do, line by line, counted while they run: `with anymetal.profile() as p:`."""

from anymetal.profiler.collect import Profile, profile

__all__ = ["Profile", "profile"]
