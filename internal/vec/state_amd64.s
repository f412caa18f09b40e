//go:build !purego

#include "textflag.h"

// func enabledState() uint64
TEXT ·enabledState(SB), NOSPLIT, $0-8
	XORL CX, CX
	XGETBV
	SHLQ $32, DX
	ORQ  DX, AX
	MOVQ AX, ret+0(FP)
	RET
