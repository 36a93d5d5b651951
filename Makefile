# Everything a contributor or CI does. Needs Python 3.11 to 3.13, make and bash; the rest comes into .venv.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without bytecode on disk, each process would compile TensorFlow's modules anew: seven seconds instead of three.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
STAMP := .venv/.installed
# The site has an environment of its own: it needs no TensorFlow, and `make install` no Sphinx.
SITE := .environments/site
SITE_STAMP := $(SITE)/.installed
SITE_PINS := --constraint constraints.txt --constraint docs/constraints.txt
CHROMIUM ?= chromium

CORES := $(shell nproc 2>/dev/null || echo 1)
# Tests without worker processes share the cores; those that start workers use several cores each, or wait for them.
TEST_JOBS ?= $(shell n=$(CORES); echo $$(( n > 8 ? 8 : n )))
PROCESS_TEST_JOBS ?= $(shell n=$$(( $(CORES) / 4 )); echo $$(( n < 3 ? 3 : n > 4 ? 4 : n )))
# In the files' own order: by the number of tests, long files with few tests would come last, and alone.
PROCESS_TESTS = $(BIN)/python -m pytest --numprocesses $(PROCESS_TEST_JOBS) --dist loadfile --no-loadscope-reorder

CHECK_PYTHON := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON_NEEDED := TensorFlow 2.21 runs on Python 3.11 to 3.13. Name one of these: make install PYTHON=python3.12
define CHECKED
@command -v $(PYTHON) >/dev/null || { echo "make: there is no '$(PYTHON)' here. $(PYTHON_NEEDED)" >&2; exit 1; }
@$(PYTHON) -c '$(CHECK_PYTHON)' \
	|| { echo "make: '$(PYTHON)' is $$($(PYTHON) --version). $(PYTHON_NEEDED)" >&2; exit 1; }
