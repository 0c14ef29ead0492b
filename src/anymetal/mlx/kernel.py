"""`metal_kernel` of `mlx.core.fast`: the same arguments, with torch tensors for arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from anymetal.launch.kernel import Kernel
from anymetal.launch.shader import compile_shader
from anymetal.mlx.signature import Parts, Template, kernel_name, source_text, torch_dtype

_UTILS = Path(__file__).parent / "mlx_utils.h"
_MATH_MODES = ("safe", "relaxed", "fast")
_INT32 = range(-(1 << 31), 1 << 31)


def metal_kernel(
    name: str,
    input_names: Sequence[str],
    output_names: Sequence[str],
    source: str,
    header: str = "",
    ensure_row_contiguous: bool = True,
    atomic_outputs: bool = False,
    compile_options: Mapping[str, str] | None = None,
) -> MetalKernel:
    """A kernel of which `source` is the body; MLX's signature is written around it at each call.

    ```python
    import anymetal
    import torch

    kernel = anymetal.mlx.metal_kernel(
        name="myexp",
        input_names=["inp"],
        output_names=["out"],
        source='''
            uint elem = thread_position_in_grid.x;
            T tmp = inp[elem];
            out[elem] = metal::exp(tmp);
        ''',
    )
    a = torch.randn(4, 16).half()
    (b,) = kernel(
        inputs=[a],
        template=[("T", torch.float32)],
        grid=(a.numel(), 1, 1),
        threadgroup=(256, 1, 1),
        output_shapes=[a.shape],
        output_dtypes=[a.dtype],
    )
    torch.testing.assert_close(b, a.exp())
    ```

    The math mode "fast" allows what Metal's fast math allows; "safe" and "relaxed" are exact here.
    """
    for word, given in (("name", name), ("source", source), ("header", header)):
        if not isinstance(given, str):
            raise TypeError(f"metal_kernel: {word} is {given!r}, expected a str")
    names = [name, *input_names, *output_names]
    for one in names:
        if not isinstance(one, str) or not one.isidentifier():
            raise ValueError(f"metal_kernel {name}: {one!r} is no name in Metal")
    repeated = [one for one in names[1:] if names[1:].count(one) > 1]
    if repeated:
        raise ValueError(f"metal_kernel {name}: two arrays are named {repeated[0]!r}")
    if not output_names:
        raise ValueError(f"metal_kernel {name}: output_names is empty, expected one name or more")
    parts = Parts(name, tuple(input_names), tuple(output_names), source, header, atomic_outputs)
    return MetalKernel(parts, ensure_row_contiguous, _is_fast(name, compile_options or {}))


class MetalKernel:
    """What `metal_kernel` returns: called with tensors, it returns a list of new ones."""

    def __init__(self, parts: Parts, row_contiguous: bool, fast_math: bool) -> None:
        self._parts = parts
        self._row_contiguous = row_contiguous
        self._fast_math = fast_math
        self._kernels: dict[str, Kernel] = {}  # by the source

    def __repr__(self) -> str:
        return f"<anymetal.mlx kernel {self._parts.name}>"

    def __call__(
        self,
        *,
        inputs: Sequence[torch.Tensor | bool | int | float],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[Any],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        template: Template | None = None,
        init_value: float | None = None,
        verbose: bool = False,
        stream: None = None,
    ) -> list[torch.Tensor]:
        """Run the kernel over `grid` threads in threadgroups of `threadgroup`.

        Outputs are on the device of the first tensor among the inputs, filled with `init_value`
        where there is one. `verbose` prints the source that was written.
        """
        self._check_counts(inputs, output_shapes, output_dtypes, stream)
        given = [self._checked(*pair) for pair in zip(self._parts.input_names, inputs, strict=True)]
        dtypes = [torch_dtype(dtype) for dtype in output_dtypes]
        text = source_text(self._parts, given, dtypes, template or ())
        if verbose:
            print(f"Generated source code for `{self._parts.name}`:\n```\n{text}\n```")
        name = kernel_name(self._parts, given, dtypes, template or ())
        outputs = _outputs(given, output_shapes, dtypes, init_value)
        arguments, casts = self._arguments(given)
        self._compiled(text, name)(
            *arguments,
            *outputs,
            threads=tuple(grid),
            group_size=tuple(map(min, threadgroup, grid)) if all(grid) else tuple(threadgroup),
            arg_casts=casts,
        )
        return outputs

    def _check_counts(
        self, inputs: Sequence[Any], shapes: Sequence[Any], dtypes: Sequence[Any], stream: object
    ) -> None:
        parts = self._parts
        for word, given, names in (
            ("inputs", inputs, parts.input_names),
            ("output_shapes", shapes, parts.output_names),
            ("output_dtypes", dtypes, parts.output_names),
        ):
            if len(given) != len(names):
                raise ValueError(
                    f"metal_kernel {parts.name}: {word} has {len(given)}, expected {len(names)}:"
                    f" {', '.join(names)}"
                )
        if stream is not None:
            raise ValueError(
                f"metal_kernel {parts.name}: stream is {stream!r}, expected None: a kernel runs on"
                " the device of its tensors"
            )

    def _checked(self, name: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.contiguous() if self._row_contiguous else value
        if not isinstance(value, bool | int | float):
            raise TypeError(
                f"metal_kernel {self._parts.name}: input {name!r} is {type(value).__name__},"
                " expected a tensor or a number"
            )
        if isinstance(value, int) and value not in _INT32:
            raise ValueError(
                f"metal_kernel {self._parts.name}: input {name!r} is {value}, which no int32 holds;"
                " pass a tensor"
            )
        return value

    def _arguments(self, given: Sequence[Any]) -> tuple[list[Any], dict[int, str]]:
        """Inputs and what stands behind them; ints of Python are int32 in MLX."""
        arguments: list[Any] = []
        casts: dict[int, str] = {}
        for name, value in zip(self._parts.input_names, given, strict=True):
            if type(value) is int:
                casts[len(arguments)] = "int32"
            arguments.append(value)
            for word in self._parts.extras(name, value):
                if word != "strides":
                    casts[len(arguments)] = "int32"
                values = {"shape": list(value.shape), "strides": list(value.stride())}
                arguments.append(values.get(word, value.dim()))
        return arguments, casts

    def _compiled(self, text: str, name: str) -> Kernel:
        kernel = self._kernels.get(text)
        if kernel is None:
            library = compile_shader(
                f'#include "{_UTILS.name}"\n{text}',
                include_dirs=[_UTILS.parent],
                fast_math=self._fast_math,
            )
            kernel = self._kernels.setdefault(text, library.specialize(name))
        return kernel


def _outputs(
    given: Sequence[Any],
    shapes: Sequence[Sequence[int]],
    dtypes: Sequence[torch.dtype],
    init_value: float | None,
) -> list[torch.Tensor]:
    tensors = (value.device for value in given if isinstance(value, torch.Tensor))
    device = next(tensors, torch.device("cpu"))
    made = []
    for shape, dtype in zip(shapes, dtypes, strict=True):
        if init_value is None:
            made.append(torch.empty(tuple(shape), dtype=dtype, device=device))
        else:
            made.append(torch.full(tuple(shape), init_value, device=device).to(dtype))
    return made


def _is_fast(name: str, options: Mapping[str, str]) -> bool:
    for word in options:
        if word != "math_mode":
            raise ValueError(f"metal_kernel {name}: no compile option {word!r}; there is math_mode")
    mode = options.get("math_mode", "safe")
    if mode not in _MATH_MODES:
        raise ValueError(
            f"metal_kernel {name}: math_mode is {mode!r}, expected {', '.join(_MATH_MODES)}"
        )
    return mode == "fast"
