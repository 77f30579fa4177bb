# Everything that a developer or CI types. `make help` lists the targets.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

export GOTOOLCHAIN ?= local

# Plans with known graphs, one JSON record per line; not part of this tree.
CORPUS ?= ../shared/data/plans.jsonl.gz
# How long each fuzz target runs.
export FUZZTIME ?= 10s
# Which benchmarks `make bench` runs, and how.
BENCH      ?= .
BENCHFLAGS ?= -benchmem
# The tag of the image that `make images` builds.
IMAGE ?= epigraph:dev

# The modules of the workspace; what stands outside it is named where it is used.
MODS = $(shell go list -m -f '{{.Dir}}')

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

# --- tools -------------------------------------------------------------------
# Each set of tools is its own module, so that its dependencies never meet ours
# and a change to one rebuilds only that one. The stamp says what is installed.

bin/.tools-%:
	GOWORK=off GOBIN=$(CURDIR)/bin go -C $(dir $<) install tool
	@touch $@

bin/.tools-proto: tools/go.mod tools/go.sum $(wildcard tools/openapi/*)
bin/.tools-lint: tools/lint/go.mod tools/lint/go.sum
bin/.tools-deploy: tools/deploy/go.mod tools/deploy/go.sum
bin/.tools-test: tools/test/go.mod tools/test/go.sum
bin/.tools-release: tools/release/go.mod tools/release/go.sum

.PHONY: tools
tools: bin/.tools-proto bin/.tools-lint bin/.tools-deploy bin/.tools-test bin/.tools-release ## Build all development tools into ./bin

# --- build and run -----------------------------------------------------------

.PHONY: build
build: ## Build the command into ./bin
	@echo "building bin/epigraph $$(scripts/stamp version); the first time that loads and compiles some 900 packages, which takes minutes"
	@CGO_ENABLED=0 go build -v -trimpath -ldflags "$$(scripts/stamp)" -o bin/epigraph ./cmd/epigraph 2>&1 | scripts/counted

# What the binary may weigh, in bytes; docs/development/tools.md says what it is made of.
MAX_BINARY ?= 118000000

.PHONY: size
size: build ## Fail if the binary is larger than MAX_BINARY, or gs:// stores cannot be built in or s3:// ones left out
	@n=$$(wc -c <bin/epigraph); echo "bin/epigraph has $$n bytes, $(MAX_BINARY) at most"; test "$$n" -le $(MAX_BINARY)
	CGO_ENABLED=0 go vet -trimpath -tags gcs ./internal/blob
	CGO_ENABLED=0 go test -trimpath -tags nos3 -run WithoutItsClient ./internal/blob

.PHONY: demo
demo: build ## Run an example plan on an embedded server and serve it to a browser; CASSETTE=FILE plays recorded calls
	bin/epigraph demo $(if $(CASSETTE),--replay $(CASSETTE))

.PHONY: demo-offline
demo-offline: build ## Record and play the demo in a network namespace without a network (Linux)
	scripts/offline-demo bin/epigraph

.PHONY: patterns
patterns: build ## Run every pattern of teams and workflows once, with a scripted model, and print what its agents say
	scripts/patterns bin/epigraph

.PHONY: dev
dev: build ## Run all four services in one process
	bin/epigraph dev

# --- code --------------------------------------------------------------------

.PHONY: gen
gen: bin/.tools-proto ## Generate code and OpenAPI from the protos
	scripts/gen

.PHONY: console
console: ## Build the pages of the console into the gateway (needs Node.js >= 20.19 and npm)
	scripts/console

.PHONY: fmt
fmt: bin/.tools-proto bin/.tools-lint ## Format Go and protos
	bin/golangci-lint fmt
	bin/buf format -w proto --path proto/epigraph

.PHONY: lint
lint: bin/.tools-lint ## Lint the Go code of every module
	bin/golangci-lint run $(addsuffix /...,$(MODS))

.PHONY: tidy
tidy: ## Tidy go.mod of every module and sync the workspace
	scripts/tidy

.PHONY: alone
alone: ## Build each module outside the workspace, and check its go.mod
	scripts/alone

.PHONY: check
check: gen lint alone ## All that must hold besides the tests: generated code, lint, vet, protos, modules
	@test -z "$$(git status --porcelain -- proto/gen proto/baseline.binpb docs/events.md)" || { \
		git status --short -- proto/gen proto/baseline.binpb docs/events.md; git --no-pager diff --stat -- proto/gen docs/events.md; \
		echo "proto/gen, proto/baseline.binpb and docs/events.md are not what the protos say: commit the result of make gen"; exit 1; }
	go test -run 'TestBundle' ./services/gateway/internal/console
	go vet work
	cd bench && GOWORK=off go vet ./...
	GOWORK=off go -C tools test ./openapi/...
	GOWORK=off go -C tools/release test ./...
	bin/buf lint
	bin/buf format -d --exit-code

.PHONY: vuln
vuln: ## Look for known vulnerabilities (needs the vulnerability database)
	go run golang.org/x/vuln/cmd/govulncheck@v1.8.0 ./...

# --- tests -------------------------------------------------------------------

.PHONY: setup
setup: # What the tests need besides Go; test, race, bench and chaos call it.
	@scripts/ensure-cc
	@scripts/ensure-postgres
	@scripts/ensure-interpreters
	@scripts/ensure-mcp-servers
	@scripts/ensure-editor

.PHONY: test
test: setup bin/.tools-test ## Run all tests with the race detector, in random order; HOGS=2 beside a busy machine
	scripts/test

.PHONY: console-test
console-test: build ## Test the console in Chromium before a real server; pictures in bin/console/pictures
	scripts/console-test

.PHONY: race
race: setup bin/.tools-test ## Run all tests again and again, on one and on many processors
	FLAKY=fail GOTESTFLAGS='-count=2 -cpu=1,4' scripts/test

.PHONY: release-check
release-check: ## All that must hold before a release: what a change must pass, without a test that is flaky
	FLAKY=fail .ci/run

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (default 10s)
	scripts/fuzz

.PHONY: bench
bench: setup ## Run the benchmarks of the packages and of bench/
	go test -run '^$$' -bench '$(BENCH)' $(BENCHFLAGS) work
	cd bench && GOWORK=off go test -run '^$$' -bench '$(BENCH)' $(BENCHFLAGS) -timeout 60m ./...

.PHONY: bench-peers
bench-peers: setup ## Compare with the databases' limits and other engines in one run; flags in PEERS='-quick'
	cd bench && GOWORK=off go run ./cmd/peers $(PEERS)

.PHONY: corpus
corpus: ## Measure the plan reader on CORPUS and on the texts in plan/corpus
	go run ./plan/corpus -data $(CORPUS)

.PHONY: plans
plans: ## Have an agent carry out 20 recorded plans of CORPUS, with scripted models
	go run ./services/executor/plans -data $(CORPUS)

.PHONY: epic
epic: setup ## Run an epic of 50 recorded tasks under a budget that stops it once; EPIGRAPH_TASK_TREES=FILE
	go test -count=1 -v -run TestFiftyRealTasks ./test/e2e

.PHONY: prompts
prompts: ## Print the prompts of the six ways in which an agent remembers
	go test -count=1 -v -run TestPattern ./services/executor/internal/actor/agent

.PHONY: chaos
chaos: setup ## Kill servers under load and count what was lost (long)
	go test -tags=chaos -count=1 -timeout 60m -v ./test/chaos/...

# --- release and deployment --------------------------------------------------

.PHONY: release
release: bin/.tools-release ## Build the archives of a release into dist/, with module lists and checksums
	scripts/release

.PHONY: release-twice
release-twice: bin/.tools-release ## The same, and again from a clone without a cache: both must have the same bytes
	scripts/release --twice

.PHONY: images
images: ## Build the container image, with or without a Docker daemon
	scripts/images $(IMAGE)

.PHONY: k8s-check
k8s-check: bin/.tools-deploy ## Render the Kubernetes manifests and validate every object
	scripts/k8s-check
