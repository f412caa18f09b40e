# Targets for developers. `make test` installs nothing except what `go` downloads by itself. CI runs check, test and
# long and then, while time is left, the targets that need other programs: see .ci/run.
GO ?= go
# Programs are released without C code. With cgo disabled, packages are compiled once for programs and for tests, and
# linking takes less time.
export CGO_ENABLED = 0
# Packages that start goroutines; the race detector runs their tests with -short. Of other packages with goroutines it
# runs only the tests that MEET names, in which goroutines share data: the other tests take too long.
RACE = ./engine ./internal/attn/... ./internal/kv/... ./server ./internal/batch ./internal/hub \
	./weight ./internal/pool ./internal/device/group ./internal/device/offload ./kernel/cuda
MEET = AtOnce|Cancel|Clos|Stream|Sleep|TakeTurns|InFlight|Usage
# -vet=off because `check` already runs vet, and -ldflags=-w because no debugger reads the test binaries: both save
# build time. The timeout of a package only ends tests that hang: the longest package takes two minutes on two idle
# cores, and half an hour on a machine that runs twenty other programs. With COUNT=1 no cached test results are used.
TESTFLAGS = -vet=off -ldflags=-w -timeout 60m $(if $(COUNT),-count=$(COUNT))
# Runs go test once for each argument, and at the end prints which tests were skipped and whether all others passed.
RUN = @$(GO) run ./internal/tree/testrun
# Fewer garbage collections in vet and staticcheck.
LAZY = GOGC=400
# All targets but `build` and `dist`, which make programs for users, compile without debug information and with fewer
# garbage collections of the compiler. That takes a third less time. They use the same flags, so that each package is
# compiled once for all of them.
USERFLAGS := $(GOFLAGS)
export GOFLAGS := $(USERFLAGS) -gcflags=all=-dwarf=false "-toolexec=env GOGC=400"
build dist: export GOFLAGS := $(USERFLAGS)
# The packages with the longest tests. They are started first, so that other packages run at the same time.
FIRST = ./verify ./engine ./internal/step
# Platforms on which no tests run. Their sources are only type-checked.
PLATFORMS = linux/arm64 darwin/arm64 windows/amd64

.PHONY: test check width unit race race-all fuzz schemas clients cluster tiers page-store sessions \
	browser screenshots torture build dist kernels assemble gpu-tests arm64 clean

# .ci/run has the time budgets of all targets, in minutes on two cores with an empty build cache.
test: format width
	$(RUN) $(UNIT)

# Checks that do not run the program. The build tag openai adds the tests with OpenAI's Go client, the package that
# takes longest to compile; `make long` runs these tests.
check: format width
	$(LAZY) $(GO) vet -tags openai ./...
	$(GO) -C internal/vec/_asm vet .
	$(LAZY) $(GO) tool staticcheck -tags openai ./...
	$(GO) run ./internal/tree/platforms $(PLATFORMS)

.PHONY: format
format:
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "gofmt these files:"; echo "$$unformatted"; exit 1; fi

# Lists hand-written lines of more than 120 columns.
width:
	$(GO) run ./internal/tree/width

# Draws the charts of the benchmark pages from the tables of these pages.
.PHONY: plots
plots:
	$(GO) run ./internal/tree/plots docs/benchmarks/cpu.md docs/benchmarks/h200.md

# The generator of the CPU kernels' assembly is a separate Go module. Its test compares the committed assembly files
# with the output of the generator.
UNIT = "$(TESTFLAGS) $(FIRST) ./..." "-C internal/vec/_asm $(TESTFLAGS) ."
unit:
	$(RUN) $(UNIT)

# Tests of the engine that run on two ranks in every run of `make long`: many concurrent requests, cancellation,
# prefixes, drafts. `make ranks` runs all tests on ranks. Each command of the list tests one division of attention. The
# commands run in parallel, because the threads of ranks wait for each other half of the time.
RANKED = "$(TESTFLAGS) ./engine -run $(ON_RANKS) -args -ranks 2" \
	"+ $(TESTFLAGS) ./engine -run $(ON_RANKS) -args -ranks 2 -attention dp"
ON_RANKS = TestACrowd|TestADraftingCrowdGets|TestCancel|TestASharedPrefix|TestTheNextTurn|TestTwoEngines|$(TABLED)
TABLED = TestAModelWithTables

# Tests that `make test` omits, because they take minutes and other tests imply their results: every implementation of
# the operations with every chunk size against the oracle's numbers, a chunk of 32,768 tokens, the tests that are
# skipped with a message that names `make long`, damaged and hostile inputs in every variant, OpenAI's Go client, and
# the engine on two ranks.
.PHONY: long exact served
long: exact served

