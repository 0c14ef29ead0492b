"""Launch policies: which row answers a question, and what a mistake in a file looks like."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anymetal.errors import PolicyError
from anymetal.policy import policy
from anymetal.policy.policy import Choice, choose, override, recorded
from anymetal.policy.policy_file import parse_policies, read_policies

WORDS = read_policies(policy.PACKAGE_FILE).words
HEAD = "version = 1\n"
ROW = '[[policy]]\noperator = "softmax"\nstrategy = "looped"\n'


def ask(
    operator: str = "softmax",
    dtype: str = "fp32",
    shape_class: str = "any",
    device: str = "cpu",
    strategy: str = "looped",
) -> Choice:
    return choose(operator, dtype, shape_class, device, strategy)


Write = Callable[[str], Path]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No file of the user's, no tuned values."""
    monkeypatch.delenv("ANYMETAL_POLICY", raising=False)
    monkeypatch.setattr(policy, "user_file", lambda: tmp_path / "config" / "policies.toml")
    monkeypatch.setattr(policy, "_tuned", [])
    policy.forget()
    yield
    monkeypatch.undo()
    policy.forget()


@pytest.fixture
def write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Write:
    """A user's own file."""

    def write(rows: str) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(HEAD + rows)
        monkeypatch.setenv("ANYMETAL_POLICY", str(path))
        policy.forget()
        return path

    return write


def test_package_file_is_sound() -> None:
    file = read_policies(policy.PACKAGE_FILE)
    assert len(file.rows) > 5
    assert {"elementwise", "looped", "two_phase"} <= set(file.words.strategies)


@pytest.mark.parametrize("operator", ["silu", "softmax", "rms_norm", "layer_norm", "rope"])
def test_operators_and_their_gradients_have_rows(operator: str) -> None:
    rows = read_policies(policy.PACKAGE_FILE).rows
    for name in (operator, f"{operator}_backward"):
        assert any({name, "*"} & row.operators for row in rows), name


def test_own_row_outranks_that_of_every_operator() -> None:
    rows = read_policies(policy.PACKAGE_FILE).rows
    shared = [row for row in rows if row.operators == {"*"}]
    assert {"elementwise", "single_simdgroup", "looped", "two_phase"} <= {
        strategy for row in shared for strategy in row.strategies
    }
    assert ask(operator="nonesuch", strategy="looped").origin == next(
        row.place for row in shared if "looped" in row.strategies
    )
    own = ask(operator="rms_norm", strategy="looped", device="cpu")
    assert own.origin != ask(operator="nonesuch", strategy="looped", device="cpu").origin


def test_missing_row_is_an_error_that_names_it() -> None:
    with pytest.raises(PolicyError, match=r'operator = "nonesuch" and strategy = "tiles"'):
        ask(operator="nonesuch", strategy="tiles")
    with pytest.raises(PolicyError, match="unknown dtype 'float'"):
        ask(dtype="float")


def test_users_file_goes_first(write: Write) -> None:
    path = write(ROW + 'dtype = "bf16"\ngroup_size = 96\nvalues = { rows_per_group = 3 }\n')
    choice = ask(dtype="bf16")
    assert (choice.group_size, choice.values) == (96, {"rows_per_group": 3})
    assert choice.origin == f"{path.name}:2"
    assert ask(dtype="fp16").origin.startswith("policies.toml")


def test_row_may_name_several_dtypes(write: Write) -> None:
    write(ROW + 'dtype = ["bf16", "fp16"]\ngroup_size = 96\n')
    assert [ask(dtype=dtype).group_size == 96 for dtype in ("bf16", "fp16", "fp32")] == [
        True,
        True,
        False,
    ]


def test_file_in_the_configuration_directory(tmp_path: Path, write: Write) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "policies.toml").write_text(HEAD + ROW + "group_size = 64\n")
    policy.forget()
    assert ask().group_size == 64
    write(ROW + "group_size = 160\n")
    assert ask().group_size == 160


