# Everything a developer or CI types. `make help` lists the targets.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

export GOTOOLCHAIN ?= local

MODS   = $(shell go list -m -f '{{.Dir}}')
PROTOS = $(shell find proto/epigraph proto/third_party -name '*.proto' 2>/dev/null)

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

# Tools are installed from their own modules, so that their dependencies never
# meet ours. The stamp is younger than go.mod when there is nothing to do.
bin/.proto-tools: tools/go.mod tools/go.sum
	GOWORK=off GOBIN=$(CURDIR)/bin go -C tools install tool
	@touch $@

.PHONY: gen
gen: bin/.proto-tools ## Generate proto/gen from proto/epigraph
	scripts/gen
