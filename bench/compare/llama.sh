#!/bin/sh
# Measures prefill and decode of the preset v32-mini at context depths 0, 2k, 4k and 8k: first with llama.cpp, then with
# sparrow on this machine.
#
#   bench/compare/llama.sh CHECKPOINT GGUF [THREADS]
#
# CHECKPOINT is a folder written by `sparrow synth CHECKPOINT --config v32-mini`; docs/benchmarks/record-cpu.md shows
# how to make GGUF from it. For a quantised file, both are the GGUF file written by `sparrow quantize`. SPARROW and
# LLAMA_BENCH name the two programs if they are not on the path. RESULTS is the file for results of llama-bench, by
# default ./llama.jsonl. DEPTHS and REPEATS are the depths and repetitions of llama-bench, which computes every depth
# token by token: 8192 takes many minutes. ROUNDS repeats the comparison. WRITE is a document that gets the tables.
set -eu
if [ $# -lt 2 ]; then
	sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
for program in "${LLAMA_BENCH:-llama-bench}" "${SPARROW:-sparrow}"; do
	if ! command -v "${program%% *}" > /dev/null; then
		echo "llama.sh: $program: the program was not found; apt-get install llama.cpp-tools (Debian sid) has" \
			"llama-bench; LLAMA_BENCH and SPARROW name the two" >&2
		exit 1
	fi
done
checkpoint=$1 gguf=$2 threads=${3:-2} results=${RESULTS:-llama.jsonl} depths=${DEPTHS:-0 2048 4096 8192}
for round in $(seq "${ROUNDS:-1}"); do
	: > "$results"
	for depth in $depths; do
		echo "llama.cpp at depth $depth, round $round" >&2
		# Each depth runs in one process, so that the generation test reuses the context of the prompt test. With the
		# default --repack 1, llama.cpp 0.7.0 stops with an assertion on quantised files.
		${LLAMA_BENCH:-llama-bench} -m "$gguf" -t "$threads" --repack 0 -p 512 -n 32 -d "$depth" -r "${REPEATS:-2}" \
			-o jsonl >> "$results"
	done
	echo "sparrow, round $round" >&2
	${SPARROW:-sparrow} bench model "$checkpoint" --contexts "$(echo $depths | tr " " ,)" --batch 1 \
		--workers "$threads" --against "$results" ${WRITE:+--write "$WRITE"}
done
