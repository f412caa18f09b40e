// Package vec holds the arithmetic of the CPU backend: matrix products in dot form over float32, bfloat16, block-scaled
// e4m3 and e2m1 weights, and in transposed form; the indexer's scores and the counts that selection needs; attention
// over latent rows and over expanded keys; and element-wise loops. Inputs and outputs are slices of numbers. The
// package does not depend on tensors, threads, models or policy.
//
// # Tiers
//
// A [Tier] is one implementation of all operations: "amx", "avx512", "avx2", on arm64 "dotprod" or "neon", or "go".
// [Tiers] lists the tiers that this machine can run, best first; "go" is always last and is the readable definition of
// the others. With the build tag purego, or on another architecture, "go" is the only tier; the tags noamx and noavx512
// leave out the better tiers. The choice is made once, from CPU features and, for tiles, the operating system's
// permission; [Missing] lists the tiers that cannot run, with reasons. A Tier is immutable and safe for concurrent use.
//
// The tiers of arm64 have assembly for products with float32, bfloat16, float16 and block formats, and for sums of
// scaled rows; e4m3 weights are widened a band at a time, and other operations are plain Go. "dotprod" and "neon"
// multiply bytes with different instructions and give bitwise equal results. BFDOT is not used: it rounds x to eight
// bits.
//
// # Fixed order
//
// Within one tier, the order in which an output element is computed depends only on the length of its own sum: not on
// the number of rows or columns computed in the call, not on their position in the call, not on the alignment of a
// slice. A row is therefore bitwise equal alone and in any batch. Different tiers may round differently. (The payload
// and sign of a NaN are not defined.)
//
// # Numbers
//
// bfloat16 and e4m3 operands are little-endian bytes, as in a checkpoint or a cache page, at any alignment. Leading
// dimensions (ldx, ldw, ...) count elements. An e4m3 weight means the float32 product of its value and its scale,
// rounded once. So a product over e4m3 weights is bitwise equal to the float32 product over the weights widened by
// [Tier.WidenE4M3]. Scales of 2^120 and above are too large for the assembly tiers and overflow to infinity.
//
// # Tiles
//
// The tier "amx" multiplies bfloat16 and e4m3 weights by tiles, whose operands are bfloat16 and whose sums are float32.
// A float32 of x is represented by two bfloat16, whose sum is within 2^-17 of it, 2e-6 in the mean; weights are exact,
// and so is x if bfloat16 represents it. Subnormal numbers are zero. Each of the two parts has a separate sum, added in
// steps of 32 weights, and both sums are added in the end. For e4m3, a step has those of 64 weights that are widened
// together. Scales that are powers of two are multiplied into the weights; other scales multiply the sums over 128
// columns. A single part would be twice as fast, but rounds x to eight bits, which changes the choice of experts and
// tokens. With two parts a few choices in a thousand differ, those in which the compared numbers differ by about 1e-5
// of their size; [Tier.Precise] has no such rounding. If bfloat16 represents all rows of a product, their second parts
// are zero and are left out, which does not change the result.
//
// Dense attention splits both operands of its products into two bfloat16 and leaves out the products of two rounding
// errors, which are about 2^-18 of the result.
//
// The tier multiplies e2m1 weights by tiles of integers or, for a single row of x, by dot products of integers, with
// bitwise equal results. A row of x becomes integers of 14 or 15 bits and a sign, times one power of two, in two planes
// of eight bits; each integer is within 2^-15 of the largest number in the row. For a row of normally distributed
// numbers, this error is 5e-5 of their root mean square; one bfloat16 would round by 1e-3; the planes round by 1e-3
// only if the largest number is 60 to 120 times the root mean square. (DeepSeek-V4 was trained with x in e4m3 here,
// which rounds by 2.5e-2.) Twice a weight is an integer of up to 12; the scales of a weight row that are within a
// factor of eight of the largest make it an integer of up to 96, times one power of two. Sums of integers are exact in
// any order. They are rounded to float32 when they are written: the sum of each plane, and the sum of the first plane
// and 2^8 times the second. Groups with smaller scales have a separate sum, which is added to the sum of the larger
// groups.
//
// # Block formats
//
// Products with block formats of GGUF files multiply integers: weights are read as packed codes, and rows of x are
// quantised once per product to eight bits ([BlockRows]). The integer sum over the values that share all scales is
// exact in any order, so kernels of different shapes (up to four rows from the packed blocks, more rows on tiles) give
// bitwise equal results; the scaled sums are added in one order, block after block:
//
//	Q8_0, Q4_0, MXFP4   blocks of 32, x has a scale for each 32:
//	                    y = fma(float32(Σ q·c), d·dx, y)
//	Q4_K, Q6_K          blocks of 256, x has a scale for each 256, and s is the integer scale of 32 or 16 weights:
//	                    y = fma(fma(d, float32(Σ s·q·c), -dmin·float32(Σ m·Σc)), dx, y)
//
// The results of all tiers are bitwise equal. [Tier.Precise] has no such products: its caller widens weights instead.
//
// # Bounds and preemption
//
// Every method checks its slices once and panics if they are too short: that is an error of the caller, and no assembly
// runs after it. Outputs must not overlap inputs unless the comment of the method allows it. Assembly cannot be
// preempted, so methods process large inputs in blocks of a few microseconds, each through a Go function that is not
// inlined and can be preempted; sums longer than 65536 elements may occupy a processor for more than 100 microseconds.
package vec