exact:
	$(RUN) '$(TESTFLAGS) -count=1 -run $(ORACLE) ./verify $(MODELS) -args -long' \
	  '$(TESTFLAGS) -count=1 -run $(CROWDS) ./engine ./internal/step -args -long' \
	  '$(TESTFLAGS) -count=1 -run $(TASKS) ./internal/eval ./internal/bench/kernels ./kernel/cpu -args -long' \
	  '$(TESTFLAGS) -count=1 -run $(HOSTILE) ./api/openai ./tokenizer ./internal/jinja $(MODEL)/estimate -args -long' \
	  '$(TESTFLAGS) -count=1 -run TestSeeds|TestFirstTokensBesideMixes ./internal/sim -args -long'

# The part of long with servers, clients and ranks.
served:
	$(RUN) \
	  '$(TESTFLAGS) -count=1 -run $(SERVED) ./cmd/sparrow -args -long -batch-lines 10000 -fire-answers 80' \
	  '$(TESTFLAGS) -count=1 -tags openai ./server/clienttest' $(RANKED)
MODEL = ./internal/model
MODELS = $(MODEL)/v4 $(MODEL)/v41 $(MODEL)/next $(MODEL)/shard ./internal/testkit \
	./internal/testkit/strict ./builtin
TASKS = TestAnswersIn|TestRandomSelection|TestEveryCase|TestBlock|TestGroup
HOSTILE = TestDamagedBodies|TestScanners|TestTemplatesEndSoon|TestMemoryIs|TestSizesOfReleases
SERVED = TestABatchSurvives|TestFloods|TestAnswersUnder|TestCommandsAgree|TestFirstExample
ORACLE = TestExact|TestV41*Exact|TestV41*Packed|TestJudged|TestRounded|TestRanks|TestAChunkOf|TestGolden|$(MORE)
MORE = TestNextExact|TestNextDraft|TestQuantised$$|TestDSpark|TestDense|TestV4Bounds|FromGGUF|TestRepacked|$(BITS)
BITS = TestDecodeEqualsPrefill|TestBatchedEqualsAlone|TestRollbackEquals|TestEveryWayToShare|$(CUTS)
CUTS = TestChunkedEquals|TestSlicing|TestRestore|TestWorkspaceEq|TestAFewWindow|TestReusedSlot|TestOurModels|$(OPS)
OPS = TestOperations|TestServedSel|TestAgreesWith|TestRanksCompute
CROWDS = TestARankThatFails|TestADraftingCrowdOf|TestDraftedAnswers|TestDraftedText|TestACrowdWithExperts|$(WAYS)
WAYS = TestRandomB|TestAPrefix|TestAStatefulModel|TestEveryWay|TestEveryLe|TestDecodeAlloc|TestSampled|$(OTHERS)
OTHERS = TestEqualShapes|TestDraftsDepend|TestOffloadedEq|TestRowBits|TestNoLength|TestAConversationReuses|$(LAST)
LAST = TestRandomEv|TestOverlapBy|TestAModelWithTables|TestSlicing|TestDeterministicPre|TestNativeAnd

# Compiles the source of the GPU kernel that samples tokens for the CPU, and compares its results with package sample.
.PHONY: draws
draws:
	$(GO) test -count=1 -timeout 30m ./kernel/cuda -run KernelsSource -args -draws 20000

.PHONY: ranks
ranks:
	$(GO) test -count=1 ./engine -args -ranks 2
	$(GO) test -count=1 ./engine -args -ranks 2 -attention dp
	$(GO) test -count=1 ./engine -run TestARankByADevicesRules -args -every-fault
	$(GO) test -count=1 ./verify ./internal/model/shard ./internal/device/group -run "Rank|Collective"

# Compares the grammar with the JSON Schema test suite. DIR is the folder that contains draft4, draft7 and draft2020-12.
schemas:
	@if [ -z "$(DIR)" ]; then echo "usage: make schemas DIR=folder of the JSON Schema test suite"; exit 2; fi
	$(GO) test ./grammar -count=1 -run TestSuite -v -args -suite $(abspath $(DIR))

# Runs pinned versions of common clients against a server of the built-in model, and coding agents against a server that
# plays a script. They are installed once, below the user's cache folder or below SPARROW_CLIENTS; the agents take 1.3
# GB there.
clients:
	$(GO) run ./server/clienttest/matrix
	$(GO) run ./server/clienttest/agents

# Runs three servers of the built-in model behind pinned versions of routers and of an index of cached prefixes, which
# are installed in the same folder as the clients. Also compares deploy/kubernetes with schemas, and a simulation with
# the servers. PARTS selects parts: manifests, index, tiers, prefixes, balance, accidents, others, planning.
cluster:
	$(GO) run ./server/clienttest/cluster $(PARTS)

# Evaluates the queries of the dashboard and of the alerts with the programs prometheus and promtool in the folder
# PROMETHEUS, by default those of Debian's package prometheus.
.PHONY: dashboards
PROMETHEUS ?= /usr/bin
dashboards:
	$(GO) test ./cmd/sparrow -count=1 -run TestDashboards -v -args -prometheus $(abspath $(PROMETHEUS))

# Sends spans of a server to OpenTelemetry's collector and compares the output of the collector. The collector is built
# once, from modules of the Go proxy, in the folder of the clients, which takes minutes.
.PHONY: collector
collector:
	$(GO) test ./server/clienttest -count=1 -timeout 60m -run TestACollector -v -args -collector

