# `make demo` and `make test` set up everything they need in .venv; nothing else has to be installed but Python.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One stamp a set of extras, so that `make demo` does not wait for what only tests need.
.DEFAULT_GOAL := help
.PHONY: help demo check units test lint types layers style prose format bench siege bench-stack schemas coprocessor clean stack-ready stack-up stack-down \
	test-stack test-browser test-deep test-clocks test-rules test-alerts test-visible soak docker-ready docker-stop cluster-up cluster-status cluster-down placement test-docker \
	drills drill-smoke

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(VENV)/python: 
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "No venv module: on Debian, apt-get install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/run: $(VENV)/python pyproject.toml
	@echo "installing into $(VENV): a minute or two, once" >&2
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[http]' && touch $@

$(VENV)/test: $(VENV)/run
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test]' && touch $@

$(VENV)/servers: $(VENV)/run
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[mysql,kafka,hbase,drills]' && touch $@

$(VENV)/lint: $(VENV)/test
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[lint]' && touch $@

$(VENV)/bench: $(VENV)/test
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[bench]' && touch $@

# At a terminal it serves until Ctrl-C; otherwise it ends by itself.
DEMO_SERVE ?= $(shell test -t 0 && echo 1 || echo 0)
demo: $(VENV)/run ## run the main job: a social graph through the whole pipeline; then serve it (ACTIONS=file for your own; DEMO_SERVE=0)
	@$(BIN)/feedctl demo $(if $(ACTIONS),--actions $(ACTIONS)) $(if $(filter 1,$(DEMO_SERVE)),--serve)

# Tests start hundreds of processes of this code: none of them compiles it again, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

# Tests are spread over so many processes, three for each of two processors: they wait for other processes, for disks and
# for time-outs for half of their time. They keep their files in SCRATCH.
WORKERS ?= 6
SCRATCH ?= $(shell tests/scratch)
PYTEST = TMPDIR=$(SCRATCH) $(BIN)/pytest --dist loadgroup

check: $(VENV)/lint ## what `make lint` does, and the tests that need no processes: about a minute
	@$(MAKE) --no-print-directory --jobs=4 units types layers style prose

# Packages whose tests start no server and no worker. The plugin takes a second to load, and they do not use it.
UNITS := app boards catalog clocks domain following follows pipeline queue replicas sqlite_file tracing widecolumn
units: $(VENV)/test
	@$(PYTEST) -n 3 -p no:schemathesis -m "not stack and not browser and not docker and not processes and not long" \
		$(addprefix tests/,$(UNITS))

test: $(VENV)/test ## run the tests
	@$(PYTEST) -n $(WORKERS)

# They compute for minutes: their limit of time is for one that hangs.
test-deep: $(VENV)/test ## run the tests that try more if they may, to their whole depth: blind searches, long simulations
	@SIMULATION=full $(PYTEST) -n 2 --timeout 3000 -m "deep and not stack and not browser and not docker and not promtool"

# So many rounds, each of which starts real processes: a quarter of a minute.
ROUNDS ?= 100
test-clocks: $(VENV)/test ## run the tests with one process's clock off (installs libfaketime with apt if it is missing)
	@tests/clocks/install
	@$(BIN)/python -m tests.clocks --rounds $(ROUNDS)

test-browser: $(VENV)/test ## run the tests of the site in a headless Chromium (installs it with apt if it is missing)
	@tests/browser/install
	@$(BIN)/pytest -m browser -n 2 --dist loadfile tests/browser

test-rules: $(VENV)/test ## test the alert rules (installs Prometheus with apt if it is missing, and starts no service)
	@deploy/monitoring/install
	@$(BIN)/pytest -m promtool tests/monitoring

# A program on a stack of its own, as it kills servers. The stack is stopped whatever ends the program.
on_its_own = trap 'exit 130' HUP INT TERM; trap 'trap "" HUP INT TERM; $(PYTHON) -m deploy.local down --home $(1)' EXIT; \
	$(BIN)/python -m $(2) --stack $(1)

# ALERTS: names of faults, or --healthy 1200; a quarter of an hour for all of them.
test-alerts: stack-ready coprocessor $(VENV)/test ## break a running system, and look at which alert fires (ALERTS=faults, or --healthy SECONDS)
	@tests/clocks/install
	@$(call on_its_own,$(STACK)-alerts,tests.monitoring.faults) $(ALERTS)

# SOAK: options, such as `--seconds 3600 --seed 7`.
soak: stack-ready coprocessor $(VENV)/test ## faults at random under load on real servers, then verify: twenty minutes or more (SOAK=options)
	@$(call on_its_own,$(STACK)-soak,tests.soak) $(SOAK)

# VISIBLE: --stack DIRECTORY for a local stack, with a process for each stage; --actions N.
test-visible: $(VENV)/test ## compare how long an action takes until it is seen: the metric, and a client that polls (VISIBLE=options)
	@$(BIN)/python -m tests.monitoring.visible $(VISIBLE)

