"""Names and numbers of the stand-in Metal against pyobjc's metadata of the real one.

The package is fetched when the test runs; without a network it says so and fails.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile

import pytest

from anymetal.extension.compiling import STANDIN

HEADERS = STANDIN / "include" / "Metal"
_ENUM = re.compile(r"NS_(?:ENUM|OPTIONS)\(\w+, \w+\)\s*\{(.*?)\}", re.DOTALL)
_METHOD = re.compile(r"^[-+] \([^;]*?;", re.MULTILINE | re.DOTALL)
_PROPERTY = re.compile(r"^@property\(([^)]*)\)[^;]*?(\w+);", re.MULTILINE)


@pytest.fixture(scope="module")
def pyobjc(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    """The text of the metadata, and the bytes of the module that declares the protocols."""
    folder = tmp_path_factory.mktemp("pyobjc")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version=3.12", "--abi=cp312"]
    command += ["--platform=macosx_10_13_universal2", "--platform=macosx_11_0_universal2"]
    command += [f"--dest={folder}", "pyobjc-framework-Metal"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (module,) = (name for name in archive.namelist() if "/_Metal." in name)
        return archive.read("Metal/_metadata.py").decode(), archive.read(module)


def headers() -> str:
    return "\n".join(path.read_text() for path in sorted(HEADERS.glob("*.h")))


def enumerators(text: str) -> dict[str, int]:
    """Every enumerator with its value; without one it is the one before plus 1."""
    values: dict[str, int] = {}
    for body in _ENUM.findall(text):
        following = 0
        for entry in filter(None, (part.strip() for part in body.split(","))):
            name, _, expression = entry.partition("=")
            value = eval(expression, {}, values) if expression.strip() else following
            values[name.strip()] = value
            following = value + 1
    return values


def selectors(text: str) -> set[str]:
    """Methods, and what properties are read and written by."""
    found = set()
    for method in _METHOD.findall(text):
        bare = re.sub(r"\((?:[^()]|\([^()]*\))*\)", " ", method)
        words = re.findall(r"(\w+)\s*:", bare)
        name = re.match(r"[-+]\s+(\w+)", bare)
        assert name
        found.add("".join(f"{word}:" for word in words) if words else name[1])
    for attributes, name in _PROPERTY.findall(text):
        getter = re.search(r"getter=(\w+)", attributes)
        found.add(getter[1] if getter else name)
        if "readonly" not in attributes:
            found.add(f"set{name[0].upper()}{name[1:]}:")
    return found


def test_enumerators_have_the_values_of_the_real_ones(pyobjc: tuple[str, bytes]) -> None:
    metadata = pyobjc[0]
    real = {name: int(value) for name, value in re.findall(r"(MTL\w+)@(-?\d+)", metadata)}
    ours = enumerators(headers())
    assert len(ours) > 80
    wrong = {name: value for name, value in ours.items() if real.get(name, value) != value}
    assert not wrong
    assert not {name for name in ours if name not in real}


def protocols(text: str) -> str:
    """The declarations of protocols: the module has their methods, and not those of classes."""
    return "\n".join(re.findall(r"^@protocol \w+ <.*?^@end", text, re.MULTILINE | re.DOTALL))


def test_selectors_are_those_of_the_real_protocols(pyobjc: tuple[str, bytes]) -> None:
    metadata, module = pyobjc
    ours = selectors(protocols(headers()))
    assert "setBuffer:offset:atIndex:" in ours and len(ours) > 90
    words = set(re.findall(rb"[A-Za-z_:][\w:]*", module))
    assert not {
        name for name in ours if f'b"{name}"' not in metadata and name.encode() not in words
    }
