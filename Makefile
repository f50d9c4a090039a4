# Two commands: `make app` opens the app, `make test` runs the tests. Both set up .venv first, once.
# `make test-all` tries more random instances of the same laws.
# `make test-extras` installs the optional extras too and runs the tests that `make test` skips without them.
# `make docs` builds the documentation site into build/site; it fails on a broken link.
# `make test-package` builds the wheel, installs it away from the checkout, and tests that.

PYTHON ?= python3
BIN := .venv/bin
EXTRAS := .[pictures,cluster,torch]
# $(call install,WHAT): with uv where there is one, else with the pip that runs the Makefile's Python.
install = if command -v uv >/dev/null 2>&1; \
	then uv pip install --quiet --python $(BIN)/python -c constraints.txt $(1); \
	else $(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check -c constraints.txt $(1); fi

TYPESCRIPT := 5.9.3

.PHONY: app test test-all test-extras test-package env lint lint-js docs bench clean

app: env
	$(BIN)/tessel app

env: .venv/.installed

# The processes that tests start compile nothing anew, whatever the shell says.
test test-all test-extras: export PYTHONDONTWRITEBYTECODE =

test: .venv/.installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal --ignore=tests/browser
	$(BIN)/python -m pytest -n 2 --dist worksteal tests/browser

test-all: .venv/.installed-dev
	TESSEL_MORE=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "more or not more"

test-extras: .venv/.installed-extras
	TESSEL_REQUIRE_EXTRAS=1 $(BIN)/python -m pytest -m "extras and not more"

test-package: .venv/.installed-dev
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && chmod 755 "$$folder" && \
		$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-deps -w "$$folder" . ./examples/extension && \
		$(PYTHON) -m venv --without-pip "$$folder/environment" && \
		$(PYTHON) -m pip --python "$$folder/environment/bin/python" install --quiet --disable-pip-version-check \
			-c constraints.txt "$$folder"/*.whl && \
		TESSEL_PACKAGED="$$folder" $(BIN)/python -m pytest tests/package

lint: .venv/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Fails without npx only where TESSEL_REQUIRE_NPM is set, as in CI.
lint-js:
	@if command -v npx >/dev/null; \
		then npx --yes --package typescript@$(TYPESCRIPT) tsc --project tsconfig.json; \
		else echo "No npx on this machine, so the JavaScript is not checked." >&2; test -z "$$TESSEL_REQUIRE_NPM"; fi

bench: env
	$(BIN)/python tests/benchmarks/schedules.py
	$(BIN)/python tests/benchmarks/uneven.py --small
	$(BIN)/python tests/benchmarks/finish.py
	$(BIN)/python tests/benchmarks/crowd.py
	$(BIN)/python tests/benchmarks/exports.py
	$(BIN)/python tests/benchmarks/execution.py
	$(BIN)/python tests/benchmarks/torch_runtime.py
	$(BIN)/python tests/benchmarks/baselines.py --no-search
	$(BIN)/python tests/benchmarks/placement.py
	$(BIN)/python tests/benchmarks/graph_strategies.py
	$(BIN)/python tests/benchmarks/any_sets.py
	$(BIN)/python tests/benchmarks/graph_drawing.py
	$(BIN)/python tests/benchmarks/inspection.py
	$(BIN)/python tests/benchmarks/jitter.py
	$(BIN)/python tests/benchmarks/costs.py
	$(BIN)/python tests/benchmarks/simulation.py
	$(BIN)/python tests/benchmarks/calibration.py
	$(BIN)/python tests/benchmarks/latency.py
	$(BIN)/python tests/benchmarks/sweeps.py
	$(BIN)/python tests/benchmarks/published.py
	$(BIN)/python tests/benchmarks/layers.py
	$(BIN)/python tests/benchmarks/agreement.py

.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing the pinned packages into .venv, once (a minute or two) ..."
	@$(call install,-e .)
	@echo "Compiling the searches' inner loops, once (most of a minute) ..."
	@$(BIN)/python -m tessel_core.scheduling.kernels.warm
	@$(BIN)/python -c "from tessel_core.placement.annealing import warm; warm()"
	@$(BIN)/tessel recommend gpt2-small --mesh h100-2 --global-batch 4 --order-seconds 0 >/dev/null
	@touch $@

.venv/.installed-dev: .venv/.installed
	@echo "Installing the test tools into .venv, once ..."
	@$(call install,-e ".[dev]")
	@touch $@

.venv/.installed-docs: .venv/.installed
	@echo "Installing the documentation tools into .venv, once ..."
	@$(call install,-e ".[docs]")
	@touch $@

.venv/.installed-extras: .venv/.installed-dev
	@echo "Installing the optional extras into .venv, once ..."
	@$(call install,-e "$(EXTRAS)")
	@touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1); try make PYTHON=python3.11"; exit 1; }
	@if command -v uv >/dev/null 2>&1; then uv venv --quiet --python $(PYTHON) .venv; \
		else $(PYTHON) -m venv --without-pip .venv; fi

clean:
	rm -rf .venv
