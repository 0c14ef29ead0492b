"""Kernel projects of Hugging Face's Hub: the Metal sources that a build.toml lists."""

from anymetal.hub.build_file import BuildFile, read_build
from anymetal.hub.kernels import HubKernels, load

__all__ = ["BuildFile", "HubKernels", "load", "read_build"]
