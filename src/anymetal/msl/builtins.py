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

# What else may stand in `[[...]]`: on functions, parameters and members, and C++'s own.
OTHER_ATTRIBUTES = frozenset(
    """
    kernel host_name buffer threadgroup function_constant id max_total_threads_per_threadgroup
    required_threads_per_threadgroup visible stitchable vertex fragment mesh object intersection
    user patch position point_size clip_distance render_target_array_index viewport_array_index
    invariant shared color depth stencil sample_mask sample_id coverage_mask early_fragment_tests
    raster_order_group point_coord front_facing barycentric_coord amplification_id
    amplification_count vertex_id instance_id base_vertex base_instance attribute
    position_in_patch patch_id control_point_index flat center_perspective center_no_perspective
    centroid_perspective centroid_no_perspective sample_perspective sample_no_perspective
    threadgroup_imageblock imageblock_layout_explicit imageblock_layout_implicit alias_implicit
    primitive_culled max_total_threadgroups_per_mesh_grid thread_index_in_mesh_grid origin
    direction min_distance max_distance distance world_space_origin world_space_direction
    geometry_id instance_intersection_function_table_offset
    geometry_intersection_function_table_offset
    opaque_primitive accept_intersection continue_search primitive_data user_instance_id
    curve_parameter key_frame_count time motion_start_time motion_end_time
    world_to_object_transform object_to_world_transform tile_index pixel_position_in_tile
    tiles_per_grid pixels_per_tile
    render_target_count depth_argument
    deprecated nodiscard maybe_unused fallthrough noreturn likely unlikely no_unique_address
    carries_dependency assume
    """.split()  # noqa: SIM905
)

# Functions of other pipelines: the specifier and what to call it.
UNSUPPORTED_FUNCTIONS = {
    "vertex": "vertex functions: it runs kernels",
    "fragment": "fragment functions: it runs kernels",
    "mesh": "mesh functions: it runs kernels",
    "object": "object functions: it runs kernels",
    "intersection": "intersection functions: it has no ray tracing",
}

_TEXTURES = [
    "texture1d",
    "texture1d_array",
    "texture2d",
    "texture2d_array",
    "texture2d_ms",
    "texture2d_ms_array",
    "texture3d",
    "texturecube",
    "texturecube_array",
    "texture_buffer",
    "depth2d",
    "depth2d_array",
    "depth2d_ms",
    "depth2d_ms_array",
    "depthcube",
    "depthcube_array",
]
_RAY_TRACING = [
    "intersector",
    "intersection_query",
    "intersection_result",
    "intersection_function_table",
    "acceleration_structure",
    "primitive_acceleration_structure",
    "instance_acceleration_structure",
]
UNSUPPORTED_TYPES = {
    **dict.fromkeys(_TEXTURES, "textures"),
    **dict.fromkeys(_RAY_TRACING, "ray tracing"),
    "sampler": "samplers",
    "imageblock": "imageblocks",
    "visible_function_table": "visible function tables",
    "command_buffer": "indirect command buffers",
    "render_pipeline_state": "indirect command buffers",
    "compute_pipeline_state": "indirect command buffers",
}

# ---- Types the language itself names -------------------------------------------------------------

SCALARS = frozenset(
    [
        "bool",
        "char",
        "uchar",
        "short",
        "ushort",
        "int",
        "uint",
        "long",
        "ulong",
        "half",
        "bfloat",
        "float",
        "size_t",
        "ptrdiff_t",
        "int8_t",
        "uint8_t",
        "int16_t",
        "uint16_t",
        "int32_t",
        "uint32_t",
        "int64_t",
        "uint64_t",
        "float16_t",
        "bfloat16_t",
        "float32_t",
        "unsigned",
        "signed",
    ]
)
_VECTOR_ELEMENTS = [
    "bool",
    "char",
    "uchar",
    "short",
    "ushort",
    "int",
    "uint",
    "long",
    "ulong",
    "half",
    "bfloat",
    "float",
]
VECTORS = frozenset(f"{element}{count}" for element in _VECTOR_ELEMENTS for count in (2, 3, 4))
_PACKED = frozenset(f"packed_{name}" for name in VECTORS)
_MATRICES = frozenset(
    f"{element}{columns}x{rows}"
    for element in ("float", "half")
    for columns in (2, 3, 4)
    for rows in (2, 3, 4)
)
_ATOMICS = frozenset(["atomic_int", "atomic_uint", "atomic_bool", "atomic_float", "atomic_ulong"])
KNOWN_TYPES = SCALARS | VECTORS | _PACKED | _MATRICES | _ATOMICS | {"void"}
KNOWN_TEMPLATES = frozenset(["vec", "array", "atomic", "matrix", "simdgroup_matrix", "packed_vec"])

# What a built-in value may be: its scalar forms, and with a digit behind them its vectors.
BUILTIN_SCALARS = frozenset({"uint", "ushort", "unsigned", "unsigned int", "unsigned short"})
