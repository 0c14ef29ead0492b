"""The option `--mps` and the fixture `mps` of the pytest plugin."""

from __future__ import annotations

from pathlib import Path

from programs import run_text, write


def pytest_run(folder: Path, text: str, *options: str) -> tuple[int, str]:
    path = write(folder, text).rename(folder / "test_program.py")
    main = "import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    status, output, errors = run_text(main, "-q", "-p", "no:cacheprovider", *options, str(path))
    return status, output + errors


def test_option_gives_the_run_a_device(tmp_path: Path) -> None:
    text = """
        import torch

        AT_IMPORT = torch.ones(2, device="mps")  # there before the first test is collected

        def test_device():
            assert (AT_IMPORT + 1).is_mps
    """
    status, output = pytest_run(tmp_path, text, "--mps")
    assert status == 0, output


def test_fixture_gives_one_test_a_device(tmp_path: Path) -> None:
    text = """
        import torch

        def test_before():
            assert not torch.backends.mps.is_available()

        def test_device(mps):
            assert torch.ones(2, device=mps).is_mps
    """
    status, output = pytest_run(tmp_path, text)
    assert status == 0, output


def test_kernels_are_checked_on_the_device(tmp_path: Path) -> None:
    text = '''
        import torch

        SOURCE = """
        kernel void too_far(device float* x, uint i [[thread_position_in_grid]]) { x[i + 1] = 0; }
        """

        def test_kernel():
            torch.mps.compile_shader(SOURCE).too_far(torch.ones(4, device="mps"))
    '''
    status, output = pytest_run(tmp_path, text, "--mps", "--metal-check")
    assert status == 1
    assert "out_of_bounds" in output
