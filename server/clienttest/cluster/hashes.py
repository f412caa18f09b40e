"""Computes block hashes as Dynamo's router does: lines [block_size, salt or null, tokens] in, lines of hashes out."""
import json
import sys

from dynamo.llm import compute_block_hash_for_seq

for line in sys.stdin:
    size, salt, tokens = json.loads(line)
    hashes = compute_block_hash_for_seq(tokens, size, cache_namespace=salt)
    # the query expects signed numbers
    print(json.dumps([h - (1 << 64) if h >= 1 << 63 else h for h in hashes]), flush=True)