@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	|| { echo "make: '$(PYTHON)' cannot make virtual environments. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
endef
# pip names every file it looks at; worth seeing are the large downloads and the end.
PIP_LINES := sed --unbuffered --quiet --regexp-extended \
	-e 's/^ *(Downloading|Using cached) ([^ ]*\/)?([^ \/-]+-[0-9][^-]*)-[^ ]*\.whl \(([0-9.]+ MB)\).*/  \3  \4/p' \
	-e 's/^Installing collected packages.*/  unpacking .../p'

.PHONY: help
help: ## this list
	@sed --quiet --regexp-extended 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand --tabs=20

.PHONY: install
install: $(STAMP) ## create .venv with the package and the development tools, if something changed

$(STAMP): pyproject.toml constraints.txt
	$(CHECKED)
	@test -x $(BIN)/python && $(BIN)/python -c '$(CHECK_PYTHON)' || $(PYTHON) -m venv --clear .venv
	@echo "Installing Paceline, TensorFlow and the development tools into .venv (about 350 MB, a few minutes, once) ..."
	@$(BIN)/python -m pip install --no-compile --log .venv/install.log --constraint constraints.txt hatchling editables | $(PIP_LINES)
	@# Most modules of TensorFlow are never imported: compiling all of them would take as long as unpacking. Those that are
	@# imported are compiled at the end, so that the first processes of the tests start as fast as the others.
	@$(BIN)/python -m pip install --no-compile --log .venv/install.log --constraint constraints.txt \
		--no-build-isolation --editable '.[cpu,dev]' | $(PIP_LINES)
	@TF_CPP_MIN_LOG_LEVEL=3 $(BIN)/python -c 'import tensorflow'
	@touch $@
	@echo "Installed: .venv/bin/paceline"

.PHONY: demo
demo: install ## train MNIST plainly, then the same file on two workers, and compare
	@$(BIN)/python examples/demo.py

.PHONY: hosts-demo
hosts-demo: install ## train on two "machines" over ssh, all on this one (root, openssh-server, iproute2)
	@$(BIN)/python examples/hosts_demo.py

.PHONY: lint
lint: install ## ruff and strict mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: test
test: install ## every behaviour once, the quick tests first
	$(BIN)/python -m pytest -m 'not processes and not proof' --numprocesses $(TEST_JOBS)
	$(PROCESS_TESTS) -m 'processes and not proof'

.PHONY: check
check: lint test ## all that CI does

.PHONY: proof
proof: install ## before a release: all numbers of workers, resumptions, faults and versions (hours)
	$(BIN)/python -m pytest -m 'not processes' --hypothesis-profile proof --numprocesses $(TEST_JOBS)
	$(PROCESS_TESTS) -m 'processes and proof'
	$(MAKE) chaos
	$(MAKE) matrix

.PHONY: docs
docs: install ## docs/reference.md, docs/seams.md and the tables of docs/events.md, from the code
	$(BIN)/python docs/make_reference.py
	$(BIN)/python docs/make_seams.py

.PHONY: tutorials
tutorials: install ## the code and the output in docs/tutorials/, from the examples (long; TUTORIALS=first_script for one page)
	$(BIN)/python docs/make_tutorials.py $(TUTORIALS)

.PHONY: pictures
pictures: install ## the pictures in docs/pictures/ (a minute: two workers train; PICTURES=batch for one)
	$(BIN)/python docs/make_pictures.py $(PICTURES)

.PHONY: site
site: $(SITE_STAMP) ## the pages and the API as a site in build/site; each warning is an error
	$(SITE)/bin/sphinx-build --fail-on-warning --keep-going --quiet --jobs auto --conf-dir docs --doctree-dir build/doctrees . build/site
	@echo "Built: build/site/index.html"

.PHONY: site-test
site-test: site ## the site in a browser: links, console, requests, 360 pixels, search, accessibility (Chromium)
	@command -v $(CHROMIUM) >/dev/null \
		|| { echo "make: there is no '$(CHROMIUM)' here. On Debian: apt install chromium; or: make site-test CHROMIUM=/path" >&2; exit 1; }
	@test -e $(SITE)/.installed-tests || $(SITE)/bin/python -m pip install --quiet $(SITE_PINS) --editable '.[site,site-test]'
	@touch $(SITE)/.installed-tests
	CHROMIUM=$(CHROMIUM) $(SITE)/bin/python -m pytest --noconftest tests/site/in_browser.py

.PHONY: trackers-test
trackers-test: install ## W&B and MLflow themselves in jobs of two workers (120 MB more in .venv; without them, `make test` skips this)
	@# Without constraints.txt: these packages may need newer ones than those with which `make check` passed.
	@$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[cpu,dev,trackers-test]'
	$(BIN)/python -m pytest tests/end_to_end/test_trackers.py

$(SITE_STAMP): pyproject.toml constraints.txt docs/constraints.txt
	$(CHECKED)
	@rm -rf $(SITE)
	@$(PYTHON) -m venv $(SITE)
	@echo "Installing Sphinx and what Paceline needs besides TensorFlow into $(SITE) (once) ..."
	@$(SITE)/bin/python -m pip install --quiet $(SITE_PINS) --editable '.[site]'
	@touch $@

.PHONY: rules
rules: install ## docs/rules.md: how each operation is divided, and how many of Keras's classes use it (long)
	$(BIN)/python docs/make_rules.py

.PHONY: parity
parity: install ## every job of the parity matrix on 1 to 4 workers, as docs/parity.md (long)
	$(BIN)/python tests/parity_table.py

.PHONY: matrix
matrix: install ## the core suite on the oldest and the newest TensorFlow and Keras that are supported (long)
	$(BIN)/python tests/matrix.py

.PHONY: chaos
chaos: install ## kill, stop and fill disks in every way, and the score to docs/chaos.md (long; CHAOS='--random 5' for a part)
	$(BIN)/python tests/chaos/run_chaos.py $(CHAOS)

.PHONY: bench
bench: install ## the benchmarks, each beside its peers (long)
	$(BIN)/python benchmarks/run.py

.PHONY: compare
compare: install ## is the working tree slower than OLD=<commit>? (ten minutes)
	$(BIN)/python benchmarks/compare.py $(OLD)

.PHONY: clean
clean: ## remove what the tools leave behind, and .venv
	rm -rf .venv .environments .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist docs/api docs/errors
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
