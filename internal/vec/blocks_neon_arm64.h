// Products with block formats: one row of quantised x by four rows of weights. The file that includes this defines
// DOT16, which adds the products of sixteen signed bytes to four sums, and the names of the kernels. DOT16 may use V26
// and V27.
//
// Instructions that Go's assembler does not support are written as words; the arguments of their macros are register
// numbers, with the destination last.

#define FCVTL(n, d) WORD $(0x0E217800 | (n)<<5 | (d))
#define SCVTF(n, d) WORD $(0x4E21D800 | (n)<<5 | (d))
#define FMUL(m, n, d) WORD $(0x6E20DC00 | (m)<<16 | (n)<<5 | (d))
#define FNEG(n, d) WORD $(0x6EA0F800 | (n)<<5 | (d))
// Sign extension to the next width, of the lower and the upper half.
#define SXTLB(n, d) WORD $(0x0F08A400 | (n)<<5 | (d))
#define SXTLB2(n, d) WORD $(0x4F08A400 | (n)<<5 | (d))
#define SXTLH(n, d) WORD $(0x0F10A400 | (n)<<5 | (d))
#define SXTLH2(n, d) WORD $(0x4F10A400 | (n)<<5 | (d))
// SMULLH multiplies the lower four int16 of two registers; SMLALH2 multiplies the upper four and adds the products.
#define SMULLH(m, n, d) WORD $(0x0E60C000 | (m)<<16 | (n)<<5 | (d))
#define SMLALH2(m, n, d) WORD $(0x4E608000 | (m)<<16 | (n)<<5 | (d))
// Multiplies four int32 by element i of m and adds the products.
#define MLAELEMENT(i, m, n, d) WORD $(0x6F800000 | ((i)&1)<<21 | ((i)>>1)<<11 | (m)<<16 | (n)<<5 | (d))

#define ZERO(v) VEOR v.B16, v.B16, v.B16

// The arguments: V0 is the results, R1 the codes of x, R2 its scales, R3 its sums, R5 to R8 the rows of weights, and R9
// counts blocks.
#define BEGIN \
	MOVD a+0(FP), R0; \
	MOVD neonBlockArgs_x(R0), R1; \
	MOVD neonBlockArgs_scales(R0), R2; \
	MOVD neonBlockArgs_sums(R0), R3; \
	MOVD (neonBlockArgs_w+0)(R0), R5; \
	MOVD (neonBlockArgs_w+8)(R0), R6; \
	MOVD (neonBlockArgs_w+16)(R0), R7; \
	MOVD (neonBlockArgs_w+24)(R0), R8; \
	MOVD neonBlockArgs_blocks(R0), R9; \
	ZERO(V0)

#define END \
	ADD $neonBlockArgs_y, R0, R1; \
	VST1 [V0.S4], (R1); \
	RET

// JOIN sums the lanes of V1 to V4: lane i of V1 is the sum of row i.
#define JOIN \
	VADDP V2.S4, V1.S4, V1.S4; \
	VADDP V4.S4, V3.S4, V3.S4; \
	VADDP V3.S4, V1.S4, V1.S4

// Blocks of 32: V30 and V31 are the codes of x, V28 the scales of the rows.
#define ADD32 \
	JOIN; \
	SCVTF(1, 1); \
	VLD1R.P 4(R2), [V5.S4]; \
	FMUL(5, 28, 5); \
	VFMLA V5.S4, V1.S4, V0.S4

#define HALVES32 FCVTL(28, 28)

#define ROWQ80(w, i, sum, n) \
	VLD1.P 2(w), V28.H[i]; \
	VLD1.P 32(w), [V24.B16, V25.B16]; \
	ZERO(sum); \
	DOT16(30, 24, n); \
	DOT16(31, 25, n)

TEXT NAMEQ80(SB), NOSPLIT, $0-8
	BEGIN

loop:
	VLD1.P 32(R1), [V30.B16, V31.B16]
	ROWQ80(R5, 0, V1, 1)
	ROWQ80(R6, 1, V2, 2)
	ROWQ80(R7, 2, V3, 3)
	ROWQ80(R8, 3, V4, 4)
	HALVES32
	ADD32
	SUBS $1, R9, R9
	BNE  loop
	END

// V22 is 15 and V23 is 8, in every byte.
#define ROWQ40(w, i, sum, n) \
	VLD1.P 2(w), V28.H[i]; \
	VLD1.P 16(w), [V24.B16]; \
	VUSHR $4, V24.B16, V25.B16; \
	VAND V22.B16, V24.B16, V24.B16; \
	VSUB V23.B16, V24.B16, V24.B16; \
	VSUB V23.B16, V25.B16, V25.B16; \
	ZERO(sum); \
	DOT16(30, 24, n); \
	DOT16(31, 25, n)

TEXT NAMEQ40(SB), NOSPLIT, $0-8
	BEGIN
	VMOVI $15, V22.B16
	VMOVI $8, V23.B16

