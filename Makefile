# Everything a fresh machine with Python 3.11+ and make needs. `make demo` and `make test` set up the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2

.PHONY: demo test check dev bench acceptance lock format deploy-check clean

demo: $(READY)        ## a real turn on a real Temporal server; its worker is killed in the middle
	@$(BIN)/perdure demo $(ARGS)

test: $(READY)        ## every test but the slow suites
	@$(BIN)/pytest -n $(WORKERS) $(ARGS)

check: $(READY)       ## format, lint, types, layers, and that the acceptance list holds no unknown id
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tests/acceptance.py --check

dev: $(READY)         ## the Temporal server, its web UI and a worker for the librarian, until Ctrl-C
	@$(BIN)/perdure dev perdure.worker.librarian:make

bench: $(READY)       ## what a step costs, against a hand-written loop, as ratios
	@$(BIN)/python -m benchmarks.run

acceptance: $(READY)  ## which test shows which statement of docs/acceptance.md
	@$(BIN)/python tests/acceptance.py

format: $(READY)      ## what a tool can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: $(READY)        ## pin the newest versions that pyproject.toml allows
	@$(BIN)/pip install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --upgrade \
	  --no-emit-index-url --no-annotate --quiet --custom-compile-command "make lock" -o requirements.lock

deploy-check: $(READY)  ## deploy/: the image by hadolint, the compose file and the manifests by their schemas, all by each other
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --editable ".[deploy]"
	@$(BIN)/pytest -q -rs tests/unit/test_deploy.py tests/integration/test_compose_scripts.py

clean:
	rm -rf $(VENV) .perdure build dist *.egg-info

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Perdure needs Python 3.11 or newer; say which with make PYTHON=python3.12")'
	@echo "setting up $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	@PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)
