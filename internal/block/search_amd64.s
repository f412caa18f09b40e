//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// The functions of search.go for eight searches in one register, with the operations of the Go code in the same order.

DATA wholeAt<>+0(SB)/4, $0x4B400000 // 3 << 22
GLOBL wholeAt<>(SB), RODATA, $4

DATA most<>+0(SB)/4, $0x41F80000 // 31
GLOBL most<>(SB), RODATA, $4

DATA least<>+0(SB)/4, $0xC2000000 // -32
GLOBL least<>(SB), RODATA, $4

// func affineSumsAVX2(a *lanes)
TEXT ·affineSumsAVX2(SB), NOSPLIT, $0-8
	MOVQ         a+0(FP), AX
	VMOVUPS      lanes_first(AX), Y0
	VMOVUPS      lanes_top(AX), Y1
	VBROADCASTSS wholeAt<>(SB), Y2
	VXORPS       Y3, Y3, Y3
	VXORPS       Y4, Y4, Y4
	VXORPS       Y5, Y5, Y5
	MOVQ         AX, BX
	MOVQ         $32, CX

loop:
	VMULPS  lanes_above(BX), Y0, Y6
	VADDPS  Y2, Y6, Y6
	VSUBPS  Y2, Y6, Y6
	VMINPS  Y6, Y1, Y6
	VMOVUPS Y6, lanes_codes(BX)
	VMULPS  lanes_weights(BX), Y6, Y7
	VADDPS  Y7, Y3, Y3
	VMULPS  Y6, Y7, Y8
	VADDPS  Y8, Y4, Y4
	VMULPS  lanes_x(BX), Y7, Y9
	VADDPS  Y9, Y5, Y5
	ADDQ    $32, BX
	DECQ    CX
	JNE     loop
	VMOVUPS Y3, lanes_wq(AX)
	VMOVUPS Y4, lanes_wqq(AX)
	VMOVUPS Y5, lanes_wqx(AX)
	VZEROUPPER
	RET

// func affineErrorsAVX2(a *lanes)
TEXT ·affineErrorsAVX2(SB), NOSPLIT, $0-8
	MOVQ    a+0(FP), AX
	VMOVUPS lanes_s(AX), Y0
	VMOVUPS lanes_m(AX), Y1
	VXORPS  Y2, Y2, Y2
	MOVQ    AX, BX
	MOVQ    $32, CX

loop:
	VMULPS  lanes_codes(BX), Y0, Y3
	VADDPS  Y1, Y3, Y3
	VSUBPS  lanes_x(BX), Y3, Y3
	VMULPS  lanes_weights(BX), Y3, Y4
	VMULPS  Y3, Y4, Y4
	VADDPS  Y4, Y2, Y2
	ADDQ    $32, BX
	DECQ    CX
	JNE     loop
	VMOVUPS Y2, lanes_e(AX)
	VZEROUPPER
	RET

// func symmetricSumsAVX2(a *lanes)
TEXT ·symmetricSumsAVX2(SB), NOSPLIT, $0-8
	MOVQ         a+0(FP), AX
	VMOVUPS      lanes_first(AX), Y0
	VBROADCASTSS most<>(SB), Y1
	VBROADCASTSS wholeAt<>(SB), Y2
	VBROADCASTSS least<>(SB), Y3
	VXORPS       Y4, Y4, Y4
	VXORPS       Y5, Y5, Y5
	MOVQ         AX, BX
	MOVQ         $16, CX

loop:
	VMOVUPS lanes_x(BX), Y6
	VMULPS  Y6, Y0, Y7
	VADDPS  Y2, Y7, Y7
	VSUBPS  Y2, Y7, Y7
	VMINPS  Y7, Y1, Y7
	VMAXPS  Y7, Y3, Y7
	VMULPS  lanes_weights(BX), Y7, Y8
	VMULPS  Y6, Y8, Y9
	VADDPS  Y9, Y5, Y5
	VMULPS  Y7, Y8, Y8
	VADDPS  Y8, Y4, Y4
	ADDQ    $32, BX
	DECQ    CX
	JNE     loop
	VMOVUPS Y4, lanes_wqq(AX)
	VMOVUPS Y5, lanes_wqx(AX)
	VZEROUPPER
	RET