loop:
	VLD1.P 32(R1), [V30.B16, V31.B16]
	ROWQ40(R5, 0, V1, 1)
	ROWQ40(R6, 1, V2, 2)
	ROWQ40(R7, 2, V3, 3)
	ROWQ40(R8, 3, V4, 4)
	HALVES32
	ADD32
	SUBS $1, R9, R9
	BNE  loop
	END

// V23 is the table of values, R10 that of scales.
#define ROWMXFP4(w, i, sum, n) \
	MOVBU.P 1(w), R11; \
	ADD R11<<2, R10, R11; \
	VLD1 (R11), V28.S[i]; \
	VLD1.P 16(w), [V24.B16]; \
	VUSHR $4, V24.B16, V25.B16; \
	VAND V22.B16, V24.B16, V24.B16; \
	VTBL V24.B16, [V23.B16], V24.B16; \
	VTBL V25.B16, [V23.B16], V25.B16; \
	ZERO(sum); \
	DOT16(30, 24, n); \
	DOT16(31, 25, n)

TEXT NAMEMXFP4(SB), NOSPLIT, $0-8
	BEGIN
	VMOVI $15, V22.B16
	MOVD  neonBlockArgs_tables(R0), R10
	VLD1.P 16(R10), [V23.B16]

loop:
	VLD1.P 32(R1), [V30.B16, V31.B16]
	ROWMXFP4(R5, 0, V1, 1)
	ROWMXFP4(R6, 1, V2, 2)
	ROWMXFP4(R7, 2, V3, 3)
	ROWMXFP4(R8, 3, V4, 4)
	ADD32
	SUBS $1, R9, R9
	BNE  loop
	END

// 64 values of Q4_K: the lower halves of 32 bytes, then the upper ones. V24 and V25 are the bytes, V16 to V19 the
// codes, lane i of register s the scale of the lower halves.
#define PAIRQ4K(w, n, s, i) \
	VLD1.P 32(w), [V24.B16, V25.B16]; \
	VLD1.P 64(R4), [V16.B16, V17.B16, V18.B16, V19.B16]; \
	VAND V22.B16, V24.B16, V20.B16; \
	VAND V22.B16, V25.B16, V21.B16; \
	VUSHR $4, V24.B16, V24.B16; \
	VUSHR $4, V25.B16, V25.B16; \
	ZERO(V31); \
	DOT16(16, 20, 31); \
	DOT16(17, 21, 31); \
	MLAELEMENT(i, s, 31, n); \
	ZERO(V31); \
	DOT16(18, 24, 31); \
	DOT16(19, 25, 31); \
	MLAELEMENT((i+1), s, 31, n)

// A block of a row: V28 and V29 get its scales d and dmin, V10 and V11 the scales of 32 values, sum the scaled products
// and least, register l, the products of minimums and sums of codes. R13 to R16 hold constants.
#define ROWQ4K(w, i, sum, n, l) \
	VLD1.P 2(w), V28.H[i]; \
	VLD1.P 2(w), V29.H[i]; \
	MOVWU.P 4(w), R20; \
	MOVWU.P 4(w), R21; \
	MOVWU.P 4(w), R22; \
	AND R13, R20, R23; \
	AND R13, R21, R24; \
	AND R14, R22, R25; \
	LSR $4, R22, R22; \
	AND R14, R22, R22; \
	LSR $2, R20, R20; \
	AND R15, R20, R20; \
	ORR R20, R25, R25; \
	LSR $2, R21, R21; \
	AND R15, R21, R21; \
	ORR R21, R22, R22; \
	ORR R25<<32, R23, R23; \
	ORR R22<<32, R24, R24; \
	VMOV R23, V10.D[0]; \
	VMOV R24, V12.D[0]; \
	VUXTL V10.B8, V10.H8; \
	VUXTL V12.B8, V12.H8; \
	VUXTL2 V10.H8, V11.S4; \
	VUXTL V10.H4, V10.S4; \
	SMULLH(30, 12, l); \
	SMLALH2(30, 12, l); \
	MOVD R1, R4; \
	ZERO(sum); \
	PAIRQ4K(w, n, 10, 0); \
	PAIRQ4K(w, n, 10, 2); \
	PAIRQ4K(w, n, 11, 0); \
	PAIRQ4K(w, n, 11, 2)

TEXT NAMEQ4K(SB), NOSPLIT, $0-8
	BEGIN
	VMOVI $15, V22.B16
	MOVD  $0x3F3F3F3F, R13
	MOVD  $0x0F0F0F0F, R14
	MOVD  $0x30303030, R15

