"""Elements and rows taken from, or added to, the places that indices name."""

from anymetal.ops.indexing.embedding import embedding
from anymetal.ops.indexing.embedding_bag import embedding_bag
from anymetal.ops.indexing.indexing import gather, index_add, index_select, scatter_add
from anymetal.ops.indexing.table_gradient import table_gradient

__all__ = [
    "embedding",
    "embedding_bag",
    "gather",
    "index_add",
    "index_select",
    "scatter_add",
    "table_gradient",
]
