#!/bin/sh
# Runs the tests that need a GPU on a machine without Go.
#
#   sh kernel/cuda/gpu-tests.sh pack FOLDER        with Go: test binaries, the program and the files they read
#   sh FOLDER/gpu-tests.sh run [SUITE...]          on the GPU machine: all suites, or some
#   sh FOLDER/gpu-tests.sh list                    the suites
#
# A suite writes FOLDER/log/SUITE; one line for each suite reports whether it passed and how long it took. The exit
# status is 1 if a suite failed. LIMIT is the maximum time of a suite in seconds, 600 by default.
set -u

packages="kernel/cuda internal/cuda/op internal/testkit internal/bench/cuda internal/step internal/model/v4
    internal/model/v41 engine engine/gputest engine/losttest builtin verify"
suites="version run kernels operations steps records engine v4 linear offload builtin lost verify ranks eval soak
    memcheck racecheck attention flash portable small"

usage() {
    sed -n '4,6s/^#   //p' "$0" >&2
    exit 2
}

# binary PACKAGE: prints the path of the package's test binary.
binary() { echo "bin/$(echo "$1" | tr / -).test"; }

pack() {
    [ -n "${1:-}" ] || usage
    mkdir -p "$1/bin" && to=$(cd "$1" && pwd) && cd "$(dirname "$0")/../.." || exit 1
    export CGO_ENABLED=0
    for p in $packages; do
        go test -c -vet=off -ldflags='-s -w' -o "$to/$(binary "$p")" "./$p" || exit 1
        mkdir -p "$to/$p"
    done
    go test -c -vet=off -tags remote -ldflags='-s -w' -o "$to/$(binary server/soak)" ./server/soak || exit 1
    go build -trimpath -ldflags='-s -w' -o "$to/bin/sparrow" ./cmd/sparrow || exit 1
    mkdir -p "$to/server/soak" "$to/testdata" "$to/builtin/testdata"
    cp -R testdata/oracle "$to/testdata/" # including archives, which tests unpack
    cp builtin/*.json builtin/model.safetensors "$to/builtin/"
    cp builtin/testdata/golden.json "$to/builtin/testdata/"
    cp kernel/cuda/gpu-tests.sh "$to/"
}

# tests PACKAGE PATTERN [FLAG...]: runs the tests of a package in its folder.
tests() {
    folder=$1 pattern=$2 program=$root/$(binary "$1")
    shift 2
    (cd "$root/$folder" && timeout "$limit" "$program" -test.v -test.timeout "${limit}s" -test.run "$pattern" "$@") &&
        ! grep -q 'SKIP' "$log" # a test without a GPU is skipped
}

# checked TOOL PACKAGE PATTERN: runs the tests of a package with a tool of compute-sanitizer.
checked() {
    (cd "$root/$2" && timeout "$limit" compute-sanitizer --tool "$1" --error-exitcode 9 "$root/$(binary "$2")" \
        -test.v -test.short -test.run "$3") &&
        ! grep -Eq 'RACECHECK SUMMARY: [1-9]|needs a (Hopper )?GPU' "$log" # fails on warnings too
}

# soak: runs a server of the built-in model under load.
soak() {
    port=18473
    "$root/bin/sparrow" serve --kernels cuda --port $port &
    server=$!
    sleep 3
    (cd "$root/server/soak" && SPARROW_SOAK_URL=http://127.0.0.1:$port timeout "$limit" \
        "$root/$(binary server/soak)" -test.v)
    status=$?
    kill $server
    wait $server
    return $status
}

suite() {
    case $1 in
    version) "$root/bin/sparrow" version && "$root/bin/sparrow" version | grep -q '^ *cuda .*(ready)$' ;;
    run)
        "$root/bin/sparrow" run --kernels cuda --temperature 0 \
            "The price of a lamp is 2 dollars. Bella takes 3 lamps. How many dollars is that?" </dev/null
        ;;
    kernels) tests kernel/cuda GPU ;;
    operations) tests internal/cuda/op GPU && tests internal/testkit GPU ;;
    steps) tests internal/step GPU ;;
    records) tests engine/gputest GPU ;;
    engine) tests engine GPUEngine ;;
    v4) tests internal/model/v4 GPU && tests internal/model/v41 GPU && tests engine "GPU(Stateful|Tables)" ;;
    linear) tests engine GPULinearAttention && tests verify GPUOracleNext ;;
    offload)
        tests internal/cuda/op 'GPU(Fetched|Host|Split|Moved)' && tests internal/model/v4 GPUOffloaded &&
            tests verify GPUOffloaded && tests engine GPUTwoMemories
        ;;
    builtin) tests builtin Golden/cuda ;;
    portable | small) # portable kernels; small: also with the limits of a 24 GB card
        [ "$1" = small ] && set -- small -small
        shift
        hopper='FunctionsMatchTheManifest|TensorMapIsEncoded|LaunchAttributes|EveryProductKernel'
        failed=0
        tests kernel/cuda GPU -test.skip "$hopper" -portable "$@" || failed=1
        tests internal/cuda/op GPU -test.skip Ranks -portable "$@" || failed=1
        tests internal/testkit GPU -portable "$@" || failed=1
        tests verify 'GPUO(racle|ffloaded)' -portable "$@" || failed=1
        tests builtin Golden/portable || failed=1
        tests internal/step GPU -portable "$@" || failed=1
        tests internal/model/v4 GPU -portable "$@" || failed=1
        tests engine 'GPU(Engine|Stateful|Linear)' -portable "$@" || failed=1
        tests engine/gputest GPU -portable "$@" || failed=1
        return $failed
        ;;
    lost) tests engine/losttest GPU ;;
    verify) tests verify 'GPU(Oracle|Offloaded)' ;;
    ranks)
        # Ranks are streams of one GPU. Without a hardware queue per stream, a waiting rank blocks other ranks.
        export CUDA_DEVICE_MAX_CONNECTIONS=32
        crowds='crowd|drafts|drafting_crowd|cancelled_drafts|cancellations|faulty_request|shared_prefix'
        crowds="GPUEngine/^($crowds|prefix_that_comes_back|evictions|scores|close)\$"
        failed=0
        tests kernel/cuda 'AllReduce|GatherRanks|ReduceScatter|PartIDs' || failed=1
        tests internal/cuda/op GPURanks || failed=1
        tests builtin 'Golden/2_ranks_on_a_GPU' || failed=1
        tests verify GPURanks || failed=1
        tests engine "$crowds" -ranks 2 -attention tp || failed=1
        tests engine "$crowds" -ranks 2 -attention dp || failed=1
        "$root/bin/sparrow" run --gpus 0,0 --temperature 0 \
            "The price of a lamp is 2 dollars. Bella takes 3 lamps. How many dollars is that?" </dev/null || failed=1
        return $failed
        ;;
    eval)
        for kv in bf16 fp8 fp8-576; do
            timeout "$limit" "$root/bin/sparrow" eval --kernels cuda --concurrency 64 --kv $kv || return 1
        done
        ;;
    soak) soak ;;
    memcheck)
        checked memcheck kernel/cuda \
            'GPU(Products|EveryProduct|Experts|MissingExpert|Quantise|NormQuantise|TopKOfAFewRows)' &&
            checked memcheck kernel/cuda 'AllReduce|GatherRanks|ReduceScatter' &&
            checked memcheck internal/testkit GPUSharedSuites &&
            checked memcheck internal/cuda/op 'GPU(SelectAndLocate|HeldOperations|Pages|Fetched|HostExperts)'
        ;;
    racecheck)
        checked racecheck kernel/cuda 'GPU(EveryProduct|ExpertsEqual|TopKOfAFewRows)' &&
            checked racecheck kernel/cuda 'AllReduce|GatherRanks|ReduceScatter'
        ;;
    attention) # sparse attention with every tool of compute-sanitizer for shared memory
        failed=0
        for tool in memcheck racecheck synccheck; do
            checked $tool kernel/cuda 'GPU(SparseAttention|SparseUnits|TwoStreams)' || failed=1
        done
        return $failed
        ;;
    flash) # DeepSeek-V4-Flash at full size: experts on the GPU as far as they fit, the others in host memory
        timeout "$limit" "$root/bin/sparrow" bench model deepseek-v4-flash --dummy --kernels cuda --profile \
            --experts split --batch 1,32 --contexts 8k --prompts 8k
        ;;
    *)
        echo "there is no suite $1; the suites are: $suites" >&2
        return 2
        ;;
    esac
}

run() {
    root=$(cd "$(dirname "$0")" && pwd) limit=${LIMIT:-600} worst=0
    mkdir -p "$root/log"
    [ $# -gt 0 ] || set -- $suites
    for s in "$@"; do
        log=$root/log/$s began=$(date +%s) verdict=ok
        if ! suite "$s" >"$log" 2>&1; then
            verdict=FAILED worst=1
        fi
        echo "$verdict $s $(($(date +%s) - began)) s"
        if [ $verdict = FAILED ]; then
            grep -a -E -m 20 '^ *--- FAIL|_test.go:|panic|ERROR|Error|error' "$log" || tail -n 5 "$log"
        fi
    done
    return $worst
}

command=${1:-}
[ $# -gt 0 ] && shift
case $command in
pack) pack "$@" ;;
run) run "$@" ;;
list) echo "$suites" ;;
*) usage ;;
esac
