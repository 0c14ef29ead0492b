# Every target makes .venv and installs what it needs first; a second run finds that done.
#
#   make demo         take a tour: a kernel, a bug found in it, a script for a Mac, operators
#   make test         all tests
#   make quick        a part of them in seconds: rooms, documents, launches and the command
#   make thorough     all tests with every parameter; `make test` has samples of the longest
#   make checked      the operators' tests again, the first launch of every kernel under the checker
#   make engines      the operators' tests again, on the reference engine
#   make health       every operator on the virtual mps device: numbers, gradients, opcheck, checker
#   make attack       hostile sources, planted defects, damaged caches, memory over time; long
#   make lint         formatting, style, types, dead code and the changelog
#   make lengths      kernels as vector code: the longest, and what falls back (LENGTHS chooses)
#   make cuda         kernels of operators and header tests through NVIDIA's assembler: registers
#   make simulated    the CUDA engine on a simulated GPU: operators, header tests, random kernels
#   make conformance  compile the kernels of a published package and of torch's headers
#   make parity       our front end judged by Apple's compiler: its kernels from public wheels; hours
#   make extension    extensions: every template's project, and the check for macOS (fetches torch)
#   make op-db        torch's own operator samples on the virtual mps device, against the CPU
#   make bench        time the engine
#   make docs         the documentation site, in build/site
#   make dist         sdist and wheel, tried in an environment of their own
#
# PYTHON chooses the interpreter. PIP_FLAGS is handed to pip: on Linux,
#   make demo PIP_FLAGS='--extra-index-url https://download.pytorch.org/whl/cpu'
# gets the torch build without CUDA, which is a tenth of the download.

PYTHON ?= python3
PIP_FLAGS ?=
VENV := .venv
BIN := $(VENV)/bin
TESTS ?= tests
# Neighbouring tests launch the same kernels: a worker starts with a contiguous half of them.
# There are half as many again as processors, since some tests wait for others' builds and limits.
WORKERS := -n $(shell $(PYTHON) -c 'import os; print(os.cpu_count() * 3 // 2)') --dist worksteal

# Kernels of tests are left as they are: what is said of them names their lines.
C_SOURCES = $(shell find src/anymetal/msl/include -type f) \
  $(shell find src benchmarks tests/cuda/simulator -not -path '*/msl/include/*' \
    -name '*.h' -o -name '*.c' -o -name '*.cpp' -o -name '*.mm' -o -name '*.metal' -o -name '*.cl')

# Some machines ask for no bytecode: each of a hundred processes of the tests would compile all of
# our modules and pytest all of the tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test quick thorough checked engines health attack lint format conformance parity \
  extension op-db \
  bench linalg lengths cuda simulated docs dist clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | sed '/^$$/q' | head -1
	@sed -n 's/^#   make \([a-z-]*  \)/  make \1/p' Makefile

demo: $(VENV)/.installed
	$(BIN)/anymetal demo

test: $(VENV)/.developer
	$(BIN)/python -m pytest $(TESTS) $(WORKERS)

quick: $(VENV)/.developer
	$(BIN)/python -m pytest tests/test_rooms.py tests/test_docs.py::test_links_lead_somewhere \
	  tests/test_docs.py::test_lines_fit 'tests/test_docs.py::test_code_blocks_run[README.md]' \
	  tests/learn/test_skill.py tests/launch tests/cli $(WORKERS)

thorough: $(VENV)/.developer
	ANYMETAL_TEST_ALL=1 $(BIN)/python -m pytest $(TESTS) $(WORKERS)

checked: $(VENV)/.developer
	ANYMETAL_TEST_ALL=1 ANYMETAL_TEST_FIRST_LAUNCHES=1 $(BIN)/python -m pytest tests/ops $(WORKERS)

engines: $(VENV)/.developer
	ANYMETAL_TEST_ENGINE=coroutine $(BIN)/python -m pytest tests/ops $(WORKERS)

health: $(VENV)/.developer
	ANYMETAL_DEVICE=1 $(BIN)/anymetal health --device mps

