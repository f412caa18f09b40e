//go:build !purego

#include "textflag.h"

// func prefetch(p unsafe.Pointer, lines int)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), SI
	MOVQ lines+8(FP), CX

loop:
	PREFETCHT1 (SI)
	ADDQ $64, SI
	DECQ CX
	JNZ  loop
	RET