loop:
	// V30: the sums of 32 codes.
	VLD1.P 32(R3), [V30.H8, V31.H8]
	VADDP  V31.H8, V30.H8, V30.H8
	ROWQ4K(R5, 0, V1, 1, 6)
	ROWQ4K(R6, 1, V2, 2, 7)
	ROWQ4K(R7, 2, V3, 3, 8)
	ROWQ4K(R8, 3, V4, 4, 9)
	ADD    $256, R1, R1
	JOIN
	VADDP  V7.S4, V6.S4, V6.S4
	VADDP  V9.S4, V8.S4, V8.S4
	VADDP  V8.S4, V6.S4, V6.S4
	SCVTF(1, 1)
	SCVTF(6, 6)
	FCVTL(28, 28)
	FCVTL(29, 29)
	FMUL(29, 6, 6)
	FNEG(6, 6)
	VFMLA   V28.S4, V1.S4, V6.S4
	VLD1R.P 4(R2), [V5.S4]
	VFMLA   V6.S4, V5.S4, V0.S4
	SUBS    $1, R9, R9
	BNE     loop
	END

// Sixteen values of Q6_K: low bits in V20, high bits in V21, at their final positions. V23 is 32 in every byte.
#define PARTQ6K(code, n, s, i) \
	VORR V21.B16, V20.B16, V20.B16; \
	VSUB V23.B16, V20.B16, V20.B16; \
	ZERO(V31); \
	DOT16(code, 20, 31); \
	MLAELEMENT(i, s, 31, n)

// HIGHQ6K clears all bits of V21 except the two high bits of a value, which are at their final positions.
#define HIGHQ6K VAND V29.B16, V21.B16, V21.B16

// 128 values: V12 to V15 are the low bits, V24 and V25 the high bits, V29 is 0x30 in every byte, registers s and t the
// scales.
#define HALFQ6K(w, h, n, s, t) \
	VLD1.P 64(w), [V12.B16, V13.B16, V14.B16, V15.B16]; \
	VLD1.P 32(h), [V24.B16, V25.B16]; \
	VLD1.P 64(R4), [V16.B16, V17.B16, V18.B16, V19.B16]; \
	VAND V22.B16, V12.B16, V20.B16; VSHL $4, V24.B16, V21.B16; HIGHQ6K; PARTQ6K(16, n, s, 0); \
	VAND V22.B16, V13.B16, V20.B16; VSHL $4, V25.B16, V21.B16; HIGHQ6K; PARTQ6K(17, n, s, 1); \
	VAND V22.B16, V14.B16, V20.B16; VSHL $2, V24.B16, V21.B16; HIGHQ6K; PARTQ6K(18, n, s, 2); \
	VAND V22.B16, V15.B16, V20.B16; VSHL $2, V25.B16, V21.B16; HIGHQ6K; PARTQ6K(19, n, s, 3); \
	VLD1.P 64(R4), [V16.B16, V17.B16, V18.B16, V19.B16]; \
	VUSHR $4, V12.B16, V20.B16; VAND V29.B16, V24.B16, V21.B16; PARTQ6K(16, n, t, 0); \
	VUSHR $4, V13.B16, V20.B16; VAND V29.B16, V25.B16, V21.B16; PARTQ6K(17, n, t, 1); \
	VUSHR $4, V14.B16, V20.B16; VUSHR $2, V24.B16, V21.B16; HIGHQ6K; PARTQ6K(18, n, t, 2); \
	VUSHR $4, V15.B16, V20.B16; VUSHR $2, V25.B16, V21.B16; HIGHQ6K; PARTQ6K(19, n, t, 3)

// A block of a row: 128 bytes of low bits, 64 of high bits, 16 scales, and d.
#define ROWQ6K(w, i, sum, n) \
	ADD $128, w, R10; \
	ADD $192, w, R11; \
	VLD1.P 16(R11), [V9.B16]; \
	VLD1 (R11), V28.H[i]; \
	SXTLB(9, 6); \
	SXTLB2(9, 8); \
	SXTLH2(6, 7); \
	SXTLH(6, 6); \
	SXTLH2(8, 9); \
	SXTLH(8, 8); \
	MOVD R1, R4; \
	ZERO(sum); \
	HALFQ6K(w, R10, n, 6, 7); \
	HALFQ6K(w, R10, n, 8, 9); \
	ADD $82, w, w

TEXT NAMEQ6K(SB), NOSPLIT, $0-8
	BEGIN
	VMOVI $15, V22.B16
	VMOVI $32, V23.B16
	VMOVI $0x30, V29.B16

loop:
	ROWQ6K(R5, 0, V1, 1)
	ROWQ6K(R6, 1, V2, 2)
	ROWQ6K(R7, 2, V3, 3)
	ROWQ6K(R8, 3, V4, 4)
	ADD     $256, R1, R1
	JOIN
	SCVTF(1, 1)
	FCVTL(28, 28)
	FMUL(28, 1, 1)
	VLD1R.P 4(R2), [V5.S4]
	VFMLA   V1.S4, V5.S4, V0.S4
	SUBS    $1, R9, R9
	BNE     loop
	END
