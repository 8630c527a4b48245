# Needs Rust, Python 3.11+ and Java 17; sets up everything else in .venv. `make` lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory
# Paths in recipes are relative to this file's folder, from wherever make was called.
ifneq ($(realpath .),$(realpath $(dir $(lastword $(MAKEFILE_LIST)))))
$(error run it as: make -C $(dir $(lastword $(MAKEFILE_LIST))) $(MAKECMDGOALS))
endif

PYTHON ?= python3
TARGET ?= record
TORTURE_MINUTES ?= 30
MORE_PREEMPTIONS ?= 1
BENCH ?=
ALL ?=
PYSPARK ?= 4.0
VENV := $(CURDIR)/.venv
PY := $(VENV)/bin/python
NATIVE := python/mqstore/_native.abi3.so
# Directories count too: a file added or removed changes them.
SOURCES := $(shell find src) Cargo.toml Cargo.lock pyproject.toml
# The Rust tests that are too long for `make test`.
SLOW_RUST := crashes::every_step_is_needed
# The Rust test whose random histories `make slowtest` multiplies.
GROUP_HISTORIES := groups_get_every_message_and_repeat_none_that_is_settled
# That of masters and slaves.
NODE_HISTORIES := no_kill_or_cut_loses_what_a_slave_acknowledged
HAVE := $(wildcard python docs/site docs/figures tests/conftest.py tests/data tests/docs tests/python tests/spark tests/interop tests/mutants tests/torture spark_examples benches)

export VIRTUAL_ENV := $(VENV)
export PATH := $(VENV)/bin:$(PATH)
# Spark's workers must be this interpreter, not the first python3 on PATH, or they do not find mqstore.
export PYSPARK_PYTHON := $(PY)
export PYSPARK_DRIVER_PYTHON := $(PY)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONPATH PYTHONHOME SPARK_HOME

.PHONY: help run test slowtest sparktest torture interleavings check interop mutants bench fuzz wheel wheeltest docs docstest clean

help: ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 22

run: java $(NATIVE) ## the main job: writes 7,865 real events, resolves and fetches them with Spark, compares them with RocketMQ's, verifies the store
	@$(PY) spark_examples/resolve_events.py
	@for command in info verify; do echo; echo "$$ mqstore $$command target/spark_examples/store"; \
	  $(PY) -m mqstore $$command target/spark_examples/store; done

test: java $(VENV)/dev.stamp $(NATIVE) ## the Rust, Python and Spark tests, in less than ten minutes; names what it leaves out
	@echo "== Rust tests"
	@cargo test
	@echo "left out: $(SLOW_RUST); make slowtest runs it"
	@echo "== Python tests, and beside them those of the command line, crashes and Spark"
	@$(call side_by_side,$(PY) -m pytest -m "not slow" tests/python --ignore tests/python/cli,\
	  $(PY) -m pytest -m "not slow" tests/python/cli tests/mutants tests/torture tests/spark)

slowtest: java $(VENV)/dev.stamp $(NATIVE) ## the tests that `make test` leaves out
	@echo "== Slow Rust tests"
	@cargo test --test it -- --ignored --exact $(SLOW_RUST)
	@echo "== Ten times the histories of consumer groups and of a master with its slave, four times those of transactions"
	@MQSTORE_CRASHES=10 MQSTORE_TRANSACTION_HISTORIES=100 cargo test --test it -- --nocapture $(GROUP_HISTORIES) $(NODE_HISTORIES) \
	  transaction_histories
	@echo "== Slow Python tests, and beside them slow Spark tests"
	@$(call side_by_side,$(PY) -m pytest -m slow tests/python tests/torture,$(PY) -m pytest -m slow tests/spark)
	@echo "== Spark tests over Spark Connect"
	@TEST_REMOTE=1 $(PY) -m pytest -m matrix tests/spark

sparktest: java $(NATIVE) $(VENV)/pyspark-$(PYSPARK)/stamp ## a part of the Spark tests with another pyspark; PYSPARK=4.0
	@python=$(VENV)/pyspark-$(PYSPARK)/bin/python; tests=$$(grep -l mark.matrix tests/spark/test_*.py); \
	PYTHONPATH=$(CURDIR)/python PYSPARK_PYTHON=$$python PYSPARK_DRIVER_PYTHON=$$python $$python -m pytest -m matrix $$tests

