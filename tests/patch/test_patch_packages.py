"""Packages that are not installed: an error that names them and how to get them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from anymetal import patch, weights
from anymetal.errors import WeightsError


@pytest.mark.parametrize("package", ["transformers", "diffusers"])
def test_patch_names_the_missing_package(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    missing: Any = lambda name, *rest: None if name == package else find(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", missing)
    model = nn.Sequential(nn.LayerNorm(4))
    before = dict(vars(model[0]))
    words = f"patch.{package} needs the package {package}: pip install '{package}"
    with pytest.raises(ImportError, match=words):
        getattr(patch, package)(model)
    assert vars(model[0]) == before


@pytest.mark.parametrize(
    ("package", "load"), [("gguf", weights.load_gguf), ("safetensors", weights.load_mlx)]
)
def test_loaders_name_the_missing_package(
    package: str, load: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # which makes its import an ImportError
    words = f"{load.__name__}: needs the package `{package}`: pip install {package}"
    with pytest.raises(WeightsError, match=words):
        load(tmp_path / "any", nn.Linear(2, 2))
