"""Simdgroup matrices: IR with the headers' calls goes in (anymetal/matrix_product.h), IR with the
hardware's instructions comes out. Products of 16-bit elements are the tensor cores'."""

from anymetal.engines.cuda.matrices.fetches import WORD, fetch_matrices
from anymetal.engines.cuda.matrices.floats import PAIR, PRODUCT, lower_float_products
from anymetal.engines.cuda.matrices.products import PRODUCTS, fuse_products
from anymetal.engines.cuda.matrices.uses import name_numbered
from anymetal.ir import Function, Module

CALLS = (PAIR, PRODUCT, WORD, *PRODUCTS)


def has_products(function: Function) -> bool:
    """Whether lanes of a kernel must lie as the tensor cores want them."""
    return any(instruction.callee in PRODUCTS for instruction in function.instructions())


def lower_matrices(module: Module, function: Function) -> set[int]:
    """Answers the calls of anymetal/matrix_product.h. Returns how many bytes rows in threadgroup
    memory are apart that are fetched at once."""
    called = {instruction.callee for instruction in function.instructions()}
    as_tiles = has_products(function)
    if called & {PAIR, PRODUCT}:
        lower_float_products(module, function, as_tiles=as_tiles)
    if as_tiles or WORD in called:
        name_numbered(function)
        return fetch_matrices(module, function, *fuse_products(function))
    return set()


__all__ = ["CALLS", "has_products", "lower_matrices"]
