# Everything runs in .venv, made here from the exact versions of constraints.txt.

SUITABLE := import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(SUITABLE)' >/dev/null 2>&1 && echo $$p && break; done)
BIN := .venv/bin
INSTALLED := .venv/.installed
DEV_INSTALLED := .venv/.installed-dev
OLDEST := .venv/oldest
OLDEST_EXTRAS := azure,demo,gcs,hdfs,hive,iceberg-rest,jdbc-mysql,jdbc-postgres,metrics,openlineage,postgres,s3,sketches,sql
OLDEST_TESTS := spark/test_every_step.py spark/datasource/test_stream_write.py \
	spark/datasource/test_batch_read.py::test_the_format_is_registered_in_a_session_that_looked_up_formats_before \
	format/bytes format/file_index/test_vectors.py format/test_deletion_vector.py \
	storage/test_exclusive_create.py storage/test_local.py cli/commands/test_compact.py dagster/test_definitions.py \
	test_lower_bounds.py
CORE := $(CURDIR)/.venv/core
PLUGIN := $(CURDIR)/.venv/plugin
PYTEST := $(BIN)/pytest -n 3 --dist loadgroup
PEERS := PYTHONPATH=tests $(BIN)/python -m support.peers.prepare
FAULTS := .test-data/faults
UNIT_TESTS := format files merge table storage
export DAGSTER_HOME ?= $(CURDIR)/.dagster_home
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Packages are not compiled when they are installed: most modules are never imported.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install install-dev demo test test-services test-all test-unit faults peers soak oldest docs reference screenshots lint types dist sbom dev clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## create .venv with the commands, the demo and the Dagster UI (quick if nothing changed)

install-dev: $(DEV_INSTALLED) ## install the tools of development and the packages of the tests too

$(INSTALLED): EXTRAS := demo
$(DEV_INSTALLED): EXTRAS := demo,dev
$(INSTALLED) $(DEV_INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { \
		echo "paimon-orch needs Python 3.11, 3.12 or 3.13 with its venv module, and none of python3," \
		"python3.13, python3.12 and python3.11 on the path is one. Install one (on Debian and Ubuntu" \
		"with its -venv package), or name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3." >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --no-compile -c constraints.txt -e '.[$(EXTRAS)]'
	@touch $(INSTALLED) $@

demo: install ## load a year of real flights, compact the table, verify every row (ARGS="--months 2")
	$(BIN)/paimon-orch demo $(ARGS)

test: install-dev ## test all that runs on this machine alone (ARGS="-k bucket" for a part)
	$(PYTEST) -m "not services" $(ARGS)

test-services: install-dev ## test with other engines, servers, clusters and a browser; run slow tests
	$(PEERS) >/dev/null 2>&1 & $(PYTEST) -m services $(ARGS)

test-all: export SOAK_MINUTES ?= 10
test-all: install-dev ## run all tests, a soak of ten minutes too (ARGS="tests/table/scan" for a part)
	$(PEERS) >/dev/null 2>&1 & $(PYTEST) $(ARGS)

test-unit: install-dev ## run the quick tests of the library, in two minutes
	$(PYTEST) -m "not services and not spark" $(addprefix tests/,$(UNIT_TESTS)) $(ARGS)

faults: install-dev ## seed 150 faults and count those that the tests find, in some hours (ARGS="--seed 2")
	$(BIN)/python -m pip install --no-compile --quiet -c constraints.txt -e '.[mutation]'
	@test -e $(FAULTS)/services.json || PYTHONPATH=tests $(BIN)/python -m support.faults measure $(FAULTS)
	PYTHONPATH=tests $(BIN)/python -m support.faults seed $(FAULTS) $(ARGS)

peers: install-dev ## download and compile the other engines and servers that the tests use
	$(PEERS)

soak: install-dev ## write, maintain and kill for ten minutes, and count every row (ARGS="--minutes 240")
	$(PEERS)
	$(BIN)/python benchmarks/soak.py measure $(ARGS)

oldest: $(OLDEST)/.installed ## run the main tests with the oldest supported version of each package
	EXPECT_LOWER_BOUNDS=1 $(OLDEST)/bin/python -m pytest $(addprefix tests/,$(OLDEST_TESTS)) $(ARGS)

$(OLDEST)/.installed: pyproject.toml constraints.txt | install-dev
	rm -rf $(OLDEST) && $(BIN)/python -m venv --without-pip $(OLDEST)
	PYTHONPATH=tests $(BIN)/python -m support.lower_bounds > $(OLDEST)/constraints.txt
	$(BIN)/python -m pip --python $(OLDEST)/bin/python install --no-compile --quiet \
		-c $(OLDEST)/constraints.txt -e '.[$(OLDEST_EXTRAS)]' hypothesis pytest pytest-timeout pytest-xdist
	@touch $@

docs: install-dev ## build the documentation in site/ and check its links
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

reference: install-dev ## write the generated pages and pictures of docs/
	PYTHONPATH=tests:. $(BIN)/python -m support.docs.reference
	PYTHONPATH=tests:. $(BIN)/python -m support.docs.compatibility > docs/compatibility.md
	PYTHONPATH=tests:. $(BIN)/python -m support.docs.trust > docs/trust.md
	PYTHONPATH=tests:. $(BIN)/python -m support.docs.soak > docs/soak.md
	PYTHONPATH=tests:. $(BIN)/python -m support.docs.pictures

screenshots: install-dev ## take the screenshots of docs/images: a year of flights, Airflow, and Chromium
	SCREENSHOTS=docs/images $(BIN)/pytest tests/live/test_browser.py tests/airflow_provider/test_deployment.py

lint: install-dev ## check style, format and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: install-dev ## check the types strictly
	$(BIN)/mypy

dist: install-dev ## build the wheel and the sdist, and check them in environments of their own
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	rm -rf "$(CORE)" && $(BIN)/python -m venv --without-pip "$(CORE)"
	$(BIN)/python -m pip --python "$(CORE)/bin/python" install --no-compile --quiet -c constraints.txt dist/*.whl
	cd "$(CORE)" && bin/paimon-orch --version && bin/paimon-orch create lake db.t --columns "id BIGINT" \
		&& echo '{"id": 1}' > rows.json && bin/paimon-orch ingest lake db.t --from rows.json \
		&& bin/paimon-orch compact lake db.t && bin/paimon-orch read lake db.t

sbom: dist ## list the packages of an installation in build/sbom.cdx.json, in the format of CycloneDX
	$(BIN)/python -m pip install --no-compile --quiet -c constraints.txt -e '.[sbom]'
	rm -rf "$(PLUGIN)" && $(BIN)/python -m venv --without-pip "$(PLUGIN)"
	$(BIN)/python -m pip --python "$(PLUGIN)/bin/python" install --no-compile --quiet -c constraints.txt \
		"$$(echo dist/*.whl)[dagster,spark]"
	mkdir -p build
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-file build/sbom.cdx.json "$(PLUGIN)/bin/python"

dev: install ## open the Dagster UI on the example code location
	@mkdir -p "$(DAGSTER_HOME)"
	@test -e "$(DAGSTER_HOME)/dagster.yaml" || cp definitions/dagster.yaml "$(DAGSTER_HOME)"
	@echo "All sensors and schedules are stopped. To see them work, start external_writer_schedule and the" \
		"sensors on the page Automation of the UI."
	$(BIN)/dagster dev -w workspace.yaml

clean: ## remove .venv and all generated files
	rm -rf build dist site .venv .dagster_home .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .test-data
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
