# Everything a fresh machine with Python 3.11+ and make needs. `make demo` and `make test` set up the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .venv-peers
WORKERS ?= 4

unexport PYTHONDONTWRITEBYTECODE  # or each process would rewrite the asserts of all tests anew

.PHONY: demo test check dev test-slow soak soak-sessions test-local-model local-model-tools bench bench-attacks bench-attacks-http bench-budgets bench-actions bench-trees bench-long bench-recovery bench-sessions bench-starvation bench-streams bench-local bench-peers screenshots acceptance bad-input mistakes lock format deploy-check deploy-tools mcp-servers docs docs-check docs-serve docs-tools clean

demo: $(READY)        ## a real turn on a real Temporal server; its worker is killed in the middle
	@$(BIN)/perdure demo $(ARGS)

test: $(READY)        ## every test but the slow suites
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal --durations 10 --durations-min 5 $(ARGS)

BY_EXAMPLE = tests/unit tests/e2e/test_tree_kills.py tests/integration/test_odd_bodies.py tests/integration/test_odd_results.py \
  tests/integration/test_canary.py tests/integration/test_chaos.py tests/integration/test_bad_input_table.py

test-slow: $(READY)   ## what `make test` leaves out: more kills, drains and resets, a server that is away, and all examples of the tests by example
	@PERDURE_CRASH_SEEDS=30 $(BIN)/pytest -n $(WORKERS) --dist worksteal -m slow $(BY_EXAMPLE:%=--ignore %) $(ARGS)
	@PERDURE_TREE_SEEDS=30 PERDURE_EXAMPLES=1 PERDURE_CHAOS_TURNS=60 $(BIN)/pytest -n $(WORKERS) --dist worksteal -m "" $(ARGS) $(BY_EXAMPLE)

soak: $(READY)        ## 100,000 orders of events of a ledger's tree; 100 trees of up to 40 agents whose workers are killed; 200 turns on chaotic providers; a turn of 5,000 steps whose worker is killed 20 times; a batch of 10,000 tasks with 20 kills; a storm of 200 sessions with 10 killed workers and 3 killed servers; what is killed has a supervisor; an hour and a half
	@PERDURE_LEDGER_ORDERS=100000 $(BIN)/pytest --timeout 7200 tests/unit/test_ledger_trees.py
	@PERDURE_CHAOS_TURNS=200 $(BIN)/pytest -s -m "" tests/integration/test_chaos.py
	@PERDURE_TREE_SEEDS=100 PERDURE_TREE_AGENTS=40 $(BIN)/pytest -m "" -k supervised -n $(WORKERS) $(ARGS) tests/e2e/test_tree_kills.py
	@PERDURE_LONG_STEPS=5000 PERDURE_LONG_KILLS=20 $(BIN)/pytest -m "" -k supervised $(ARGS) tests/e2e/test_long_turns.py
	@PERDURE_BATCH_TASKS=10000 PERDURE_BATCH_KILLS=20 $(BIN)/pytest -s -m "" -k supervised $(ARGS) tests/e2e/test_batch_kills.py
	@$(MAKE) soak-sessions

soak-sessions: $(READY)  ## 200 sessions with messages of all kinds, while 10 workers and 3 servers are killed; PERDURE_SESSION_SEED=1 draws another storm
	@PERDURE_SESSIONS=200 PERDURE_SESSION_KILLS=10 PERDURE_SESSION_OUTAGES=3 $(BIN)/pytest -s -m "" -k supervised $(ARGS) tests/e2e/test_session_storm.py

LOCAL_MODEL = import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["local-model"])

test-local-model: local-model-tools  ## a real small model over real HTTP
	@$(BIN)/pytest -o 'norecursedirs=.*' $(ARGS) tests/local_model

local-model-tools: $(READY)  # without what they stand on, for that is compiled from source and not used
	@$(BIN)/pip install --quiet --disable-pip-version-check --retries 1 --no-deps $$($(BIN)/python -c '$(LOCAL_MODEL)')

check: $(READY)       ## format, lint, types (of the code blocks of the pages too), layers, and that the acceptance list holds no unknown id
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/pytest -q -m "" tests/docs/test_types.py
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tests/acceptance.py --check

dev: $(READY)         ## the Temporal server, its web UI and a worker for the librarian, until Ctrl-C
	@$(BIN)/perdure dev perdure.worker.librarian:make

bench: $(READY)       ## what a step costs, against a hand-written loop, as ratios
	@$(BIN)/python -m benchmarks.run

bench-peers: $(PEERS)/.ready  ## the same job on four other ways to build agents, in an environment of its own; half an hour
	@$(PEERS)/bin/python -m benchmarks.peers.run

bench-budgets: $(READY)  ## does the bill stay within the budget? A model that never stops, and a provider that bills by its own counter
	@$(BIN)/python -m benchmarks.budgets

bench-attacks: $(READY)  ## does an honest turn notice what is done to its worker? Seventeen attacks, each on a worker of its own; a quarter of an hour
	@$(BIN)/python -m benchmarks.attacks $(ARGS)

bench-attacks-http: $(READY)  ## do the requests of a caller notice what another does to the gateway? Ten attacks; five minutes
	@$(BIN)/python -m benchmarks.attacks_http $(ARGS)