# Tests the page in Chromium, which is installed if it is missing and the user may install packages.
browser:
	$(GO) test ./server/browsertest -count=1 -v -args -browser

# Takes the screenshots of the documentation.
screenshots:
	$(GO) test ./server/browsertest -count=1 -args -browser -shots $(abspath docs/page)

# Runs simulations of the engine with faults, one seed after the other, and then real servers that receive bad requests
# and are killed, each for DURATION. If an invariant fails, it prints the command that repeats the failure.
DURATION ?= 1m
torture:
	$(GO) test ./internal/sim -count=1 -timeout 0 -run TestTorture -v -args -duration $(DURATION)
	$(GO) run ./server/hostile -duration $(DURATION)
	$(GO) test ./internal/sim -count=1 -timeout 30m -run TestFirstTokensBesideMixes -v -args -mixes 1000
	$(GO) test ./cmd/sparrow -count=1 -timeout 30m -run TestAnswersUnderFire -v -args -fire-answers 2000

# Long runs of the tiers of the prefix cache: 10,000 requests that evict, restore and cancel at random, and 500 through
# two processes of which one is killed.
tiers:
	$(GO) test ./engine -count=1 -run TestRandomEvictions -v -args -tier-sequences 10000
	$(GO) test ./cmd/sparrow -count=1 -timeout 30m -run TestTwoProcesses -v -args -replica-requests 500

# Runs two servers that share a redis-server: the one that REDIS names, the one on the path, or Debian's package, which
# is downloaded and unpacked below .build.
page-store:
	@redis=$$(REDIS="$(REDIS)" sh internal/testkit/redis.sh .build/redis) || exit 0; \
	  $(GO) test ./cmd/sparrow -count=1 -timeout 20m -run TestTwoServersShareARedis -v -args -redis-server "$$redis"

# Runs sessions of an agent with 150 turns each, for v32-tiny and v4-tiny: one session of up to TOKENS tokens, and eight
# concurrent sessions of up to EIGHT tokens with a cache for four of them. Rows score all keys before them, so time
# grows with the square of the number of tokens: v32-tiny takes long.
TOKENS ?= 200000
EIGHT ?= 24000
SESSION = $(GO) test . -count=1 -timeout 24h -v -args -session-turns 150 -session-tokens
sessions:
	$(SESSION) $(TOKENS) -test.run TestALongSession
	$(SESSION) $(EIGHT) -test.run TestEightSessionsAtOnce

# Tests of packages with goroutines under the race detector.
RACES = "$(TESTFLAGS) -race -short $(RACE)" "$(TESTFLAGS) -race -run $(MEET) . ./internal/step"
race:
	$(RUN) $(RACES)

# Runs the race detector over every package, except for tests that are too slow for it. It takes long.
race-all:
	CGO_ENABLED=1 $(GO) test -race -short -tags openai -timeout 60m ./...

# Runs every function whose name begins with Fuzz, for FUZZTIME each; new ones are found by name. Inputs that fail are
# written to testdata/fuzz of the package, where `go test` runs them from then on.
FUZZTIME ?= 1m
fuzz:
	@grep -ro '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' $(or $(PKG),.) | \
	  sed 's|/[^/]*:func \(.*\)| \1|' | sort -u | while read dir name; do echo "$$dir $$name"; \
	  $(GO) test "./$$dir" -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) || exit 1; done

# Compiles the CUDA sources to the embedded images. NVRTC is the folder of a CUDA toolkit, or a folder with the unpacked
# Python wheel nvidia-cuda-nvrtc: make kernels NVRTC=folder. This is needed only after a change below kernel/cuda/src.
kernels:
	$(GO) run ./cmd/kernelc $(if $(NVRTC),--nvrtc $(NVRTC))

# Assembles the portable images for all supported GPU architectures, with ptxas of a CUDA toolkit or of the Python wheel
# nvidia-cuda-nvcc: make assemble PTXAS=file.
assemble:
	SPARROW_PTXAS=$(or $(PTXAS),ptxas) $(GO) test -v -count=1 -timeout 60m -run TestPTXAssembles ./kernel/cuda

# Packs all tests that need a GPU into .build/gpu-tests, for a machine without Go, where sh gpu-tests.sh run starts
# them.
gpu-tests:
	sh kernel/cuda/gpu-tests.sh pack .build/gpu-tests

# Tests the arm64 kernels, and an answer of the built-in model, with qemu-aarch64.
arm64:
	GO="$(GO)" sh kernel/cpu/arm64.sh $(abspath .build/arm64)

build:
	$(GO) build -o bin/sparrow ./cmd/sparrow

# Builds the archives for users, in the folder dist: static builds for CPUs, and linux/amd64 with CUDA. Then runs the
# static build of this platform in an empty folder as its root, if the system allows that.
dist:
	$(GO) run ./cmd/dist
	$(GO) test ./cmd/dist -count=1 -run TestAlone -v -args -dist $(abspath dist)

clean:
	rm -rf bin .build dist
