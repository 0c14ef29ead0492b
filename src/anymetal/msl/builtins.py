"""The attributes a kernel parameter can carry, as the Metal specification's tables give them."""

from __future__ import annotations

SPACES = frozenset(
    {
        "device",
        "constant",
        "thread",
        "threadgroup",
        "threadgroup_imageblock",
        "ray_data",
        "object_data",
    }
)

# Built-in values of a kernel: True where a vector of two or three components is allowed.
BUILTINS: dict[str, bool] = {
    "thread_position_in_grid": True,
    "thread_position_in_threadgroup": True,
    "threadgroup_position_in_grid": True,
    "threads_per_threadgroup": True,
    "dispatch_threads_per_threadgroup": True,
    "threads_per_grid": True,
    "threadgroups_per_grid": True,
    "grid_origin": True,
    "grid_size": True,
    "thread_index_in_threadgroup": False,
    "thread_index_in_simdgroup": False,
    "thread_index_in_quadgroup": False,
    "simdgroup_index_in_threadgroup": False,
    "quadgroup_index_in_threadgroup": False,
    "simdgroups_per_threadgroup": False,
    "quadgroups_per_threadgroup": False,
    "dispatch_simdgroups_per_threadgroup": False,
    "dispatch_quadgroups_per_threadgroup": False,
    "threads_per_simdgroup": False,
    "thread_execution_width": False,
}

MOST_BUFFERS = 31

# Attributes of what anymetal does not run.
UNSUPPORTED_ATTRIBUTES = {
    "texture": "textures",
    "sampler": "samplers",
    "stage_in": "vertex descriptors ([[stage_in]])",
    "imageblock_data": "imageblocks",
    "payload": "mesh shaders and ray payloads",
    "primitive_id": "ray tracing",
}
