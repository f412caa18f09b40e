#!/bin/sh
# Tests the arm64 kernels on a machine of another architecture with qemu-aarch64: it runs the comparison tests of the
# kernels, on a processor with dot products of bytes and on one without, and generates an answer with the built-in
# model, which must equal the answer of this machine.
#
#   sh kernel/cpu/arm64.sh FOLDER       from the top of the tree; programs are built in FOLDER
#
# qemu-aarch64 is in Debian's package qemu-user. If it is missing, the script prints that nothing was tested and exits
# with status 0.
set -eu
out=${1:?usage: sh kernel/cpu/arm64.sh FOLDER}
go=${GO:-go}
qemu=$(command -v qemu-aarch64 || command -v qemu-aarch64-static || true)
if [ -z "$qemu" ]; then
	echo "arm64: nothing was tested: qemu-aarch64 is not on the path (Debian package qemu-user)"
	exit 0
fi
mkdir -p "$out"
GOARCH=arm64 $go test -vet=off -ldflags=-w -c -o "$out/vec.test" ./internal/vec
GOARCH=arm64 $go build -o "$out/sparrow-arm64" ./cmd/sparrow
$go build -o "$out/sparrow-here" ./cmd/sparrow
tests='MatMul|HalfPrecision|Accumulate|Axpy|Dot|Block|Tiers|Outside|Fma32'
for cpu in cortex-a57 max; do
	echo "arm64: kernels on qemu's processor $cpu"
	(cd internal/vec && "$qemu" -cpu $cpu "$out/vec.test" -test.run "$tests" -test.timeout 20m)
done
question='Rolf plants 3 rows of 4 trees. How many trees are there?'
answer() { "$@" run --temperature 0 --kernels cpu --max-tokens 48 "$question" 2>/dev/null; }
here=$(answer "$out/sparrow-here")
for cpu in cortex-a57 max; do
	there=$(answer "$qemu" -cpu $cpu "$out/sparrow-arm64")
	if [ -z "$here" ] || [ "$there" != "$here" ]; then
		echo "arm64: the built-in model answers \"$there\" on $cpu, here \"$here\""
		exit 1
	fi
done
echo "arm64: the built-in model answers as here: $here"
