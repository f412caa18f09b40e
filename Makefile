# Targets a developer needs. `make test` is what CI runs; it sets nothing up beyond what `go` fetches by itself.
GO ?= go
# Packages whose tests are cheap enough to repeat under the race detector on two cores.
RACE = . ./attn/... ./engine ./model ./sched ./kv/... ./plan ./server ./hub ./weight ./kernel/cpu/pool \
	./kernel/cuda
# Platforms that tests do not run on; they are compiled.
PLATFORMS = linux/arm64 darwin/arm64 windows/amd64

.PHONY: test check width unit race schemas clients cluster build dist kernels clean

test: check unit race

check: width
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "gofmt these files:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...
	@for p in $(PLATFORMS); do echo "compile for $$p"; \
	  GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build ./... || exit 1; done

# Lists hand-written lines of more than 120 columns.
width:
	$(GO) run ./internal/tree/width

# The generator of the CPU kernels' assembly is a module of its own: its test compares the assembly with what it
# writes.
unit:
	$(GO) test ./...
	cd kernel/cpu/vec/_asm && $(GO) vet . && $(GO) test .

# The JSON Schema test suite against the grammar: DIR holds its folders draft4, draft7 and draft2020-12.
schemas:
	@if [ -z "$(DIR)" ]; then echo "usage: make schemas DIR=folder of the JSON Schema test suite"; exit 2; fi
	$(GO) test ./grammar -count=1 -run TestSuite -v -args -suite $(abspath $(DIR))

# Runs the clients people use, pinned, in front of a server of the built-in model. They are installed once, below the
# user's cache folder or the one that SPARROW_CLIENTS names.
clients:
	$(GO) run ./server/clienttest/matrix

# Runs three servers of the built-in model behind pinned routers and an index of cached prefixes, installed as the
# clients are, and compares deploy/kubernetes with schemas. PARTS names some: manifests, index, prefixes, balance,
# accidents, others.
cluster:
	$(GO) run ./server/clienttest/cluster $(PARTS)

race:
	$(GO) test -race $(RACE)
	$(GO) test -race -run AtOnce ./step

# Compiles the CUDA sources to the embedded images. NVRTC comes from a CUDA toolkit, or from the Python wheel
# nvidia-cuda-nvrtc unpacked into a folder: make kernels NVRTC=folder. Only needed after a change below
# kernel/cuda/src.
kernels:
	$(GO) run ./cmd/kernelc $(if $(NVRTC),--nvrtc $(NVRTC))

build:
	$(GO) build -o bin/sparrow ./cmd/sparrow

# Archives for people to install, in the folder dist: static builds for CPUs, and linux/amd64 with CUDA. The static one
# of this platform is then run in an empty folder as its root, where the system allows that.
dist:
	$(GO) run ./cmd/dist
	$(GO) test ./cmd/dist -count=1 -run TestAlone -v -args -dist $(abspath dist)

clean:
	rm -rf bin .build dist
