// Package vec holds the arithmetic of the CPU backend: dot-form matrix products over float32, bfloat16, block-scaled
// e4m3 and e2m1 weights, their transposed form, the indexer's scores and the counts that selection needs, attention
// over latent rows and over expanded keys, and the element-wise loops around them. Slices of numbers flow in, slices
// of numbers flow out. It is independent of tensors, threads, models and policy.
//
// # Tiers
//
// A [Tier] is one implementation of everything here: "amx", "avx512", "avx2",
// on arm64 "dotprod" or "neon", or "go". [Tiers] lists those this machine can run, best
// first; "go" is always last and is the readable definition of the others. The
// build tag purego, or any other architecture, leaves only "go"; the tags noamx
// and noavx512 leave out the better tiers. The choice is made once, from CPU features and,
// for tiles, the operating system's permission; [Missing] lists the other tiers
// with reasons. A Tier is immutable and safe for concurrent use.
//
// The tiers of arm64 have assembly for products with float32, bfloat16, float16 and block formats, and for sums of
// scaled rows; e4m3 weights are widened a band at a time, and the rest is plain Go. "dotprod" differs from "neon" in
// how it multiplies bytes, with the same bits. BFDOT is not used: it rounds x to eight bits.
//
// # Fixed order
//
// Within one tier every output element is computed in an order that depends
// on the length of its own sum and on nothing else: not on the number of rows
// or columns computed in the same call, not on where they are in it, not on
// the alignment of a slice. A row therefore has the same bits alone or in any
// batch. Different tiers may round differently. (The payload and sign of a NaN
// are not defined.)
//
// # Numbers
//
// bfloat16 and e4m3 operands are little-endian bytes, as they are in a
// checkpoint or a cache page, at any alignment. Leading dimensions (ldx, ldw,
// ...) count elements. An e4m3 weight means the float32 product of its value
// and its scale, rounded once, so a product over e4m3 weights has the bits of
// the float32 product over [Tier.WidenE4M3] of them. Scales of 2^120 and above
// are outside what the assembly tiers can fold and overflow to infinity.
//
// # Tiles
//
// The tier "amx" multiplies bfloat16 and e4m3 weights by tiles that take bfloat16 on both sides and add in float32. A
// float32 of x is represented by two bfloat16, whose sum is within 2^-17 of it, 2e-6 in the mean; weights are exact,
// and so is x if bfloat16 can hold it. Subnormal numbers are zero. Each part has a separate sum, taken in steps of 32
// weights, and both are added in the end; of 64 e4m3 weights a step takes those that are widened together. Scales
// that are powers of two are folded into the weights; others scale the sums over 128 columns. A single part would be
// twice as fast, but rounds x to eight bits, which changes the choice of experts and tokens. With two parts a few
// choices in a thousand differ, where the margin is 1e-5 of the compared numbers; [Tier.Precise] has no such rounding.
// Where bfloat16 holds all rows of a product, their second parts are zero and are left out, which changes no bit.
//
// Dense attention splits both operands of its products into two bfloat16 and leaves out errors times errors: 2^-18.
//
// The tier multiplies e2m1 weights by tiles that take and add integers, or a single row of x by dot products of
// integers, with the same bits. A row of x is integers of 14 or 15 bits and a sign times one power of two, each within
// 2^-15 of the largest in the row, in two planes of eight bits. Of a row of normal numbers that is 5e-5 of their root
// mean square; one bfloat16 would round it by 1e-3; the planes round by that much only if the largest number is 60 to
// 120 times the root mean square. (DeepSeek-V4 was trained with x in e4m3 here, which rounds by 2.5e-2.) Twice a weight
// is an integer of up to 12; the scales of a row of weights that are within a factor of eight of the largest make it
// one of up to 96, times one power of two. Sums of integers are exact in any order and are rounded to float32 when they
// are written: each plane, and the sum of the first and 2^8 times the second. Groups with smaller scales have a
// separate sum, which is added to the sum of the larger ones.
//
// # Block formats
//
// Products with block formats of GGUF files multiply integers: weights are read as their packed codes, and rows of x
// are quantised once per product to eight bits ([BlockRows]). The integer sum over the values that share all scales is
// exact in any order, so kernels of different shape (up to four rows from the packed blocks, more on tiles) agree to
// the bit; the scaled sums are added in one order, block after block:
//
//	Q8_0, Q4_0, MXFP4   blocks of 32, x has a scale for each 32:
//	                    y = fma(float32(Σ q·c), d·dx, y)
//	Q4_K, Q6_K          blocks of 256, x has a scale for each 256, and s is the integer scale of 32 or 16 weights:
//	                    y = fma(fma(d, float32(Σ s·q·c), -dmin·float32(Σ m·Σc)), dx, y)
//
// All tiers have the same bits. [Tier.Precise] has no such products: its caller widens weights instead.
//
// # Bounds and preemption
//
// Every method checks its slices once and panics when they are too short:
// that is an error of the caller, and no assembly runs after it. Outputs must
// not overlap inputs unless the method says so. Assembly has no safe points,
// so methods process large inputs in blocks of a few microseconds, each through a
// Go function that is not inlined and can be preempted; sums longer than
// 65536 elements may hold a processor for more than 100 microseconds.
package vec
