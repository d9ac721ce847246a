# Everything a contributor needs; `make` alone says what there is.
# SHELL stays /bin/sh: nothing here needs more.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WEB := web/node_modules/.ready
BOARD := src/outlast/http/board/index.html
HAS_NODE := node -e 'const [a, b] = process.versions.node.split("."); process.exit(Number(a < 20 || (a == 20 && b < 19)))' 2>/dev/null && npm -v >/dev/null 2>&1
APP ?=
ENGINES ?=

.DEFAULT_GOAL := help
.PHONY: help setup board generate run demo test lint bench proof torture clean

help: ## Show this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10

setup: $(READY) board ## Make .venv with everything in it (nothing to do when nothing changed)

# The interpreter: the newest Python from 3.11 on that can make a virtual environment.
$(READY): pyproject.toml constraints.txt
	@set -e; \
	if [ ! -x $(BIN)/python ]; then \
		for python in python3.14 python3.13 python3.12 python3.11 python3 python; do \
			if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
			then found=$$python; break; fi; \
		done; \
		if [ -z "$$found" ]; then \
			echo "Outlast needs Python 3.11 or later with its venv module, and none was found on the PATH." >&2; \
			exit 1; \
		fi; \
		echo "Making $(VENV) with $$($$found --version)"; \
		$$found -m venv $(VENV); \
	fi; \
	echo "Installing Outlast and its tools into $(VENV)"; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,fast,postgres,redis,mongo]'; \
	touch $@; \
	echo "Ready: $(BIN)/outlast"

$(WEB): web/package.json web/client/package.json web/board/package.json web/package-lock.json | $(READY)
	@if ! $(HAS_NODE); then \
		echo "The TypeScript client and the dashboard need Node.js 20.19 or later with npm, and none was found on the PATH." >&2; \
		exit 1; \
	fi; \
	echo "Installing the tools of the TypeScript client and the dashboard into web/node_modules"; \
	cd web && npm ci --loglevel=error && touch node_modules/.ready

# The dashboard, when Node.js is there: without it everything else runs.
board: | $(READY)
	@if $(HAS_NODE); then $(MAKE) --no-print-directory $(BOARD); \
	else echo "The dashboard is not built: that needs Node.js 20.19 or later with npm. Everything else runs."; fi

$(BOARD): $(WEB) $(shell find web/board web/client/src -type f -not -path '*/node_modules/*' 2>/dev/null)
	@echo "Building the dashboard"; cd web && npm run build --silent -w board

generate: setup $(WEB) ## Write anew what code knows better: the reference, the TypeScript types
	$(BIN)/python docs/generate.py

run: setup ## Start API, dashboard and worker on the sample app (APP=module:app for yours)
	$(BIN)/outlast dev $(APP)

demo: setup ## Watch it work and outlast a crash: no key, no network
	$(BIN)/outlast demo

test: lint ## Lint, then run every test
	$(BIN)/python -m tests.board.chromium
	cd web && npm test --silent
	$(BIN)/pytest -n 3 --dist worksteal --ignore tests/torture  # two cores, and most tests wait
	$(BIN)/pytest tests/torture  # by itself: it tells lost time from lost work by the clock

lint: setup $(WEB) ## Check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	cd web && npm run check --silent

bench: setup ## Measure on every engine, side by side with the peers
	$(BIN)/python benchmarks/bench.py

proof: setup ## Check the promises of the specification, one by one
	$(BIN)/python benchmarks/proof.py

torture: setup ## Every engine under faults at full size, then every wrong engine (an hour)
	$(BIN)/python -m tests.torture.full $(ENGINES)

clean: ## Remove what builds and tests leave behind (.venv stays)
	rm -rf build dist web/client/dist src/outlast/http/board .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
