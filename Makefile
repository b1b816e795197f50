# `make help` lists what there is. Variables: PKG (packages, ./...), RUN (a pattern of test names), DSN (test-mysql).

SHELL   := bash
PKG     ?= ./...
RUN     ?= .
BENCH   ?= .

LINT_VERSION := $(shell cat .golangci-lint-version)
LINT         := .tools/golangci-lint-$(LINT_VERSION)

# Flags for the tests and, by the environment, for the programs that they build. Our packages and go-redis, by far the largest of the others,
# compile in two thirds of the time without inlining (-l). SQLite, which is generated from C, is left out by the race detector: it took a sixth
# of the time of tests that use it. A package must not be left out that instantiates generics, because the linker may take its copies of sync's
# for all.
GO_FLAGS = '-gcflags=$(shell go list -m)/...=-l' '-gcflags=github.com/redis/...=-l' '-gcflags=modernc.org/...=-d=checkptr=0' \
	'-gcflags=modernc.org/sqlite/lib=-race=false -d=checkptr=0'

# -count=1: these tests are about timing and real servers, a remembered pass says nothing. Vet is a target of its own, and no one debugs
# these binaries, which link sooner without tables for it. The race detector is among the flags of the environment, so that nothing is compiled
# twice. A program with it sleeps for a second before it ends, unless told otherwise. The collector may let the heap grow: a sixth less to do.
# Three packages at once on two processors: some wait for servers, or for time to pass.
AT_ONCE := $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) * 3 / 2 )))
GO_TEST  = GOFLAGS="$$GOFLAGS -race $(GO_FLAGS)" GOGC=400 GORACE=atexit_sleep_ms=50 go test -p $(AT_ONCE) -count=1 -vet=off -ldflags='-s -w' -run '$(RUN)'

.DEFAULT_GOAL := help
.PHONY: help lua-debug quick audit module-path test test-mysql soak mutants fuzz torture bench servers pictures api-docs docs-index build release fmt fmt-check vet lint fix check tidy

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# What needs no SQL server of its own, and the whole way of a claim once, on embedded servers.
QUICK_PKG := ./api ./api/auth ./api/claimed ./api/claiming ./api/console/health ./api/console/words ./api/live ./api/operator ./api/wire ./api/workers ./client ./internal/config ./internal/arch ./internal/deploy ./internal/sleep ./internal/steps ./internal/migrations ./models/... ./internal/split

# Tests that run on the embedded Redis or on SQLite as well as on real servers, by name. `make quick` runs that half of them.
BOTH_PKG = ./lua ./consumer ./consumer/redisbatch ./syncer/...
BOTH     = $$(grep -hE '^func Test|(eachRedis|onBothAlone|OnEachStore)\(t' $$(git ls-files 'lua/*_test.go' 'consumer/*_test.go' 'syncer/*_test.go') | \
	awk -F '[ (]' '/^func/ {name = $$2; next} {print name}' | sort -u | paste -sd '|')

quick: ## the fast loop, a minute: vet, unit tests without the race detector, embedded servers, and a small rush on them
	go vet ./...
	go test -run '$(RUN)' $(QUICK_PKG)
	go test -run "^($(BOTH))\$$/^(embedded|sqlite)\$$" $(BOTH_PKG)
	go run . demo --users 2000 --stock 200 >/dev/null

# Pure functions: nothing to race with, and ten times as slow under the race detector.
PURE_PKG := ./internal/split ./models/...
ALL      := $(filter ./...,$(PKG))

# The chart comes first: the test of its guide finds it compiled.
test: servers ## all tests with the race detector, on real servers started for the occasion (PKG=, RUN=)
	$(if $(ALL),mkdir -p .tools && scripts/charttest .tools/charttest && cd deploy/charttest && ../../.tools/charttest -test.run '$(RUN)')
	$(GO_TEST) -timeout 20m $(if $(ALL),$$(go list ./... | grep -vxF "$$(go list $(PURE_PKG))"),$(PKG))
	$(if $(ALL),go test -count=1 -vet=off -run '$(RUN)' $(PURE_PKG))

# One package at a time: it may be a shared server with few connections.
test-mysql: servers ## the tests that use SQL, on a server of your choice: make test-mysql DSN='root@tcp(127.0.0.1:3306)/' (SQL_PKG=)
	@test -n '$(value DSN)' || { echo "usage: make test-mysql DSN='user:password@tcp(host:port)/' (the user must be able to create databases)" >&2; exit 2; }
	DIBS_TEST_MYSQL_DSN='$(value DSN)' $(GO_TEST) -p 1 -timeout 20m $(or $(SQL_PKG),$$(scripts/sql-packages))

