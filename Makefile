# Two commands matter, and each does all of its own set-up:
#
#     make quickstart     build the package and run examples/quickstart.py
#     make test           everything that must hold before a change goes in
#
# They need cargo, cmake, nasm and Python 3.11 or newer. Whatever they make lies in this tree (target,
# .venv, .tools), apart from the caches of cargo and pip, and rustfmt and clippy, which rustup adds to its
# toolchain where they are missing. Set-up is not done twice. It is done again when what it was made
# from has changed: the requirements, the version of a tool, the interpreter, or the place of this
# tree. A set-up that was interrupted leaves no stamp and starts again.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
# cargo uses all cores by itself; stages side by side would only wait for its lock.
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help

PYTHON ?= python3
RUST_VERSION := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
NEXTEST_VERSION := 0.9.151

VENV := $(CURDIR)/.venv
BIN := $(VENV)/bin
checksum = $(shell cksum < $(1) | tr ' ' '-')
RUN_READY := $(VENV)/ready-to-run-$(call checksum,python/requirements.txt)
TEST_READY := $(VENV)/ready-to-test-$(call checksum,python/requirements-dev.txt)
BENCHES_READY := $(VENV)/ready-to-bench-$(call checksum,benches/pyproject.toml)
# A cargo-nextest on the search path is taken in any version, if it runs; ours is built otherwise.
NEXTEST_ROOT := .tools/nextest-$(NEXTEST_VERSION)
NEXTEST := $(or $(shell cargo-nextest nextest --version > /dev/null 2>&1 && \
	command -v cargo-nextest),$(CURDIR)/$(NEXTEST_ROOT)/bin/cargo-nextest)

PACKAGE := python/tensorferry/_lib.abi3.so
PACKAGE_SOURCES := Cargo.toml Cargo.lock python/pyproject.toml \
	$(shell find crates python/src python/Cargo.toml -name '*.rs' -o -name Cargo.toml)

# One interpreter for all builds: another one would compile the binding again.
export PYO3_PYTHON := $(BIN)/python
export VIRTUAL_ENV := $(VENV)
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# $(call stage,name,commands): runs the commands and says how long they took.
define stage
	@printf '\n== %s\n' '$(1)'; began=$$SECONDS; \
	$(2); \
	printf '== %s: ok, %d s\n' '$(1)' $$((SECONDS - began))
endef

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: quickstart
quickstart: package ## Build the package and run the example (sets everything up)
	$(call stage,quickstart,$(BIN)/python examples/quickstart.py)

.PHONY: test
test: lint test-rust test-docs test-loom test-python ## Run every check (sets everything up)
	@printf '\nAll checks passed in %d min %d s.\n' \
		$$((($$(date +%s) - $(BEGAN)) / 60)) $$((($$(date +%s) - $(BEGAN)) % 60))
BEGAN := $(shell date +%s)

# Cheap failures first: a missing space is told in a second, before anything is installed.
.PHONY: lint
lint: lint-format lint-python lint-rust ## Check format, lints and types

.PHONY: lint-format
lint-format: linters
	$(call stage,cargo fmt,cargo fmt --all --check)

.PHONY: lint-python
lint-python: $(TEST_READY)
	$(call stage,ruff,cd python; $(BIN)/ruff check $(LINTED); $(BIN)/ruff format --check $(LINTED))
	$(call stage,mypy,cd python; $(BIN)/mypy tensorferry tests ../benches/tensorferry_bench ../examples ../soak)
# The benchmarks, the examples and the soak lie outside of the package, whose settings hold for them too.
LINTED := --config pyproject.toml . ../benches/tensorferry_bench ../examples ../soak

.PHONY: lint-rust
lint-rust: linters $(RUN_READY)
	$(call stage,clippy,cargo clippy --locked --workspace --all-targets -- -D warnings)

.PHONY: test-rust
test-rust: toolchain $(RUN_READY) $(NEXTEST) ## Run the tests of the crates
	$(call stage,tests of the crates,$(NEXTEST) nextest run $(CRATES) --no-tests=pass; $(LEVELS))
CRATES := --locked --workspace
# Levels that this processor lacks are passed over; the run ends with a line that says which.
LEVELS := $(NEXTEST) nextest run $(CRATES) --no-capture \
	-E 'test(the_levels_that_tests_here_exercise_are_told)' 2> /dev/null | grep '^codec levels'

