"""Block hashes as Dynamo's router computes them: a line [block_size, salt or null, tokens] in, a line of hashes out."""
import json
import sys

from dynamo.llm import compute_block_hash_for_seq

for line in sys.stdin:
    size, salt, tokens = json.loads(line)
    hashes = compute_block_hash_for_seq(tokens, size, cache_namespace=salt)
    # The query takes signed numbers.
    print(json.dumps([h - (1 << 64) if h >= 1 << 63 else h for h in hashes]), flush=True)
