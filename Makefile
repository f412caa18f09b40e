# Targets a developer needs. `make test` sets nothing up beyond what `go` fetches by itself. CI runs check, test, long
# and, while there is time, what needs other programs: see .ci/run.
GO ?= go
# Programs are released without C code. Packages are compiled once for them and for tests, and linked in less time.
export CGO_ENABLED = 0
# Packages that start goroutines of their own and whose tests are cheap enough for the race detector on two cores, and
# the tests of larger ones where goroutines meet.
RACE = ./engine ./internal/attn/... ./internal/kv/... ./server ./internal/batch ./internal/hub \
	./weight ./internal/pool ./internal/device/group ./internal/device/offload ./kernel/cuda
MEET = AtOnce|Cancel|Clos|Stream|Sleep|TakeTurns|InFlight|Usage
# `check` vets already, and no debugger looks at test binaries: without both they are built in less time. The limit of a
# package is for hangs: the longest takes two minutes on two cores of its own, and half an hour beside twenty other
# programs. COUNT=1 takes nothing from the cache of test results.
TESTFLAGS = -vet=off -ldflags=-w -timeout 60m $(if $(COUNT),-count=$(COUNT))
# Runs go test with each argument, and says at the end what was skipped and that everything passed.
RUN = @$(GO) run ./internal/tree/testrun
# Checkers, and the compiler that they call, collect garbage less often. Tests do not see it.
LAZY = GOGC=400
# The packages whose tests take longest: started first, they do not run alone at the end.
FIRST = ./verify ./engine ./internal/step
# Platforms that tests do not run on; their sources are type-checked.
PLATFORMS = linux/arm64 darwin/arm64 windows/amd64

.PHONY: test check width unit race race-all fuzz schemas clients cluster tiers page-store sessions \
	browser screenshots torture build dist kernels assemble gpu-tests arm64 clean

# Budgets in minutes, of two cores with everything compiled anew: .ci/run has those of all targets.
test: format width
	$(RUN) $(UNIT)

# What can be said about the sources without running them. The tag openai is that of tests with OpenAI's Go client,
# which takes longest of all packages to compile: make long runs them.
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

# Draws the pictures of the benchmark pages again from their tables.
.PHONY: plots
plots:
	$(GO) run ./internal/tree/plots docs/benchmarks/cpu.md docs/benchmarks/h200.md

# The generator of the CPU kernels' assembly is a module of its own: its test compares the assembly with what it writes.
UNIT = "$(TESTFLAGS) $(FIRST) ./..." "-C internal/vec/_asm $(TESTFLAGS) ."
unit:
	$(RUN) $(UNIT)

# Tests of the engine that run on two ranks each time: crowds, cancellation, prefixes, drafts. `make ranks` runs all.
# Ranks, whose threads wait for each other half of the time, are divided in both ways at once.
RANKED = "$(TESTFLAGS) ./engine -run $(ON_RANKS) -args -ranks 2" \
	"+ $(TESTFLAGS) ./engine -run $(ON_RANKS) -args -ranks 2 -attention dp"
ON_RANKS = TestACrowd|TestADraftingCrowdGets|TestCancel|TestASharedPrefix|TestTheNextTurn|TestTwoEngines|$(TABLED)
TABLED = TestAModelWithTables

# What tests leave out because it takes minutes and other tests imply it: every implementation of the operations with
# every chunk size against the oracle's numbers, a chunk of 32,768 tokens, what says so where it is skipped, OpenAI's Go
# client, and the engine on two ranks.
.PHONY: long
long:
	$(RUN) '$(TESTFLAGS) -count=1 -run $(ORACLE) ./verify $(MODELS) -args -long' \
	  '$(TESTFLAGS) -count=1 -run $(CROWDS) ./engine ./internal/step -args -long' \
	  '$(TESTFLAGS) -count=1 -run TestAnswersIn|TestEveryCase ./internal/eval ./internal/bench/kernels -args -long' \
	  '$(TESTFLAGS) -count=1 -run $(SERVED) ./cmd/sparrow -args -long -batch-lines 10000 -fire-answers 80' \
	  '$(TESTFLAGS) -count=1 -tags openai ./server/clienttest' $(RANKED)
MODELS = ./internal/model/v4 ./internal/model/v41 ./internal/testkit/strict ./builtin
SERVED = TestABatchSurvives|TestFloods|TestAnswersUnder
ORACLE = TestExact|TestV41*Exact|TestV41*Packed|TestJudged|TestRounded|TestRanks|TestAChunkOf|TestGolden|$(MORE)
MORE = TestNextExact|TestNextDraft|TestQuantised$$|$(BITS)
BITS = TestDecodeEqualsPrefill|TestBatchedEqualsAlone|TestRollbackEquals|TestEveryWayToShare|$(CUTS)
CUTS = TestChunkedEquals|TestSlicing|TestOurModels
CROWDS = TestARankThatFails|TestADraftingCrowdOf|TestDraftedAnswers|TestDraftedText|TestACrowdWithExperts|$(WAYS)
WAYS = TestRandomB|TestAPrefix|TestAStatefulModel|TestEveryWay|TestEveryLe|TestDecodeAlloc|TestSampled|$(OTHERS)
OTHERS = TestEqualShapes|TestDraftsDepend|TestOffloadedEq|TestRowBits|TestNoLength|TestAConversationReuses|$(LAST)
LAST = TestRandomEv|TestOverlapBy|TestAModelWithTables

# The source of the kernel that draws tokens, on this machine, beside package sample.
.PHONY: draws
draws:
	$(GO) test -count=1 -timeout 30m ./kernel/cuda -run KernelsSource -args -draws 20000