lint: $(VENV)/lint ## style, types, import layers, and plain English
	@$(MAKE) --no-print-directory --jobs=3 types layers style prose

types: $(VENV)/lint
	@$(BIN)/mypy

layers: $(VENV)/lint
	@$(BIN)/lint-imports --no-cache

style: $(VENV)/lint
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

prose: $(VENV)/lint
	@$(BIN)/python -m tests.documents.prose

format: $(VENV)/lint ## rewrite what the formatter and safe fixes can
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format --quiet .

schemas: $(VENV)/run ## write schemas/, docs/configuration.md, docs/metrics.md and the dashboard from the code
	@$(BIN)/python -m workers.app.schemas
	@$(BIN)/python -m deploy.monitoring.dashboard

bench: $(VENV)/bench ## measure (ACTIONS=file for a trace; needs redis-server)
	@$(BIN)/python -m bench $(if $(ACTIONS),--actions $(ACTIONS)) $(BENCH)

siege: $(VENV)/test ## attack a server for two minutes; print what it used and what it still answered (SIEGE=options)
	@$(BIN)/python -m bench.siege $(SIEGE)

TRIM := coprocessor/target/feedstore-trim.jar
coprocessor: $(TRIM) ## build and test the trim that runs inside HBase (needs a JDK 17 and Maven)

$(TRIM): coprocessor/pom.xml schemas/cell-layout.json $(shell find coprocessor/src -type f)
	@deploy/local/install
	@mvn --quiet --batch-mode --file coprocessor/pom.xml package
	@touch $@

STACK ?= .stack
stack-ready: $(VENV)/servers ## install what the local stack needs: a JDK, Maven, MariaDB and Prometheus with apt, client libraries in .venv
	@deploy/local/install

stack-up: ## start the real servers on this machine's loopback (STACK=directory, default .stack)
	@$(PYTHON) -m deploy.local up --home $(STACK)

stack-down: ## stop the real servers
	@$(PYTHON) -m deploy.local down --home $(STACK)

CLUSTER ?= .cluster
docker-ready: $(VENV)/run ## install and start what the Docker clusters need: an engine, Compose, the base image (as root, through apt)
	@$(BIN)/python -m deploy.docker ready --home $(CLUSTER)

docker-stop: ## stop the Docker engine, if docker-ready started it
	@$(PYTHON) -m deploy.docker stop --home $(CLUSTER)

cluster-up: $(VENV)/run ## two whole HBase clusters, the queue, the follow store, workers and web in Docker (SITES=defaults: untuned)
	@deploy/local/install
	@$(if $(SITES),FEED_CLUSTER_SITES=$(SITES) )$(BIN)/python -m deploy.docker up --home $(CLUSTER)

cluster-status: ## ask every container whether it is ready
	@$(PYTHON) -m deploy.docker status --home $(CLUSTER)

cluster-down: ## remove the Docker clusters, with their data
	@$(PYTHON) -m deploy.docker down --home $(CLUSTER)

# A home on the clusters, as they are reached from this machine; the reports are in drills/ of it.
DRILLS ?= $(CLUSTER)/feed
drills: $(VENV)/servers ## run every drill on the running clusters, one after the other (half an hour; DRILL=options)
	@test -e $(DRILLS)/feed.toml || $(BIN)/feedctl --home $(DRILLS) init --stack docker --stack-home $(CLUSTER)
	@$(BIN)/feedctl --home $(DRILLS) drill run all $(DRILL)

# It removes what it started, whatever happens. It refuses while clusters of another home run.
SMOKE ?= .drill-smoke
drill-smoke: $(VENV)/servers ## one drill from nothing to nothing: engine, clusters, a host killed under load (as root, through apt)
	@deploy/local/install
	@$(BIN)/python -m deploy.docker smoke --home $(SMOKE)

test-docker: docker-ready placement $(VENV)/test $(VENV)/servers ## run the tests that need the Docker clusters (FEED_TEST_CLUSTER=directory for running ones)
	@PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pytest -m docker

PLACEMENT := deploy/placement/target/feedstore-placement.jar
placement: $(PLACEMENT) ## build and test the block placement that runs inside HDFS's NameNode (needs a JDK 17 and Maven)

$(PLACEMENT): deploy/placement/pom.xml $(shell find deploy/placement/src -type f)
	@deploy/local/install
	@mvn --quiet --batch-mode --file deploy/placement/pom.xml package
	@touch $@

test-stack: stack-ready coprocessor $(VENV)/test ## test the trim, and run the tests that need the real servers (TRACE=file for a trace, FEED_TEST_STACK=directory for a running stack)
	@tests/clocks/install
	@tests/on_the_stack

bench-stack: stack-ready $(VENV)/bench ## measure on the real servers (ACTIONS=file for a trace; needs redis-server)
	@$(BIN)/python -m bench.stack $(if $(ACTIONS),--actions $(ACTIONS)) $(BENCH)

clean: ## remove everything that make made
	rm -rf $(VENV) .feed build coprocessor/target deploy/placement/target .pytest_cache .mypy_cache .ruff_cache .hypothesis
