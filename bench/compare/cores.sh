#!/bin/sh
# Measures how decode steps and single GEMMs use the cores of a machine.
#
#   bench/compare/cores.sh [CORES] [FOLDER]
#
# 1. GEMMs of 1 and 16 rows with 32 MiB of bf16, e4m3 and e2m1 weights from memory with CORES threads, compared with
#    plain reads by as many threads in the same rounds.
# 2. Decode of v32-mini with 1 worker, 2, 4, ... CORES: best and median step.
# 3. Decode of slices of two models at full width: DeepSeek-V3.2 with 2 layers of 32 FP8 experts, and DeepSeek-V4-Flash
#    with 1 layer of 64 FP4 experts. CORES workers; the rate of reading weights is compared with that of plain reads.
#
# The default of CORES is the number of cores. Checkpoints of 10 GB are written to FOLDER, or to a temporary folder.
# SPARROW names the program if it is not on the path. Run this script on an idle machine, from the repository.
set -eu
sparrow=${SPARROW:-sparrow} cores=${1:-$(nproc)} folder=${2:-}
case $cores in
*[!0-9]*)
	sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
if [ -z "$folder" ]; then
	folder=$(mktemp -d)
	trap 'rm -rf "$folder"' EXIT
fi
presets=$(dirname "$0")/../../model/synth/preset

# shape NAME PRESET LAYERS EXPERTS: writes a preset with the given numbers of layers and experts.
shape() {
	python3 - "$presets/$2.json" "$3" "$4" > "$folder/$1.json" <<-'END'
		import json, sys
		c = json.load(open(sys.argv[1]))
		layers = int(sys.argv[2])
		c["num_hidden_layers"], c["n_routed_experts"], c["num_nextn_predict_layers"] = layers, int(sys.argv[3]), 0
		json.dump(c, sys.stdout)
	END
}

# synth NAME CONFIG [FLAGS]: writes a checkpoint, unless it exists.
synth() {
	name=$1 config=$2
	shift 2
	[ -d "$folder/$name" ] || "$sparrow" synth "$folder/$name" --config "$config" --repeat "$@"
}

# decode NAME WORKERS: prints the times of a decode step of one sequence.
decode() {
	"$sparrow" bench model "$folder/$1" --kernels cpu --contexts 0 --batch 1 --workers "$2" --budget 5s |
		grep -E "step ms| decode |^decode "
}

echo "== products, $cores threads"
"$sparrow" bench kernels --kernels cpu --only "weights out of DRAM" --threads "1,$cores" --replays 15

echo "== v32-mini"
synth mini v32-mini
workers=1
while [ "$workers" -le "$cores" ]; do
	echo "-- $workers workers"
	decode mini "$workers"
	workers=$((workers * 2))
done

echo "== full width, $cores workers"
shape slice-config v32-slice 2 32
synth slice "$folder/slice-config.json" --dtype fp8
synth flash v4-slice --dtype fp8
for name in slice flash; do
	"$sparrow" inspect "$folder/$name"
	decode "$name" "$cores"
done
