# What a developer does with happyd. `make help` lists the targets.

GO       ?= go
FUZZTIME ?= 10m
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS   = -s -w -X main.version=$(VERSION)
# The race detector needs a C compiler; without one Go says 0 here.
RACE     := $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)
PLATFORMS = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64

.DEFAULT_GOAL := help
.PHONY: help run demo test node lint fuzz soak bench build cross clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 10

run: build ## build happyd and run it in the foreground; ARGS go to it
	./bin/happyd run $(ARGS)

demo: build ## play a session back and watch it being mirrored
	./bin/happyd demo $(ARGS)

build: ## build bin/happyd
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/happyd ./cmd/happyd

test: node ## vet and test everything, with the race detector where it works
	$(GO) vet ./...
	$(GO) test $(RACE) -timeout 9m ./...

# The tests against the official JavaScript parts need these modules, and are
# skipped, by name, without them.
node: ## install the modules of the Node tests, if there is Node
	@if ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
		echo "no node or npm: the tests against the official JavaScript parts will be skipped"; \
	else \
		for dir in test/node test/node/happy; do \
			[ $$dir/node_modules/.package-lock.json -nt $$dir/package-lock.json ] || \
				(cd $$dir && npm ci --no-audit --no-fund --loglevel=error) || exit 1; \
		done; \
	fi

lint: ## check the format and run staticcheck
	@files=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$files" ]; then echo "gofmt would change:"; echo "$$files"; exit 1; fi
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

fuzz: ## run every fuzz target for FUZZTIME (10m)
	@for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "== $$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s $$pkg || exit 1; \
		done; \
	done

soak: ## run the long fault tests (TestSoak...), on this machine only
	HAPPYD_SOAK=1 $(GO) test -run '^TestSoak' -count 1 -timeout 30m -v ./...

bench: ## run all benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

cross: ## build for all platforms, into dist/
	@for p in $(PLATFORMS); do \
		os=$${p%/*} arch=$${p#*/}; ext=; [ $$os = windows ] && ext=.exe; \
		echo "dist/happyd-$$os-$$arch$$ext"; \
		CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch $(GO) build -trimpath -ldflags '$(LDFLAGS)' \
			-o dist/happyd-$$os-$$arch$$ext ./cmd/happyd || exit 1; \
	done

clean: ## remove what was built
	rm -rf bin dist

.PHONY: bench-idle kill
bench-idle: ## measure what 5,000 old sessions cost an idle daemon, over a minute
	HAPPYD_IDLE=60 $(GO) test -run '^TestIdle$$' -count 1 -v ./e2e

kill: ## kill the daemon 200 times while nested subagents write
	HAPPYD_KILLS=200 $(GO) test -run '^TestKilled$$' -count 1 -timeout 20m -v ./e2e
