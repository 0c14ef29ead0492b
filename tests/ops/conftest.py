"""With ANYMETAL_TEST_FIRST_LAUNCHES=1 (`make checked`), every kernel of the library that a test
launches is checked: its first launch runs twice.

The first of the two is under the checker and over copies of the tensors, so that the test itself
sees nothing of it. Kernels that differ in the type of their elements count as one, and are compiled
without optimisation, on which no finding depends.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import anymetal
from anymetal import ops
from anymetal.checker.context import active
from anymetal.launch.kernel import Kernel

FOLDER = Path(ops.__file__).parent
FILES = frozenset(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.metal"))
# Kernels that write the part of a cache they are asked for, and no more.
IN_PART = frozenset(("paged/blocks.metal",))
TYPE = re.compile(r"_(?:float|half|bfloat)(?=_|$)")

# Made of other operators, which have all tests: these have results in two dtypes, gradients in one,
# and the rest in `make thorough`.
COMPOSED = frozenset(("swiglu_mlp", "lora_attention"))
OF_ALL = re.compile(r"test_(result_is|opcheck|checker_is|operator_has|wrong_dtype|tensor_past)")

_plain_call = Kernel.__call__
_seen: set[tuple[str, str, tuple[Any, ...]]] = set()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("ANYMETAL_TEST_ALL") == "1":
        return
    left_out = {item for item in items if _is_left_out(item)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _is_left_out(item: pytest.Item) -> bool:
    given = item.callspec.params if isinstance(item, pytest.Function) and _has_values(item) else {}
    if given.get("name") not in COMPOSED or given.get("dtype") is torch.float32:
        return False
    return given.get("dtype") is torch.float16 or not OF_ALL.match(item.name)


def _has_values(item: pytest.Function) -> bool:
    return hasattr(item, "callspec")


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine that users get. test_engines.py compares it with the reference engine on a case of
    every operator; `make engines` runs all tests here on the reference engine."""
    monkeypatch.setenv("ANYMETAL_ENGINE", os.environ.get("ANYMETAL_TEST_ENGINE", "auto"))


@pytest.fixture(autouse=True, scope="session")
def first_launches_are_checked() -> Iterator[None]:
    if os.environ.get("ANYMETAL_TEST_FIRST_LAUNCHES") != "1":
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kernel, "__call__", _call)
        patch.setattr(Kernel, "in_turn", _in_turn)
        yield


def _call(kernel: Kernel, *args: Any, **options: Any) -> None:
    if active() is None and _is_new(kernel, args):
        outputs = () if kernel._compiler.source.name in IN_PART else None
        with pytest.MonkeyPatch.context() as patch, anymetal.check(outputs=outputs) as report:
            patch.setenv("ANYMETAL_CHECK_LEVEL", "0")
            _plain_call(kernel, *_copies(args), **options)
        assert not report.findings, str(report)
    _plain_call(kernel, *args, **options)


def _in_turn(kernel: Kernel, launches: Any, group_size: int) -> None:
    for args, threads in launches:
        kernel(*args, threads=threads, group_size=group_size)


def _is_new(kernel: Kernel, args: tuple[Any, ...]) -> bool:
    """Whether a kernel of ours is launched for the first time. Empty launches do not count."""
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    source = kernel._compiler.source.name
    if source not in FILES or not all(t.numel() and t.device.type == "cpu" for t in tensors):
        return False
    key = (source, TYPE.sub("", kernel.name), tuple(sorted(kernel.constants.items())))
    new = key not in _seen
    _seen.add(key)
    return new


def _copies(args: tuple[Any, ...]) -> list[Any]:
    """The arguments over memory of their own; what overlaps still does."""
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(arg: Any) -> Any:
        if not isinstance(arg, torch.Tensor):
            return arg
        storage = arg.untyped_storage()
        mine = storages.setdefault(storage.data_ptr(), storage.clone())
        empty = torch.empty(0, dtype=arg.dtype)
        return empty.set_(mine, arg.storage_offset(), arg.size(), arg.stride())

    return [copy(arg) for arg in args]