def test_more_exact_row_wins_whatever_the_order(write: Write) -> None:
    write(
        f'{ROW}shape_class = "long_rows"\ngroup_size = 128\n'
        f'{ROW}dtype = "fp16"\ngroup_size = 64\n'
        f"{ROW}group_size = 32\n"
    )
    assert ask().group_size == 32
    assert ask(dtype="fp16").group_size == 64
    assert ask(shape_class="long_rows").group_size == 128
    assert ask(dtype="fp16", shape_class="long_rows").group_size == 128


def test_later_of_equal_rows_wins(write: Write) -> None:
    write(f"{ROW}group_size = 64\n{ROW}group_size = 128\n")
    assert ask().group_size == 128


@pytest.mark.skipif(sys.platform == "darwin", reason="mps is a GPU there")
def test_virtual_mps_is_the_cpu_engine(write: Write) -> None:
    write(f'{ROW}device = "mps"\ngroup_size = 1024\n{ROW}device = "cpu"\ngroup_size = 64\n')
    assert ask(device="mps").group_size == ask(device="cpu").group_size == 64


def test_gpu_families(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "device_families", lambda device: ("mps-m3", "mps"))
    write(
        f'{ROW}device = "mps-m3"\ngroup_size = 96\n'
        f'{ROW}device = "mps"\nshape_class = "any"\ndtype = "fp32"\ngroup_size = 64\n'
        f'{ROW}device = "mps-m1"\ngroup_size = 32\n'
    )
    assert ask(device="mps").group_size == 96


def test_override_holds_inside_its_block() -> None:
    before = ask().group_size
    with override("softmax", group_size=96, rows_per_group=2):
        inside = ask()
        assert (inside.group_size, inside.values["rows_per_group"]) == (96, 2)
        assert inside.origin == "override"
        assert ask("log_softmax").group_size != 96
        with override(strategy="looped", group_size=64):
            assert ask().group_size == 64
        assert ask().group_size == 96
    assert ask().group_size == before


def test_override_reaches_threads_without_one_of_their_own() -> None:
    seen = []
    with override("softmax", group_size=96):
        thread = threading.Thread(target=lambda: seen.append(ask().group_size))
        thread.start()
        thread.join()
    assert seen == [96]


@pytest.mark.parametrize("size", [1025, 33])
def test_impossible_override(size: int) -> None:
    with override("softmax", group_size=size), pytest.raises(PolicyError, match=str(size)):
        ask()


def test_override_of_an_elementwise_kernel_may_be_odd() -> None:
    with override("silu", group_size=33):
        assert ask("silu", strategy="elementwise").group_size == 33


def test_recorded_questions() -> None:
    with recorded() as questions:
        ask()
        ask("silu", strategy="elementwise")
        ask()
    ask("gelu", strategy="elementwise")
    assert [question.operator for question in questions] == ["softmax", "silu"]