torture: $(VENV)/dev.stamp $(NATIVE) ## crash, fill and break stores for half an hour; TORTURE_MINUTES=30, TORTURE_SEED=<n>
	@status=0; TORTURE_MINUTES=$(TORTURE_MINUTES) $(PY) -m pytest -o "python_files=test_*.py simulation.py" tests/torture || status=$$?; \
	$(PY) tests/torture/report.py; exit $$status

interleavings: ## run the models of threads with one more preemption than the tests; MORE_PREEMPTIONS=1
	@MORE_PREEMPTIONS=$(MORE_PREEMPTIONS) cargo test --test interleavings -- --nocapture

check: $(VENV)/dev.stamp $(VENV)/docs.stamp $(NATIVE) ## formatting, lints and types: rustfmt, clippy, ruff, mypy, pyright, stubtest
	@echo "== rustfmt";    cargo fmt --check
	@echo "== clippy";     cargo clippy --quiet --all-targets -- -D warnings
	@echo "== clippy, with the Python face"; cargo clippy --quiet --all-targets --features python -- -D warnings
	@echo "== rustc, Arrow without Python"; cargo rustc --quiet --lib --features arrow -- -A dead_code
	@echo "== ruff";       ruff check --quiet $(HAVE); ruff format --quiet --check $(HAVE)
	@echo "== mypy";       $(PY) -m mypy
	@echo "== pyright";    basedpyright
	@echo "== stubtest";   $(PY) tests/python/run_stubtest.py --mypy-config-file pyproject.toml mqstore
	@echo "== mutants apply"; $(PY) tests/mutants/run.py --check

interop: java $(VENV)/dev.stamp $(NATIVE) ## hold what we write and read against RocketMQ's own classes; needs Maven
	@command -v mvn >/dev/null || { echo "Maven is missing: install it (Debian: apt-get install maven)" >&2; exit 1; }
	@# A part waits for RocketMQ's services for most of its time, so two parts do not fill two cores.
	@$(call side_by_side,$(PY) -m pytest -k "4.9.1 or 4.9.7" tests/interop,$(PY) -m pytest -k "not (4.9.1 or 4.9.7 or 5.3.3 or 5.5.1)" tests/interop,\
	  $(PY) -m pytest -k 5.3.3 tests/interop,$(PY) -m pytest -k 5.5.1 tests/interop)

mutants: ## remove one ordering step or check at a time and see a test fail: those without a current verdict, or ALL=1
	@status=0; $(PYTHON) tests/mutants/run.py $(if $(ALL),,--missing) || status=$$?; $(PYTHON) tests/torture/report.py; exit $$status

bench: java $(VENV)/bench.stamp $(NATIVE) ## measure beside the limits and other stores, write docs/BENCHMARKS.md; BENCH=<row> for one
	@command -v mvn >/dev/null || echo "RocketMQ's own store is not measured: Maven is missing"
	@$(PY) benches/compare/run.py --check $(BENCH)
	@cargo bench --quiet --bench rows -- $(BENCH)
	@$(PY) benches/compare/run.py $(BENCH)
	@$(PY) benches/compare/page.py
	@test -n "$(BENCH)" || $(PY) benches/read.py

fuzz: ## look for one minute for bytes that break a reader; TARGET=record, body, index, small_files or store
	@cargo fuzz --version >/dev/null 2>&1 || { echo "cargo-fuzz is missing: install it with 'cargo install cargo-fuzz'" >&2; exit 1; }
	@cd fuzz && cargo fuzz run -s none $(TARGET) -- -max_total_time=60

wheel: $(VENV)/run.stamp ## a wheel for Python 3.11 and later, in target/wheels
	@echo "building the wheel (release) ..."
	@$(call quietly,maturin build --release --target-dir target/maturin --out target/wheels)
	@ls target/wheels

wheeltest: java wheel ## run a Spark job from that wheel in a fresh environment without Rust
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	echo "installing the wheel and pyspark ..."; \
	$(PYTHON) -m venv "$$fresh"; \
	"$$fresh/bin/pip" install --quiet "$$(ls -t target/wheels/*.whl | head -n 1)[spark]"; \
	cd /; env -i HOME="$$fresh" JAVA_HOME="$${JAVA_HOME:-}" PATH="$$fresh/bin:$$(dirname "$$(command -v java)"):/usr/bin:/bin" \
		"$$fresh/bin/python" $(CURDIR)/spark_examples/map_partitions.py

