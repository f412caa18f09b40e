//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// Products of float32 rows with float32, bfloat16 or float16 weights, and sums of scaled rows. One register of four
// sums belongs to each element of a result; it takes k in ascending steps of 8 and is folded as (0+1)+(2+3), so that
// all shapes give bitwise equal results. Instructions that Go's assembler does not support are written as words; the
// arguments of their macros are register numbers, with the destination last.

#define FADDP(m, n, d) WORD $(0x6E20D400 | (m)<<16 | (n)<<5 | (d))
#define FCVTL(n, d) WORD $(0x0E217800 | (n)<<5 | (d))
#define FCVTL2(n, d) WORD $(0x4E217800 | (n)<<5 | (d))

// Converts eight weights to float32 in V28 and V29. V26 is zero.
#define LOADF32(p) \
	VLD1.P 32(p), [V28.S4, V29.S4]

#define LOADBF16(p) \
	VLD1.P 16(p), [V27.H8]; \
	VZIP1 V27.H8, V26.H8, V28.H8; \
	VZIP2 V27.H8, V26.H8, V29.H8

#define LOADF16(p) \
	VLD1.P 16(p), [V27.H8]; \
	FCVTL(27, 28); \
	FCVTL2(27, 29)

#define TIMES(x0, x1, sum) \
	VFMLA V28.S4, x0.S4, sum.S4; \
	VFMLA V29.S4, x1.S4, sum.S4

#define ZERO(v) VEOR v.B16, v.B16, v.B16

#define STEP1x8(LOAD, p0, p1, p2, p3, p4, p5, p6, p7) \
	VLD1.P 32(R1), [V30.S4, V31.S4]; \
	LOAD(p0); TIMES(V30, V31, V0); \
	LOAD(p1); TIMES(V30, V31, V1); \
	LOAD(p2); TIMES(V30, V31, V2); \
	LOAD(p3); TIMES(V30, V31, V3); \
	LOAD(p4); TIMES(V30, V31, V4); \
	LOAD(p5); TIMES(V30, V31, V5); \
	LOAD(p6); TIMES(V30, V31, V6); \
	LOAD(p7); TIMES(V30, V31, V7)

// One row of x by eight rows of weights.
#define DOT1x8(LOAD) \
	MOVD a+0(FP), R0; \
	MOVD neonArgs_steps(R0), R10; \
	MOVD neonArgs_x(R0), R1; \
	MOVD (neonArgs_w+0)(R0), R2; \
	MOVD (neonArgs_w+8)(R0), R3; \
	MOVD (neonArgs_w+16)(R0), R4; \
	MOVD (neonArgs_w+24)(R0), R5; \
	MOVD (neonArgs_w+32)(R0), R6; \
	MOVD (neonArgs_w+40)(R0), R7; \
	MOVD (neonArgs_w+48)(R0), R8; \
	MOVD (neonArgs_w+56)(R0), R9; \
	ZERO(V0); ZERO(V1); ZERO(V2); ZERO(V3); ZERO(V4); ZERO(V5); ZERO(V6); ZERO(V7); ZERO(V26); \
	CBZ R10, tail; \
loop: \
	STEP1x8(LOAD, R2, R3, R4, R5, R6, R7, R8, R9); \
	SUBS $1, R10, R10; \
	BNE loop; \
tail: \
	MOVD neonArgs_tail(R0), R10; \
	CBZ R10, fold; \
	ADD $neonArgs_xTail, R0, R1; \
	ADD $neonArgs_wTail, R0, R2; \
	STEP1x8(LOADF32, R2, R2, R2, R2, R2, R2, R2, R2); \
fold: \
	FADDP(1, 0, 0); FADDP(3, 2, 2); FADDP(2, 0, 0); \
	FADDP(5, 4, 4); FADDP(7, 6, 6); FADDP(6, 4, 1); \
	ADD $neonArgs_y, R0, R1; \
	VST1 [V0.S4, V1.S4], (R1); \
	RET

// func neonF321x8(a *neonArgs)
TEXT ·neonF321x8(SB), NOSPLIT, $0-8
	DOT1x8(LOADF32)

// func neonBF161x8(a *neonArgs)
TEXT ·neonBF161x8(SB), NOSPLIT, $0-8
	DOT1x8(LOADBF16)

// func neonF161x8(a *neonArgs)
TEXT ·neonF161x8(SB), NOSPLIT, $0-8
	DOT1x8(LOADF16)

#define BY4(s0, s1, s2, s3) \
	TIMES(V16, V17, s0); \
	TIMES(V18, V19, s1); \
	TIMES(V20, V21, s2); \
	TIMES(V22, V23, s3)

// Sums of row i of x and row j of the weights are in V(4i+j).
#define STEP4x4(LOAD, x0, x1, x2, x3, p0, p1, p2, p3) \
	VLD1.P 32(x0), [V16.S4, V17.S4]; \
	VLD1.P 32(x1), [V18.S4, V19.S4]; \
	VLD1.P 32(x2), [V20.S4, V21.S4]; \
	VLD1.P 32(x3), [V22.S4, V23.S4]; \
	LOAD(p0); BY4(V0, V4, V8, V12); \
	LOAD(p1); BY4(V1, V5, V9, V13); \
	LOAD(p2); BY4(V2, V6, V10, V14); \
	LOAD(p3); BY4(V3, V7, V11, V15)