MISTAKES = [
    (HEAD + ROW + "group_sise = 3\ngroup_size = 64\n", 5, "unknown key 'group_sise'"),
    (HEAD + ROW + "group_size = 2048\n", 5, "group_size is 2048"),
    (HEAD + ROW + "group_size = 0\n", 5, "group_size is 0"),
    (HEAD + ROW + "group_size = true\n", 5, "group_size is True"),
    (HEAD + ROW + "group_size = 100\n", 5, "multiple of 32"),
    (HEAD + ROW, 2, "the row has no 'group_size'"),
    (HEAD + ROW + 'group_size = 64\ndtype = "float"\n', 6, "unknown dtype 'float'"),
    (HEAD + ROW + 'group_size = 64\nshape_class = "huge"\n', 6, "unknown shape_class 'huge'"),
    (HEAD + ROW + 'group_size = 64\ndevice = "tpu"\n', 6, "unknown device 'tpu'"),
    (HEAD + ROW + "group_size = 64\nvalues = { a = 1.5 }\n", 6, "value 'a' is 1.5"),
    (HEAD + ROW + "group_size = 64\ncandidates = { b = [1] }\n", 6, "candidates for 'b'"),
    (
        HEAD + ROW + "group_size = 64\ncandidates = { group_size = [33] }\n",
        6,
        "group_size is 33",
    ),
    (HEAD + ROW.replace("looped", "lopped") + "group_size = 64\n", 4, "unknown strategy 'lopped'"),
    (HEAD + ROW + f"group_size = 64\n{ROW}group_size = 7\n", 9, "group_size is 7"),
    (HEAD + "polices = 3\n", 2, "unknown key 'polices'"),
    ("version = 2\n", 1, "version is 2"),
    (ROW + "group_size = 64\n", 1, "version is None"),
    (HEAD + "policy = 3\n", 2, "rows are written as"),
    (HEAD + "[strategies]\nmine = 3\n", 3, "strategy 'mine' needs"),
]


@pytest.mark.parametrize(("text", "line", "words"), MISTAKES, ids=[words for *_, words in MISTAKES])
def test_mistake_is_found_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(PolicyError) as raised:
        parse_policies(text, Path("mine.toml"), WORDS)
    assert str(raised.value).startswith(f"mine.toml:{line}: ")
    assert words in str(raised.value)


def test_broken_toml_names_the_line() -> None:
    with pytest.raises(PolicyError, match=r"mine\.toml: not valid TOML: .*line 2"):
        parse_policies("version = 1\noperator =\n", Path("mine.toml"), WORDS)


def test_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANYMETAL_POLICY", str(tmp_path / "none.toml"))
    with pytest.raises(PolicyError, match=r"none\.toml: cannot be read"):
        ask()


def test_file_may_declare_strategies_of_its_own() -> None:
    text = (
        HEAD
        + '[strategies]\nmine = { collectives = false, meaning = "as I like it" }\n'
        + '[[policy]]\noperator = "f"\nstrategy = "mine"\ngroup_size = 7\n'
    )
    (row,) = parse_policies(text, Path("mine.toml"), WORDS).rows
    assert row.group_size == 7


def in_project(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    folder.joinpath("pyproject.toml").write_text(f"[project]\nversion = '7'\n{text}")
    monkeypatch.chdir(folder)
    policy.forget()


TABLE = "[[tool.anymetal.policies.policy]]\noperator = 'softmax'\nstrategy = 'looped'\n"


def test_project_has_policies_in_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    in_project(tmp_path, monkeypatch, f"{TABLE}group_size = 96\n[tool.other]\nstrategy = 'x'\n")
    assert ask() == Choice(96, {}, "pyproject.toml:3", {})
    write(ROW + "group_size = 64\n")
    assert ask().group_size == 64, "the environment goes before the project"


def test_project_names_a_file_of_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shapes.toml").write_text(f"{HEAD}{ROW}group_size = 160\n")
    in_project(tmp_path, monkeypatch, "[tool.anymetal]\npolicies = 'shapes.toml'\n")
    assert ask() == Choice(160, {}, "shapes.toml:2", {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{TABLE}group_size = 100\n", r"pyproject.toml:6: group_size is 100"),
        (f"{TABLE}group_size = 96\nsize = 1\n", r"pyproject.toml:7: unknown key 'size'"),
        (f"{TABLE}[tool.x]\nsize = 1\n", r"pyproject.toml:3: the row has no 'group_size'"),
        ("[tool.anymetal.policies]\nversion = 2\n", r"pyproject.toml:4: version is 2"),
        ("[tool.anymetal]\npolicies = 3\n", r"policies is 3: expected a table, or a file"),
    ],
)
def test_mistake_in_a_project_has_its_line(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_project(tmp_path, monkeypatch, text)
    with pytest.raises(ValueError, match=words):
        ask()