.PHONY: test-docs
test-docs: toolchain $(RUN_READY)
	$(call stage,examples in the docs,cargo test --locked --quiet --workspace --doc)
	$(call stage,cargo doc,RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps)

# Its own target directory: the flag changes every crate, and switching would build all anew. The
# decoders of pictures are left out: no model is about them.
.PHONY: test-loom
test-loom: toolchain
	$(call stage,loom,RUSTFLAGS='--cfg loom' cargo test --locked -p tensorferry --lib \
		--no-default-features --profile loom --target-dir target/loom loom_)

.PHONY: test-python
test-python: package $(TEST_READY) ## Run the tests of the Python package
	$(call stage,stubs,cd python; $(BIN)/python -m mypy.stubtest tensorferry._lib \
		--allowlist stubtest-allowlist.txt --ignore-unused-allowlist)
	$(call stage,pytest,cd python; $(BIN)/python -m pytest)

# Not a part of the tests: it takes its time. What it finds can be repeated by seed and number.
.PHONY: soak
soak: package $(TEST_READY) ## Run every path under kills, pauses and full disks (SOAK_ONLY, SOAK_MINUTES)
	$(BIN)/python -m soak --minutes $(SOAK_MINUTES) $(SOAK_ONLY:%=--only %) $(SOAK_SEED:%=--seed %)
SOAK_MINUTES ?= 20
SOAK_ONLY ?=
SOAK_SEED ?=

.PHONY: package
package: toolchain $(PACKAGE) $(BENCHES_READY) ## Build the Python package into .venv

# Installed in place: a change in a Python file needs no build.
$(PACKAGE): $(RUN_READY) $(PACKAGE_SOURCES)
	$(call stage,package,cd python; $(BIN)/maturin develop --release --locked)
	@touch $@

.PHONY: deny
deny: ## Check licences and sources of the dependencies (needs cargo-deny)
	@command -v cargo-deny > /dev/null || \
		{ echo 'error: cargo-deny is missing; cargo install cargo-deny --locked' >&2; exit 1; }
	cargo deny --locked check licenses bans sources

.PHONY: clean
clean: ## Remove everything that make has made
	rm -rf target .tools $(VENV) $(PACKAGE) */*.egg-info quickstart-out
	find . -name __pycache__ -o -name .pytest_cache -o -name .mypy_cache -o -name .ruff_cache \
		| xargs -r rm -rf

# -- set-up --

.PHONY: toolchain
toolchain:
	@.ci/rust $(RUST_VERSION)
	@.ci/need 'command -v cc' 'a C compiler' gcc libc6-dev
	@.ci/need 'command -v cmake' 'cmake, which builds the JPEG decoder,' cmake make
	@.ci/need 'command -v nasm' 'nasm, which assembles the JPEG decoder,' nasm

.PHONY: linters
linters: toolchain
	@.ci/rust $(RUST_VERSION) rustfmt clippy

# Installed in place, too; it is no part of the package.
$(BENCHES_READY): $(RUN_READY)
	$(call stage,benchmarks,$(PIP_INSTALL) --no-deps -e benches)
	@rm -f $(VENV)/ready-to-bench-* && touch $@

# Looked at every time, and made again, with a new time, only when it has to be.
$(VENV)/made: always
	@.ci/need '$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))"' \
		'Python 3.11 or newer (or name it: make PYTHON=...)' python3
	@.ci/need '$(PYTHON) -c "import ensurepip, venv"' "Python's venv module" python3-venv
	@.ci/venv $(PYTHON) $(VENV)

.PHONY: always
always:

$(RUN_READY): $(VENV)/made
	$(call stage,install requirements,$(PIP_INSTALL) -r python/requirements.txt)
	@rm -f $(VENV)/ready-to-run-* && touch $@

$(TEST_READY): $(RUN_READY)
	$(call stage,install requirements of the tests,$(PIP_INSTALL) -r python/requirements-dev.txt)
	@rm -f $(VENV)/ready-to-test-* && touch $@

# Built without optimisation and without its self-update: it only starts processes, and this
# takes a third of the time.
$(CURDIR)/$(NEXTEST_ROOT)/bin/cargo-nextest:
	$(call stage,build cargo-nextest,CARGO_PROFILE_DEV_DEBUG=0 cargo install cargo-nextest \
		--locked --version $(NEXTEST_VERSION) --debug --no-default-features --quiet \
		--root $(NEXTEST_ROOT) --target-dir target/tools)
