#!/bin/sh
# How decode and single products use the cores of a machine.
#
#   bench/compare/cores.sh [CORES] [FOLDER]
#
# 1. Products of 1 and 16 rows by 32 MiB of bf16, e4m3 and e2m1 weights out of memory with CORES threads, against
#    plain reading by as many threads in the same rounds.
# 2. Decode of v32-mini with 1 worker, 2, 4, ... CORES: best and median step.
# 3. Decode of a slice of DeepSeek-V3.2 at its width, 2 layers of 32 experts in FP8, and of DeepSeek-V4-Flash,
#    1 layer of 64 experts in FP4, with CORES workers, and the share of the plain read at which they read weights.
#
# CORES is all of them by default. Checkpoints are written to FOLDER, 10 GB, or to a folder that is removed. SPARROW
# names the program when it is not on the path. Run it on an idle machine, from the repository.
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

# shape NAME PRESET LAYERS EXPERTS: a preset with fewer layers and experts.
shape() {
	python3 - "$presets/$2.json" "$3" "$4" > "$folder/$1.json" <<-'END'
		import json, sys
		c = json.load(open(sys.argv[1]))
		layers = int(sys.argv[2])
		c["num_hidden_layers"], c["n_routed_experts"], c["num_nextn_predict_layers"] = layers, int(sys.argv[3]), 0
		json.dump(c, sys.stdout)
	END
}

# synth NAME CONFIG [FLAGS]: the checkpoint, unless it is there.
synth() {
	name=$1 config=$2
	shift 2
	[ -d "$folder/$name" ] || "$sparrow" synth "$folder/$name" --config "$config" --repeat "$@"
}

# decode NAME WORKERS: the step of one sequence.
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