// Four rows of x by four rows of weights.
#define DOT4x4(LOAD) \
	MOVD a+0(FP), R0; \
	MOVD neonArgs_steps(R0), R10; \
	MOVD (neonArgs_x+0)(R0), R1; \
	MOVD (neonArgs_x+8)(R0), R2; \
	MOVD (neonArgs_x+16)(R0), R3; \
	MOVD (neonArgs_x+24)(R0), R4; \
	MOVD (neonArgs_w+0)(R0), R5; \
	MOVD (neonArgs_w+8)(R0), R6; \
	MOVD (neonArgs_w+16)(R0), R7; \
	MOVD (neonArgs_w+24)(R0), R8; \
	ZERO(V0); ZERO(V1); ZERO(V2); ZERO(V3); ZERO(V4); ZERO(V5); ZERO(V6); ZERO(V7); \
	ZERO(V8); ZERO(V9); ZERO(V10); ZERO(V11); ZERO(V12); ZERO(V13); ZERO(V14); ZERO(V15); ZERO(V26); \
	CBZ R10, tail; \
loop: \
	STEP4x4(LOAD, R1, R2, R3, R4, R5, R6, R7, R8); \
	SUBS $1, R10, R10; \
	BNE loop; \
tail: \
	MOVD neonArgs_tail(R0), R10; \
	CBZ R10, fold; \
	ADD $neonArgs_xTail, R0, R1; \
	ADD $neonArgs_wTail, R0, R5; \
	STEP4x4(LOADF32, R1, R1, R1, R1, R5, R5, R5, R5); \
fold: \
	FADDP(1, 0, 0); FADDP(3, 2, 2); FADDP(2, 0, 0); \
	FADDP(5, 4, 4); FADDP(7, 6, 6); FADDP(6, 4, 1); \
	FADDP(9, 8, 8); FADDP(11, 10, 10); FADDP(10, 8, 2); \
	FADDP(13, 12, 12); FADDP(15, 14, 14); FADDP(14, 12, 3); \
	ADD $neonArgs_y, R0, R1; \
	VST1 [V0.S4, V1.S4, V2.S4, V3.S4], (R1); \
	RET

// func neonF324x4(a *neonArgs)
TEXT ·neonF324x4(SB), NOSPLIT, $0-8
	DOT4x4(LOADF32)

// func neonBF164x4(a *neonArgs)
TEXT ·neonBF164x4(SB), NOSPLIT, $0-8
	DOT4x4(LOADBF16)

// func neonF164x4(a *neonArgs)
TEXT ·neonF164x4(SB), NOSPLIT, $0-8
	DOT4x4(LOADF16)

// func neonF321x1(a *neonArgs)
TEXT ·neonF321x1(SB), NOSPLIT, $0-8
	MOVD a+0(FP), R0
	MOVD neonArgs_steps(R0), R10
	MOVD neonArgs_x(R0), R1
	MOVD neonArgs_w(R0), R2
	ZERO(V0)
	CBZ  R10, tail

loop:
	VLD1.P 32(R1), [V30.S4, V31.S4]
	LOADF32(R2)
	TIMES(V30, V31, V0)
	SUBS   $1, R10, R10
	BNE    loop

tail:
	MOVD neonArgs_tail(R0), R10
	CBZ  R10, fold
	ADD  $neonArgs_xTail, R0, R1
	ADD  $neonArgs_wTail, R0, R2
	VLD1 (R1), [V30.S4, V31.S4]
	LOADF32(R2)
	TIMES(V30, V31, V0)

fold:
	FADDP(0, 0, 0)
	FADDP(0, 0, 0)
	FMOVS F0, neonArgs_y(R0)
	RET

#define ADDROW(w0, w1, w2, w3) \
	VFMLA w0.S4, V31.S4, V0.S4; \
	VFMLA w1.S4, V31.S4, V1.S4; \
	VFMLA w2.S4, V31.S4, V2.S4; \
	VFMLA w3.S4, V31.S4, V3.S4

#define ACCUMULATE(LOADROW) \
	MOVD a+0(FP), R0; \
	MOVD neonSumArgs_y(R0), R1; \
	MOVD neonSumArgs_x(R0), R2; \
	MOVD neonSumArgs_w(R0), R3; \
	MOVD neonSumArgs_ldw(R0), R4; \
	MOVD neonSumArgs_d(R0), R5; \
	ZERO(V26); \
	VLD1 (R1), [V0.S4, V1.S4, V2.S4, V3.S4]; \
loop: \
	VLD1R.P 4(R2), [V31.S4]; \
	LOADROW; \
	ADDROW(V16, V17, V18, V19); \
	ADD R4, R3, R3; \
	SUBS $1, R5, R5; \
	BNE loop; \
	VST1 [V0.S4, V1.S4, V2.S4, V3.S4], (R1); \
	RET

#define ROWF32 VLD1 (R3), [V16.S4, V17.S4, V18.S4, V19.S4]

#define ROWBF16 \
	VLD1 (R3), [V20.H8, V21.H8]; \
	VZIP1 V20.H8, V26.H8, V16.H8; \
	VZIP2 V20.H8, V26.H8, V17.H8; \
	VZIP1 V21.H8, V26.H8, V18.H8; \
	VZIP2 V21.H8, V26.H8, V19.H8

// func neonSumF32(a *neonSumArgs)
TEXT ·neonSumF32(SB), NOSPLIT, $0-8
	ACCUMULATE(ROWF32)

// func neonSumBF16(a *neonSumArgs)
TEXT ·neonSumBF16(SB), NOSPLIT, $0-8
	ACCUMULATE(ROWBF16)