docs: $(VENV)/docs.stamp ## build the site of the documentation, in build/site
	@$(PY) docs/site/build_site.py

docstest: $(VENV)/dev.stamp $(NATIVE) docs ## open each page of the site in Chromium, narrow and wide, light and dark
	@$(PY) -m pytest tests/docs

clean: ## forget the environment and what was built
	rm -rf .venv target build $(NATIVE)

.PHONY: java
java:
	@java=$${JAVA_HOME:+$$JAVA_HOME/bin/}java; \
	major=$$("$$java" -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p' || true); \
	test "$${major:-0}" -ge 17 || { \
	  echo "Spark needs Java 17 or later, '$$java' is $${major:-missing}: install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME" >&2; exit 1; }

# What `make run` needs: maturin and the extras `spark` and `cli`.
$(VENV)/run.stamp: pyproject.toml
	@$(environment)
	@command -v cargo >/dev/null || { echo "Rust is missing: install it from https://rustup.rs" >&2; exit 1; }
	@echo "installing maturin, pyspark, pyarrow and the command line into .venv (500 MB, once) ..."
	@$(call install,["build-system"]["requires"])
	@$(call install,["project"]["optional-dependencies"]["spark"],pyspark==4.3.*)
	@$(call install,["project"]["optional-dependencies"]["cli"])
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp
	@echo "installing the tools of tests and checks into .venv ..."
	@$(call install,["project"]["optional-dependencies"]["dev"])
	@touch $@

# The site needs neither Rust nor Spark.
$(VENV)/docs.stamp: pyproject.toml
	@$(environment)
	@echo "installing the tools of the documentation into .venv ..."
	@$(call install,["project"]["optional-dependencies"]["docs"])
	@touch $@

# pyspark 4.0 does not know what pandas 3 makes of strings.
$(VENV)/pyspark-%/stamp: pyproject.toml
	@echo "installing pyspark $* into $(@D) ..."
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/pip install --quiet 'pyspark==$*.*' 'pyarrow>=18' 'pandas>=2.2,<3' 'numpy>=1.23.2' 'pytest>=9' 'click>=8.2' 'rich>=13'
	@touch $@

# Other stores, for comparison.
$(VENV)/bench.stamp: $(VENV)/dev.stamp
	@$(call install,["project"]["optional-dependencies"]["bench"])
	@touch $@

# Makes .venv if it is absent.
environment = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "Python 3.11 or later is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1): name another with 'make PYTHON=python3.12 ...'" >&2; exit 1; }; \
	$(PY) -m pip --version >/dev/null 2>&1 || { echo "creating .venv ..."; rm -rf $(VENV); $(PYTHON) -m venv $(VENV); }

# Runs $(1) to $(4), or fewer, at the same time. The output of the others follows that of $(1). A shell starts a command in the background
# with SIGINT ignored, as would be its children, which tests interrupt.
side_by_side = logs=$$(mktemp -d); others=; \
	$(foreach n,2 3 4,$(if $($(n)),(trap - INT; exec $($(n))) > $$logs/$(n) 2>&1 & others="$$others $$!";)) \
	trap 'kill $$others 2> /dev/null || true; rm -rf $$logs' EXIT; trap 'exit 130' INT; status=0; $(1) || status=$$?; \
	for other in $$others; do wait $$other || status=$$?; done; cat $$logs/*; exit $$status

# Runs $(1) and shows what it said only if it fails.
quietly = $(1) > $(VENV)/log.txt 2>&1 || { cat $(VENV)/log.txt >&2; exit 1; }

# $(1): where in pyproject.toml the list of requirements stands; $(2): a further requirement.
install = $(PY) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))$(1), sep="\n")' > $(VENV)/requirements.txt \
	&& $(PY) -m pip install --quiet --requirement $(VENV)/requirements.txt $(if $(2),'$(2)')

$(NATIVE): $(SOURCES) $(VENV)/run.stamp
	@echo "building the native module (release) ..."
	@$(call quietly,maturin develop --release --target-dir target/maturin)
	@touch $@
