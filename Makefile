# Two commands do everything on a fresh machine that has Go: `make quickstart` and `make test`.
GO           ?= go
GOTESTFLAGS  ?=
FUZZ_SECONDS ?= 10
VERSION      ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS       = -s -w -X main.buildVersion=$(VERSION)

.PHONY: quickstart test nightly build lint bench fuzz clean

# The main job on embedded parts: a Kafka broker in the process, a generator, a Delta table under ./quickstart.
quickstart: build
	rm -rf quickstart
	bin/freshet quickstart --dir quickstart --rows 200000

# All tests. Those that need a real broker, a real S3 server or other engines say so and skip (see interop/README.md).
test:
	$(GO) test -timeout 25m $(GOTESTFLAGS) ./...

# The suites of PostgreSQL on each version of the server; VERSIONS="13 16" chooses.
nightly:
	.ci/nightly $(VERSIONS)

build:
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/freshet ./cmd/freshet

# The linter's version is that of .ci/run.
lint:
	golangci-lint run ./...

# Every figure of docs/performance.md, ours and of peers; hours, on an idle machine (bench/README.md).
bench: build
	$(GO) build -o bin/bench-ours ./bench/ours
	bench/race.py all
	bench/postgres.py all
	bench/tables.py all

fuzz:
	.ci/fuzz $(FUZZ_SECONDS)

clean:
	rm -rf bin quickstart