bench-actions: $(READY)  ## how many actions Temporal Cloud would bill for a turn and a step, by the server's own count; five minutes
	@$(BIN)/python -m benchmarks.actions $(ARGS)

bench-trees: $(READY)  ## the same for trees of agents, then what a delegation costs against child workflows started by hand; five minutes
	@$(BIN)/python -m benchmarks.trees
	@$(BIN)/python -m benchmarks.delegations

bench-recovery: $(READY)  ## how soon another process goes on after a kill -9, with and without a supervisor; ten minutes, ARGS=5 for fewer kills
	@$(BIN)/python -m benchmarks.recovery $(ARGS)

bench-starvation: $(READY)  ## how many calls count as lost on a starved machine, and how soon a lost one is noticed, by the tolerance of heartbeats; an hour and a half, ARGS="2.5,12 25 120 60" for a short run
	@$(BIN)/python -m benchmarks.starvation $(ARGS)

bench-streams: $(READY)  ## how late events are with 1,000 open streams over HTTP, against a stream for each turn, and what a stream costs; three minutes
	@$(BIN)/python -m benchmarks.streams

bench-sessions: $(READY)  ## what a message of a session costs, against a turn by itself
	@$(BIN)/python -m benchmarks.sessions

bench-local: $(READY)  ## what a local tool saves, against an ordinary one, as ratios; ARGS=COMMIT compares with the tree of a commit as well; five minutes
	@$(BIN)/python -m benchmarks.local_tools $(ARGS)

bench-long: $(READY)  ## a turn of 10,000 steps over many runs: how long a continue-as-new takes, and how soon another worker goes on after a kill; a quarter of an hour
	@$(BIN)/python -m benchmarks.long_turns $(ARGS)

screenshots: $(READY)  ## pictures of turns in Temporal's web UI and on the page, for docs/
	@$(BIN)/pip install --quiet --disable-pip-version-check playwright
	@$(BIN)/python docs/pictures/take.py
	@$(BIN)/python docs/pictures/take_page.py

acceptance: $(READY)  ## which test shows which statement of docs/acceptance.md
	@$(BIN)/python tests/acceptance.py

bad-input: $(READY)   ## try every row of docs/bad-input.md, and write the page anew
	@$(BIN)/pytest -n $(WORKERS) -m "" -k "not page" tests/integration/test_bad_input_table.py
	@$(BIN)/python -m tests.integration.bad_inputs

mistakes: $(READY)    ## try every row of docs/mistakes.md, and write the page anew
	@$(BIN)/python -m tests.unit.mistakes

format: $(READY)      ## what a tool can mend
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: $(READY)        ## pin the newest versions that pyproject.toml allows
	@$(BIN)/pip install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --upgrade \
	  --no-emit-index-url --no-annotate --quiet --custom-compile-command "make lock" -o requirements.lock

MCP_SERVERS = @modelcontextprotocol/server-everything@2026.8.31 @modelcontextprotocol/server-filesystem@2026.8.31
AGUI_CLIENT = @ag-ui/client@1.0.0

mcp-servers:          ## MCP servers and a client of AG-UI that others have written in TypeScript, into node_modules, for tests; needs Node.js
	@npm install --silent --no-save --no-package-lock --no-fund --no-audit --prefix . $(MCP_SERVERS) $(AGUI_CLIENT)

deploy-check: deploy-tools  ## deploy/: the image by hadolint, the compose file and the manifests by their schemas, all by each other
	@$(BIN)/pytest -q -rs tests/unit/test_deploy.py tests/integration/test_compose_scripts.py

deploy-tools: $(READY)
	@PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --disable-pip-version-check --retries 1 --no-build-isolation --editable ".[deploy]"

docs: docs-tools      ## docs/ as a site in build/site; a link that leads nowhere, or a page that nothing leads to, is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@PERDURE_SITE=build/site $(BIN)/pytest -q -n $(WORKERS) --ignore tests/site/test_browser.py tests/site
	@echo "the site is in build/site/index.html, for any browser; make docs-serve shows it as it is written"

docs-check: docs      ## the same, then each page in Chromium, where that is installed: errors, other hosts, a phone's width, search
	@PERDURE_SITE=build/site $(BIN)/pytest -q -n 2 tests/site/test_browser.py

docs-serve: docs-tools  ## the site on loopback, made again with each change, until Ctrl-C
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --no-strict --dev-addr 127.0.0.1:8000

docs-tools: $(READY)
	@PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --disable-pip-version-check --retries 1 --no-build-isolation --editable ".[docs]"

clean:
	rm -rf $(VENV) $(PEERS) .perdure build dist *.egg-info

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Perdure needs Python 3.11 or newer; say which with make PYTHON=python3.12")'
	@echo "setting up $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	@PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)

$(PEERS)/.ready: requirements.lock pyproject.toml benchmarks/peers/requirements.txt
	@echo "setting up $(PEERS) …"
	@$(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(PEERS)/bin/pip install --quiet --disable-pip-version-check -r benchmarks/peers/requirements.txt
	@PYTHONWARNINGS=ignore $(PEERS)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(PEERS)/.ready