.PHONY: ranks
ranks:
	$(GO) test -count=1 ./engine -args -ranks 2
	$(GO) test -count=1 ./engine -args -ranks 2 -attention dp
	$(GO) test -count=1 ./engine -run TestARankByADevicesRules -args -every-fault
	$(GO) test -count=1 ./verify ./internal/model/shard ./internal/device/group -run "Rank|Collective"

# The JSON Schema test suite against the grammar: DIR holds its folders draft4, draft7 and draft2020-12.
schemas:
	@if [ -z "$(DIR)" ]; then echo "usage: make schemas DIR=folder of the JSON Schema test suite"; exit 2; fi
	$(GO) test ./grammar -count=1 -run TestSuite -v -args -suite $(abspath $(DIR))

# Runs the clients people use, pinned, in front of a server of the built-in model, and coding agents in front of one
# that plays a script. They are installed once, below the user's cache folder or the one that SPARROW_CLIENTS names;
# the agents take 1.3 GB there.
clients:
	$(GO) run ./server/clienttest/matrix
	$(GO) run ./server/clienttest/agents

# Runs three servers of the built-in model behind pinned routers and an index of cached prefixes, installed as the
# clients are, and compares deploy/kubernetes with schemas and a simulation with the servers. PARTS names some:
# manifests, index, tiers, prefixes, balance, accidents, others, planning.
cluster:
	$(GO) run ./server/clienttest/cluster $(PARTS)

# Evaluates the queries of the dashboard and of alerts with the prometheus and promtool of a folder, such as those of
# Debian's package prometheus.
.PHONY: dashboards
PROMETHEUS ?= /usr/bin
dashboards:
	$(GO) test ./cmd/sparrow -count=1 -run TestDashboards -v -args -prometheus $(abspath $(PROMETHEUS))

# Sends spans of a server to OpenTelemetry's collector and compares what it sends on. The collector is built once, from
# modules of the proxy, below the folder that clients are installed in: that takes minutes.
.PHONY: collector
collector:
	$(GO) test ./server/clienttest -count=1 -timeout 60m -run TestACollector -v -args -collector

# Opens the page in Chromium, which is installed where it is missing and that is allowed.
browser:
	$(GO) test ./server/browsertest -count=1 -v -args -browser

# Makes the pictures of the documentation.
screenshots:
	$(GO) test ./server/browsertest -count=1 -args -browser -shots $(abspath docs/page)

# Runs simulations of the engine with faults, seed after seed, and then real servers under bad requests and kills, each
# for DURATION. A broken rule prints the command that repeats it.
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

# Two servers that share a redis-server: the one on the path or that REDIS names, else Debian's packages, which are
# downloaded and unpacked below .build.
page-store:
	@redis=$$(REDIS="$(REDIS)" sh internal/testkit/redis.sh .build/redis) || exit 0; \
	  $(GO) test ./cmd/sparrow -count=1 -timeout 20m -run TestTwoServersShareARedis -v -args -redis-server "$$redis"

# Sessions of an agent, 150 turns each: one up to TOKENS, and eight at once up to EIGHT with a cache for four, for
# v32-tiny and v4-tiny. Rows score all keys before them, so time grows with the square of tokens: v32-tiny takes long.
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

# The race detector over every package, but for tests that are too slow for it. It takes long.
race-all:
	CGO_ENABLED=1 $(GO) test -race -short -tags openai -timeout 60m ./...

# Every function named Fuzz in the tree, FUZZTIME each: a new one is found by its name. What they find is written below
# testdata/fuzz of its package and is a test from then on.
FUZZTIME ?= 1m
fuzz:
	@grep -ro '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' $(or $(PKG),.) | \
	  sed 's|/[^/]*:func \(.*\)| \1|' | sort -u | while read dir name; do echo "$$dir $$name"; \
	  $(GO) test "./$$dir" -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) || exit 1; done

# Compiles the CUDA sources to the embedded images. NVRTC comes from a CUDA toolkit, or from the Python wheel
# nvidia-cuda-nvrtc unpacked into a folder: make kernels NVRTC=folder. Only needed after a change below
# kernel/cuda/src.
kernels:
	$(GO) run ./cmd/kernelc $(if $(NVRTC),--nvrtc $(NVRTC))

# Assembles the portable images for every kind of GPU, with ptxas of a CUDA toolkit or of the Python wheel
# nvidia-cuda-nvcc: make assemble PTXAS=file.
assemble:
	SPARROW_PTXAS=$(or $(PTXAS),ptxas) $(GO) test -v -count=1 -timeout 60m -run TestPTXAssembles ./kernel/cuda

# Packs every test that needs a GPU into .build/gpu-tests, for a machine without Go: sh gpu-tests.sh run.
gpu-tests:
	sh kernel/cuda/gpu-tests.sh pack .build/gpu-tests

# The kernels of arm64, and an answer of the built-in model, by qemu-aarch64.
arm64:
	GO="$(GO)" sh kernel/cpu/arm64.sh $(abspath .build/arm64)

build:
	$(GO) build -o bin/sparrow ./cmd/sparrow

# Archives for people to install, in the folder dist: static builds for CPUs, and linux/amd64 with CUDA. The static one
# of this platform is then run in an empty folder as its root, where the system allows that.
dist:
	$(GO) run ./cmd/dist
	$(GO) test ./cmd/dist -count=1 -run TestAlone -v -args -dist $(abspath dist)

clean:
	rm -rf bin .build dist
