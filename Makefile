# Every way in. `make demo` and `make test` need nothing but Python 3.11 and, for all of it, root on Debian or Ubuntu.

VENV := .venv/bin
PYTHON := $(VENV)/python
export PATH := $(CURDIR)/$(VENV):$(PATH)
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test e2e faults build images cluster cluster-down kind crds reasons krew lint docs fmt lock bench fuzz clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## measure two shaped links, hold one pool, open the other (needs no cluster)
	@.ci/bootstrap demo
	@$(VENV)/kvgate demo
	@if [ -x $(VENV)/dynamo-python ]; then $(VENV)/kvgate demo routing; else echo "not run: kvgate demo routing; NVIDIA Dynamo is not installed here (.ci/bootstrap test installs it)"; fi

test: ## run every tier that this machine allows; TIER=unit runs one (lint, unit, local, dynamo, build, api, cluster)
	@.ci/bootstrap test
	@$(PYTHON) .ci/run_tiers.py $(TIER)

e2e: ## try kvgate in a real cluster: the tests' own (root, Linux), or any by KUBECONFIG=FILE PROBE_IMAGE=NAME
	@.ci/bootstrap test
	@KVGATE_E2E_KUBECONFIG='$(if $(filter command,$(origin KUBECONFIG)),$(KUBECONFIG))' KVGATE_E2E_PROBE_IMAGE='$(PROBE_IMAGE)' \
		$(PYTHON) -m pytest -m cluster tests/e2e

faults: ## play 200 lives of a pool before an API server that fails in every way, and 20 that SIGKILL interrupts (30 and 1 in make test)
	@.ci/bootstrap test
	@KVGATE_FAULT_SEEDS=200 $(PYTHON) -m pytest -q tests/faults

build: ## make the wheel and the sdist in dist/, and run the wheel outside this checkout
	@.ci/bootstrap demo
	@rm -rf dist
	@$(PYTHON) -m build --no-isolation --outdir dist .
	@$(PYTHON) .ci/wheel_check.py dist

images: ## pack both images as OCI archives in dist/images, with bills of materials; needs no Docker engine (root, Debian)
	@.ci/bootstrap test
	@$(PYTHON) -m tests.cluster.make_images dist/images

cluster: ## start a real three-node Kubernetes to play with, and print its KUBECONFIG (root, Linux)
	@.ci/bootstrap test
	@$(PYTHON) -m tests.cluster up

cluster-down: ## end that cluster and clear whatever an earlier one left
	@$(PYTHON) -m tests.cluster down

kind: ## make a kind cluster of three nodes from tests/kind.yaml (needs Docker and kind)
	@command -v docker >/dev/null || { echo "make kind needs Docker, and there is no docker command here; make cluster needs none" >&2; exit 2; }
	@command -v kind >/dev/null || { echo "make kind needs kind: go install sigs.k8s.io/kind@latest" >&2; exit 2; }
	@docker info >/dev/null 2>&1 || { echo "make kind needs a running Docker engine: docker info failed" >&2; exit 2; }
	kind create cluster --name kvgate --config tests/kind.yaml

crds: ## write crds/, the chart's copy of them, and docs/api.md from the models
	@.ci/bootstrap demo
	@$(VENV)/kvgate crds --out crds --reference docs/api.md
	@$(VENV)/kvgate crds --out charts/kvgate/crds

krew: ## pack kubectl kvgate for krew in dist/krew, with its manifest
	@.ci/bootstrap demo
	@$(PYTHON) .ci/krew.py

reasons: ## write what kubectl kvgate says of a reason, from docs/conditions.md and docs/runbook.md
	@.ci/bootstrap demo
	@$(PYTHON) -m tests.docs.reason_data

lint: ## run the linters alone
	@.ci/bootstrap demo
	@$(PYTHON) .ci/run_tiers.py lint

docs: ## build the pages in dist/site, strictly
	@.ci/bootstrap demo
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --quiet -f .ci/mkdocs.yml

fmt: ## format the code, and fix what a linter can fix
	@.ci/bootstrap demo
	@$(PYTHON) -m ruff check --quiet --fix-only .
	@$(PYTHON) -m ruff format .

lock: ## pin every dependency again, with hashes
	@.ci/bootstrap demo
	@$(PYTHON) -m uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --extra dev pyproject.toml -o requirements.lock
	@$(PYTHON) -m uv pip compile --quiet --no-deps --universal --python-version 3.11 --generate-hashes --no-emit-index-url .ci/go.in -o .ci/go.lock
	@$(PYTHON) -m uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --excludes tests/dynamo_stage/excludes.txt tests/dynamo_stage/requirements.in -o tests/dynamo_stage/requirements.txt
	@$(PYTHON) -m uv pip compile --quiet --no-deps --universal --python-version 3.11 --generate-hashes --no-emit-index-url tests/nixl/requirements.in -o tests/nixl/requirements.txt

bench: ## measure again what benchmarks/ states (root, Linux)
	@.ci/bootstrap test
	@$(PYTHON) -m benchmarks

fuzz: ## spoil KVGATE_FUZZ_EXAMPLES real texts and KVGATE_FUZZ_OBJECTS objects, and see each refused or borne
	@.ci/bootstrap test
	@$(PYTHON) -m tests.fuzz
	@KVGATE_FUZZ_OBJECTS=$${KVGATE_FUZZ_OBJECTS:-2000} $(PYTHON) -m pytest -q -m api tests/fuzz

clean: ## remove what was built and cached in this checkout, but not .venv
	@rm -rf dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