soak: servers ## the long forms of all tests, and every part of the benchmark once
	DIBS_SOAK=1 $(GO_TEST) -timeout 250m $(if $(ALL),$$(go list ./... | grep -vxF "$$(go list $(PURE_PKG))"),$(PKG))
	$(if $(ALL),DIBS_SOAK=1 go test -count=1 -vet=off -timeout 30m $(PURE_PKG))
	$(if $(ALL),$(MAKE) bench ROUNDS=1 SHORT=1)

mutants: servers ## small mistakes in copies of the code, each of which a test must notice (RUN=/name)
	DIBS_MUTANTS=all go test -count=1 -timeout 100m -v -run 'TestMutantsAreKilled$(filter /%,$(RUN))' ./proof/mutants | grep -E '^(ok|FAIL|---|    ---|    mutants|        )'; exit $${PIPESTATUS[0]}

module-path: ## give the Go module another path: make module-path NEW=example.com/shop/dibs
	@scripts/module-path '$(NEW)'

audit: ## look up the linked modules in the Go vulnerability database; without a network a kept copy is used (VULNDB=folder)
	@scripts/audit

fuzz: servers ## every fuzz target with so many inputs (INPUTS=10000000)
	scripts/fuzz $(INPUTS)

torture: servers ## faults at random on a whole Dibs, then the books (ARGS='--seed 7 --for 10m --topology cluster --durability fsync')
	go run ./proof/trials/dibs-trials torture $(ARGS)

bench: servers ## measure against ceilings, see docs/bench.md (BENCH=/script, ROUNDS=3, SHORT=1, WRITE=1)
	go test -run '^$$' -bench '$(BENCH)' -benchtime 1x -timeout 30m ./proof/bench $(if $(SHORT),-short) $(ROUNDS:%=-rounds=%) $(if $(WRITE),-write)

lua-debug: ## step through a script of lua/ in Redis' debugger, on a campaign that has claims: make lua-debug SCRIPT=claim
	@go run ./proof/luadebug '$(SCRIPT)'

servers: ## find the Redis and the MariaDB or MySQL that tests start, install them if need be
	@scripts/servers
	@scripts/browser

pictures: servers ## take the pictures of the console in docs/img again
	DIBS_PICTURES='$(CURDIR)/docs/img' go test -count=1 -run 'PagesInABrowser|ShardsInABrowser' ./api/console

docs-index: ## write docs/llms.txt, an index of all pages
	DIBS_WRITE=1 go test -count=1 -run Index_ ./internal/deploy

api-docs: ## write docs/api from the documents that the service shows
	DIBS_WRITE=1 go test -count=1 -run DocsAPI ./internal/apilint

# What `dibs --version` prints.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE    ?= $(shell date -u +%Y-%m-%dT%H:%M:%SZ)
LDFLAGS := -s -w -X dibs/internal/build.version=$(VERSION) -X dibs/internal/build.commit=$(COMMIT) -X dibs/internal/build.date=$(DATE)

build: ## the dibs binary, in bin/
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/dibs .

release: ## binaries, SBOM, checksums and notes in dist/: make release VERSION=v1.2.3
	@scripts/release '$(VERSION)'

fmt: $(LINT) ## format all Go files
	$(LINT) fmt

fmt-check: $(LINT) ## fail if a Go file is not formatted
	$(LINT) fmt --diff

vet: ## go vet
	go vet $(PKG)

lint: $(LINT) ## golangci-lint, in the version of .golangci-lint-version
	$(LINT) run $(PKG)

fix: $(LINT) ## what golangci-lint can mend by itself, and the formatting
	$(LINT) run --fix $(PKG)

check: fmt-check vet lint test ## what a change must pass

tidy: ## go.mod and go.sum as the code needs them
	go mod tidy
	go mod verify
	cd deploy/charttest && go mod tidy && go mod verify

# The name carries the version, so that a new version in the file brings the new linter. It takes some minutes to compile.
$(LINT):
	@mkdir -p .tools
	GOBIN='$(CURDIR)/.tools' GOFLAGS= go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	@mv .tools/golangci-lint $@
