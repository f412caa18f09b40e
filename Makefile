# Targets a developer needs. `make test` is what CI runs; it sets nothing up beyond what `go` fetches by itself.
GO ?= go
# Packages whose tests are cheap enough to repeat under the race detector on two cores.
RACE = ./plan ./kernel/cpu/pool ./weight ./layout

.PHONY: test check unit race fuzz build clean

test: check unit race

check:
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "gofmt these files:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

unit:
	$(GO) test ./...

race:
	$(GO) test -race $(RACE)

build:
	$(GO) build -o bin/sparrow ./cmd/sparrow

clean:
	rm -rf bin .build
