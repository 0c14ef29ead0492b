"""The body of an MLX kernel and what it is called with go in; the source of a kernel comes out.

The signature is the one that MLX writes: inputs in order, each followed by its shape, strides and
number of dimensions where the body names them, then outputs, then the attributes that it names.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

# Smaller inputs are in the constant address space.
_LEAST_DEVICE_ELEMENTS = 8
_TYPES = {
    "float32": "float",
    "float16": "float16_t",
    "bfloat16": "bfloat16_t",
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
_ATTRIBUTES = {
    "dispatch_quadgroups_per_threadgroup": "uint",
    "dispatch_simdgroups_per_threadgroup": "uint",
    "dispatch_threads_per_threadgroup": "uint3",
    "grid_origin": "uint3",
    "grid_size": "uint3",
    "quadgroup_index_in_threadgroup": "uint",
    "quadgroups_per_threadgroup": "uint",
    "simdgroup_index_in_threadgroup": "uint",
    "simdgroups_per_threadgroup": "uint",
    "thread_execution_width": "uint",
    "thread_index_in_quadgroup": "uint",
    "thread_index_in_simdgroup": "uint",
    "thread_index_in_threadgroup": "uint",
    "thread_position_in_grid": "uint3",
    "thread_position_in_threadgroup": "uint3",
    "threadgroup_position_in_grid": "uint3",
    "threadgroups_per_grid": "uint3",
    "threads_per_grid": "uint3",
    "threads_per_simdgroup": "uint",
    "threads_per_threadgroup": "uint3",
}

Template = Sequence[tuple[str, Any]]


@dataclass(frozen=True)
class Parts:
    """What a kernel was made of, as `metal_kernel` was given it."""

    name: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    body: str
    header: str
    atomic_outputs: bool

    def extras(self, name: str, value: object) -> list[str]:
        """Which of shape, strides and ndim the kernel takes behind an input."""
        if not isinstance(value, torch.Tensor) or not value.dim():
            return []
        return [word for word in ("shape", "strides", "ndim") if f"{name}_{word}" in self.body]


def type_name(dtype: object) -> str:
    """What MLX calls a dtype of torch's or of its own; TypeError for one that Metal lacks."""
    name = str(dtype).rpartition(".")[2].rstrip("_")
    if name not in _TYPES:
        raise TypeError(f"dtype {dtype}: MLX kernels have {', '.join(_TYPES)}")
    return _TYPES[name]


def torch_dtype(dtype: object) -> torch.dtype:
    """The dtype of torch's for one of torch's or MLX's."""
    type_name(dtype)
    found: torch.dtype = getattr(torch, str(dtype).rpartition(".")[2].rstrip("_"))
    return found


def kernel_name(
    parts: Parts, inputs: Sequence[Any], outputs: Sequence[torch.dtype], template: Template
) -> str:
    """MLX's name: another for each combination of types that it is called with."""
    words = ["custom_kernel", parts.name]
    if template:
        words.append(re.sub(r"<|>|, ", "_", _template_values(template)).strip("_"))
    for value in inputs:
        mark = "s" if _is_scalar(value) else "c" if _is_constant(value) else ""
        words.append(f"{_type_of(value)}{mark}")
    return "_".join([*words, *map(type_name, outputs)])


def source_text(
    parts: Parts, inputs: Sequence[Any], outputs: Sequence[torch.dtype], template: Template
) -> str:
    """The whole kernel, without the functions that MLX puts in front of it."""
    name = kernel_name(parts, inputs, outputs, template)
    lines = [f"{parts.header}\n" if parts.header else ""]
    if template:
        kinds = ", ".join(f"{_kind_of(value)} {word}" for word, value in template)
        lines.append(f"template <{kinds}>\n")
    parameters = ",\n".join(f"  {one}" for one in _parameters(parts, inputs, outputs))
    lines.append(f"[[kernel]] void {name}(\n{parameters}) {{\n{parts.body}\n}}\n")
    if template:
        instance = f"{name}{_template_values(template)}"
        lines.append(
            f'\ntemplate [[host_name("{name}")]] [[kernel]] decltype({instance}) {instance};\n'
        )
    return "".join(lines)


def _parameters(parts: Parts, inputs: Sequence[Any], outputs: Sequence[torch.dtype]) -> list[str]:
    found: list[str] = []
    extra_types = {"shape": "int*", "strides": "int64_t*", "ndim": "int&"}

    def add(text: str) -> None:
        found.append(f"{text} [[buffer({len(found)})]]")

    for name, value in zip(parts.input_names, inputs, strict=True):
        space = "constant" if _is_constant(value) else "device"
        mark = "&" if _is_scalar(value) else "*"
        add(f"const {space} {_type_of(value)}{mark} {name}")
        for word in parts.extras(name, value):
            add(f"const constant {extra_types[word]} {name}_{word}")
    for name, dtype in zip(parts.output_names, outputs, strict=True):
        kind = type_name(dtype)
        add(f"device {f'atomic<{kind}>' if parts.atomic_outputs else kind}* {name}")
    used = (word for word in _ATTRIBUTES if word in parts.body)
    return found + [f"{_ATTRIBUTES[word]} {word} [[{word}]]" for word in used]


def _type_of(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return type_name(value.dtype)
    if isinstance(value, bool):
        return "bool"
    return "int32_t" if isinstance(value, int) else "float"


def _is_scalar(value: object) -> bool:
    return not isinstance(value, torch.Tensor) or not value.dim()


def _is_constant(value: object) -> bool:
    return _is_scalar(value) or (
        isinstance(value, torch.Tensor) and value.numel() < _LEAST_DEVICE_ELEMENTS
    )


def _kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    return "int" if isinstance(value, int) else "typename"


def _template_values(template: Template) -> str:
    values = (
        str(int(value)) if isinstance(value, int) else type_name(value) for _, value in template
    )
    return f"<{', '.join(values)}>"
