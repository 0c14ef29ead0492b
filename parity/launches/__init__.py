"""How MLX's kernels are launched: a description for each family of them.

A description names sizes, strides and the grid as MLX would choose them for a small problem with
edges; everything else of a buffer is filled by its type (`parity/inputs.py`).
"""

from parity.launches import (
    attention,
    convolutions,
    elementwise,
    fourier,
    products,
    quantised,
    reductions,
)
from parity.launches.launch import Case, Launch, Undefined, description_of

__all__ = ["Case", "Launch", "Undefined", "description_of"]
_FAMILIES = (attention, convolutions, elementwise, fourier, products, quantised, reductions)
