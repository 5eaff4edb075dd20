# Two commands: `make demo` and `make test`. Both set up .venv on their own. `make interop` tests with the real libraries
# of others, in environments of its own in .interop. `make dist` builds the wheel and tries it in empty environments.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

# Tests start some hundred processes. Where the environment says that byte code is not kept, each of them would read numba's
# sources anew, which takes seconds.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test lint types code unit interop docs dist coverage reproduce bench clean

demo: $(READY)
	@$(BIN)/margmap demo

# What needs one core (types) beside what needs all but waits at times (code); then the tests.
test: $(READY)
	$(MAKE) --jobs 3 lint types code
	$(PYTEST)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# Byte code and machine code, on all cores: tests start many processes, and would wait for each other's compiling.
code: $(READY)
	$(BIN)/python -m compileall -q src
	$(BIN)/margmap warmup

unit: code
	$(PYTEST)

interop:
	$(PYTHON) scripts/interop.py

docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	$(BIN)/python -m mkdocs build --strict --clean

dist:
	$(PYTHON) scripts/dist.py

coverage: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'coverage[toml]>=7.10'
	$(BIN)/python scripts/measure_coverage.py

reproduce: $(READY)
	$(BIN)/python scripts/reproduce.py

bench: $(READY)
	for script in benchmarks/*.py; do $(BIN)/python $$script; done

clean:
	rm -rf $(VENV) .interop .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("margmap needs Python 3.10 or newer; this is " + sys.version.split()[0] + ". Run: make PYTHON=python3.12 ...") if sys.version_info < (3, 10) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[dev]'
	@touch $@
