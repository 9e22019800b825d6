# `make demo` runs the main job, `make test` the tests; each makes its own virtual environment first.
PYTHON ?= python3
BIN := .venv/bin
OUT ?= out

.PHONY: demo test slow lint clean

demo: .venv/installed
	$(BIN)/moarw optimize examples/attention.moa --machine host -D h 8 -D n 1024 -D m 1024 -D d 64 -D e 64 -o $(OUT)/attention-host
	$(BIN)/moarw check $(OUT)/attention-host
	$(BIN)/moarw run $(OUT)/attention-host -D h 8 -D n 1000 -D m 777 -D d 64 -D e 64

test: .venv/installed
	$(BIN)/python -m pytest

slow: .venv/installed
	$(BIN)/python -m pytest -m slow

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/mypy

.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@

clean:
	rm -rf out build dist .pytest_cache .mypy_cache .ruff_cache