attack: $(VENV)/.developer
	$(BIN)/python -m tests.attack --apart

lint: $(VENV)/.developer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(C_SOURCES)
	$(BIN)/mypy
	! $(BIN)/vulture | grep -E 'unused (class|function|method|property)'
	$(BIN)/towncrier build --draft --version next > /dev/null

format: $(VENV)/.developer
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_SOURCES)

conformance: $(VENV)/.developer
	$(BIN)/python -m conformance

# One eighth of it: make parity SHARD=3/8
SHARD ?= 1/1
parity: $(VENV)/.developer
	$(BIN)/python -m parity --shard $(SHARD)
	$(BIN)/python -m parity --page

extension: $(VENV)/.developer
	ANYMETAL_TEST_ALL=1 $(BIN)/python -m pytest tests/extension

op-db: $(VENV)/.developer
	$(BIN)/python -m conformance.op_db

bench: $(VENV)/.developer
	$(BIN)/python benchmarks/engines.py
	$(BIN)/python benchmarks/device.py
	$(BIN)/python benchmarks/linalg.py

# LAPACK's test ratios beside torch's own, over more and larger matrices than the tests have.
linalg: $(VENV)/.developer
	$(BIN)/python tests/linalg/gallery.py --sizes 1 5 16 32 33x17 17x33 64 100 130 200x64

# Six minutes on one core; hours with LENGTHS="mlx mlx-26".
LENGTHS ?= operators conformance
lengths: $(VENV)/.developer
	nice $(BIN)/python -m tests.engines.lengths $(LENGTHS)

# Ten minutes on two cores.
cuda: $(VENV)/.developer
	@mkdir -p dist
	$(BIN)/anymetal compile --operators --target cuda-sm90 -o dist/operators.bundle
	$(BIN)/python tests/cuda/assemble.py dist/operators.bundle --all
	$(BIN)/python -m pytest -q -p tests.cuda.recording --record dist/headers.launches tests/msl
	$(BIN)/python tests/cuda/pack.py dist/headers.bundle dist/headers.launches
	$(BIN)/python tests/cuda/assemble.py dist/headers.bundle --all

# Fifteen minutes on two cores.
simulated: $(VENV)/.developer
	@mkdir -p dist
	$(BIN)/python -m pytest -q -p tests.cuda.recording --record dist/headers.launches tests/msl
	$(BIN)/python -m tests.cuda.simulator launches dist/headers.launches
	$(BIN)/python -m tests.cuda.simulator random
	$(BIN)/python -m tests.cuda.simulator --capability 80 random
	$(BIN)/python -m tests.cuda.simulator published
	$(BIN)/python -m pytest -p tests.cuda.simulator.plugin tests/ops tests/linalg tests/optim $(WORKERS)

# NO_MKDOCS_2_WARNING: the theme's advertisement of its successor is no warning of ours.
docs: $(VENV)/.developer
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m tools.site --build

# The wheel alone, in an environment that never saw this checkout: what users get.
dist: $(VENV)/.developer
	rm -rf dist/anymetal-* build/wheel-environment
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv build/wheel-environment
	build/wheel-environment/bin/python -m pip install --quiet $(PIP_FLAGS) \
	  --constraint constraints.txt dist/anymetal-*.whl
	cd build && wheel-environment/bin/anymetal --version && wheel-environment/bin/anymetal demo

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Some distributions ship Python without ensurepip; then the pip that is there fills the new venv.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "anymetal needs Python 3.10 or newer; choose one with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv' \
	  || { echo "$(PYTHON) has no venv module: install it (Debian: python3-venv)" >&2; exit 1; }
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then \
	  $(PYTHON) -m venv $(VENV); \
	else \
	  $(PYTHON) -m venv --without-pip $(VENV) \
	    && $(PYTHON) -m pip --python $(BIN)/python install pip; \
	fi || { rm -rf $(VENV); echo "could not make $(VENV)" >&2; exit 1; }

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.developer: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet $(PIP_FLAGS) --constraint constraints.txt --editable '.[dev]'
	@touch $(VENV)/.installed $@
