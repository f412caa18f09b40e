package main

// emitVectors writes the element-wise loops. Each takes whole registers only;
// the Go side pads the last elements.
//
//	AX arguments   DI dst   SI a   DX b   CX registers left
func emitVectors(e *emitter, s *isa) {
	v := &vectors{s}
	v.constants(e)
	v.loop(e, "axpy", "dst += s*a.", v.axpy)
	v.loop(e, "scaleMul", "dst = (a*s)*b.", v.scaleMul)
	v.loop(e, "widenBF16", "dst = a, from bfloat16.", v.widenBF16)
	v.loop(e, "narrowBF16", "dst = a, to bfloat16.", v.narrowBF16)
	v.loop(e, "siluMul", "dst = a/(1+exp(-a))*b.", v.siluMul)
	v.rotate(e, "rotatePairs", "rotates adjacent pairs of 64 elements of every head.", v.pairs)
	v.rotate(e, "rotateHalves", "rotates pairs of an element of the lower and one of the upper 32 of every head.",
		v.halves)
	v.softmax(e)
	v.widenE4M3(e)
	v.scaleExact(e)
	v.sum(e, "expSum", "dst = exp(a-s), added to acc.", v.expSum)
	v.sum(e, "maximum", "acc = max(acc, a); nan collects the lanes with a NaN.", v.maximum)
	v.sum(e, "reluAdd", "acc += dst*max(0, a), down a column of products.", v.reluAdd)
}

type vectors struct{ *isa }

// konst names the read-only vector of one constant.
func (v *vectors) konst(name string) string { return name + v.name + "<>(SB)" }

func (v *vectors) constants(e *emitter) {
	e.raw("")
	for _, c := range []struct {
		name string
		word uint32
	}{
		{"halfMask", 0xBFFFBFFF}, // clears the shifted sign from a half's exponent
		{"codeMask", 0x7F7F7F7F}, // an e4m3 code without its sign
		{"roundBias", 0x7FFF},
		{"quietBit", 0x40},
		{"oneBit", 1},
		{"expLow", 0xC2D00000},  // -104: exp is below half the least subnormal
		{"expHigh", 0x42B20000}, // 89: exp is above the largest float32
		{"log2e", 0x3FB8AA3B},
		{"ln2High", 0x3F318000}, // leading bits of ln 2, so that n*ln2High is exact
		{"ln2Low", 0xB95E8083},  // the rest
		{"expBias", 127},
		{"exp7", 0x39500D01}, // 1/7!, 1/6!, ...
		{"exp6", 0x3AB60B61},
		{"exp5", 0x3C088889},
		{"exp4", 0x3D2AAAAB},
		{"exp3", 0x3E2AAAAB},
		{"exp2", 0x3F000000},
		{"one", 0x3F800000},
		{"signBit", 0x80000000},
		{"minusInf", 0xFF800000},
	} {
		constant(e, v.isa, c.name+v.name, c.word)
	}
}

// loop opens a function that applies body to every register of its operands.
// body leaves its result where it belongs; sizes are the bytes it moves.
func (v *vectors) loop(e *emitter, name, doc string, body func(*emitter) step) {
	e.function(name+v.name, "vecArgs", doc)
	v.open(e)
	v.around(e, body)
	e.ret()
}

// step is how far each pointer moves per register.
type step struct{ dst, a, b int }

func (v *vectors) open(e *emitter) {
	e.op("MOVQ vecArgs_dst(AX), DI")
	e.op("MOVQ vecArgs_a(AX), SI")
	e.op("MOVQ vecArgs_b(AX), DX")
	e.op("MOVQ vecArgs_steps(AX), CX")
	e.op("VBROADCASTSS vecArgs_s(AX), %s", v.r(15))
}

func (v *vectors) around(e *emitter, body func(*emitter) step) {
	loop := e.label("loop")
	e.at(loop)
	move := body(e)
	for _, p := range []struct {
		reg string
		by  int
	}{{"DI", move.dst}, {"SI", move.a}, {"DX", move.b}} {
		if p.by != 0 {
			e.op("ADDQ $%d, %s", p.by, p.reg)
		}
	}
	e.op("DECQ CX")
	e.op("JNZ %s", loop)
}

// sum is loop with a running vector in register 14, kept in acc between calls.
func (v *vectors) sum(e *emitter, name, doc string, body func(*emitter) step) {
	e.function(name+v.name, "vecArgs", doc)
	v.open(e)
	e.op("VMOVUPS vecArgs_acc(AX), %s", v.r(14))
	v.zero(e, 13)
	if name == "maximum" && v.wide() {
		e.op("KXORW K1, K1, K1")
	}
	v.around(e, body)
	e.op("VMOVUPS %s, vecArgs_acc(AX)", v.r(14))
	if name == "maximum" {
		if v.wide() {
			e.op("KMOVW K1, R8")
		} else {
			e.op("VMOVMSKPS Y13, R8")
		}
		e.op("ORQ R8, vecArgs_nan(AX)")
	}
	e.ret()
}

// softmax writes the kernel that turns scores into weights in place: acc[0] is the
// largest score so far and becomes the largest now, acc[1] the sum of weights
// relative to it. Where all are -Inf the weights are zero.
//
//	AX arguments   DI scores   CX registers left   15 scale, then the largest   14 running   13 sums
func (v *vectors) softmax(e *emitter) {
	e.function("softmax"+v.name, "vecArgs", "dst = exp(s*dst - largest), with the largest of acc[0] and s*dst.")
	begin := func() {
		e.op("MOVQ vecArgs_dst(AX), DI")
		e.op("MOVQ vecArgs_steps(AX), CX")
	}
	around := func(body func()) {
		loop := e.label("loop")
		e.at(loop)
		body()
		e.op("ADDQ $%d, DI", v.bytes())
		e.op("DECQ CX")
		e.op("JNZ %s", loop)
	}
	begin()
	e.op("VBROADCASTSS vecArgs_s(AX), %s", v.r(15))
	e.op("VBROADCASTSS vecArgs_acc(AX), %s", v.r(14))
	around(func() {
		e.op("VMULPS (DI), %s, %s", v.r(15), v.r(0))
		e.op("VMOVUPS %s, (DI)", v.r(0))
		e.op("VMAXPS %s, %s, %s", v.r(0), v.r(14), v.r(14))
	})
	v.across(e, "VMAXPS", 14)
	e.op("VMOVSS X14, vecArgs_acc(AX)")
	e.op("VBROADCASTSS X14, %s", v.r(15))
	if v.wide() {
		e.op("VCMPPS $0, %s, Z15, K1", v.konst("minusInf"))
		e.op("VXORPS Z15, Z15, K1, Z15")
	} else {
		e.op("VCMPPS $0, %s, Y15, Y0", v.konst("minusInf"))
		e.op("VANDNPS Y15, Y0, Y15")
	}
	v.zero(e, 13)
	begin()
	around(func() {
		e.op("VMOVUPS (DI), %s", v.r(0))
		e.op("VSUBPS %s, %s, %s", v.r(15), v.r(0), v.r(0))
		v.exp(e)
		e.op("VMOVUPS %s, (DI)", v.r(0))
		e.op("VADDPS %s, %s, %s", v.r(0), v.r(13), v.r(13))
	})
	v.across(e, "VADDPS", 13)
	e.op("VMOVSS X13, 4+vecArgs_acc(AX)")
	e.ret()
}

// across combines the lanes of a register, halves first, into its first lane,
// through register 0.
func (v *vectors) across(e *emitter, op string, r int) {
	if v.wide() {
		e.op("VEXTRACTF64X4 $1, Z%d, Y0", r)
		e.op("%s Y0, Y%d, Y%d", op, r, r)
	}
	e.op("VEXTRACTF128 $1, Y%d, X0", r)
	e.op("%s X0, X%d, X%d", op, r, r)
	for _, order := range []int{0x4E, 0xB1} {
		e.op("VPERMILPS $%#x, X%d, X0", order, r)
		e.op("%s X0, X%d, X%d", op, r, r)
	}
}

// rotate writes a loop over heads that turns 64 elements of each: every element
// times its cosine, plus its partner times its sine, which has a sign.
//
//	AX arguments   DI elements   DX distance of heads   SI 64 cosines, 64 sines   CX heads left
func (v *vectors) rotate(e *emitter, name, doc string, body func(*emitter)) {
	e.function(name+v.name, "vecArgs", doc)
	e.op("MOVQ vecArgs_dst(AX), DI")
	e.op("MOVQ vecArgs_a(AX), SI")
	e.op("MOVQ vecArgs_stride(AX), DX")
	e.op("MOVQ vecArgs_steps(AX), CX")
	loop := e.label("loop")
	e.at(loop)
	body(e)
	e.op("ADDQ DX, DI")
	e.op("DECQ CX")
	e.op("JNZ %s", loop)
	e.ret()
}

// turned is register i of the elements in x with the partners in y, through
// registers to and to+1.
func (v *vectors) turned(e *emitter, i, x, y, to int) {
	e.op("VMULPS %s, %s, %s", at16("SI", i*v.bytes()), v.r(x), v.r(to))
	e.op("VMULPS %s, %s, %s", at16("SI", 256+i*v.bytes()), v.r(y), v.r(to+1))
	e.op("VADDPS %s, %s, %s", v.r(to+1), v.r(to), v.r(to))
	e.op("VMOVUPS %s, %s", v.r(to), at16("DI", i*v.bytes()))
}

func (v *vectors) pairs(e *emitter) {
	for i := range 64 / v.lanes {
		e.op("VMOVUPS %s, %s", at16("DI", i*v.bytes()), v.r(0))
		e.op("VPERMILPS $0xB1, %s, %s", v.r(0), v.r(1))
		v.turned(e, i, 0, 1, 2)
	}
}

func (v *vectors) halves(e *emitter) {
	half := 32 / v.lanes
	for i := range half {
		e.op("VMOVUPS %s, %s", at16("DI", i*v.bytes()), v.r(0))
		e.op("VMOVUPS %s, %s", at16("DI", (half+i)*v.bytes()), v.r(1))
		v.turned(e, i, 0, 1, 2)
		v.turned(e, half+i, 1, 0, 4)
	}
}

func (v *vectors) axpy(e *emitter) step {
	e.op("VMOVUPS (DI), %s", v.r(0))
	e.op("VFMADD231PS (SI), %s, %s", v.r(15), v.r(0))
	e.op("VMOVUPS %s, (DI)", v.r(0))
	return step{dst: v.bytes(), a: v.bytes()}
}

func (v *vectors) scaleMul(e *emitter) step {
	e.op("VMULPS (SI), %s, %s", v.r(15), v.r(0))
	e.op("VMULPS (DX), %s, %s", v.r(0), v.r(0))
	e.op("VMOVUPS %s, (DI)", v.r(0))
	return step{dst: v.bytes(), a: v.bytes(), b: v.bytes()}
}

func (v *vectors) widenBF16(e *emitter) step {
	e.op("VPMOVZXWD (SI), %s", v.r(0))
	e.op("VPSLLD $16, %s, %s", v.r(0), v.r(0))
	e.op("VMOVUPS %s, (DI)", v.r(0))
	return step{dst: v.bytes(), a: 2 * v.lanes}
}

// narrowBF16 adds half a unit less one plus the last kept bit, so that the
// carry rounds to nearest even; NaN takes its upper half and the quiet bit.
func (v *vectors) narrowBF16(e *emitter) step {
	e.op("VMOVUPS (SI), %s", v.r(0))
	e.op("VPSRLD $16, %s, %s", v.r(0), v.r(1))
	v.and(e, v.konst("oneBit"), 1, 2)
	e.op("VPADDD %s, %s, %s", v.konst("roundBias"), v.r(2), v.r(2))
	e.op("VPADDD %s, %s, %s", v.r(0), v.r(2), v.r(2))
	e.op("VPSRLD $16, %s, %s", v.r(2), v.r(2))
	if v.wide() {
		e.op("VCMPPS $3, Z0, Z0, K1")
		e.op("VPORD %s, Z1, K1, Z2", v.konst("quietBit"))
		e.op("VPMOVDW Z2, (DI)")
	} else {
		e.op("VCMPPS $3, Y0, Y0, Y3")
		e.op("VPOR %s, Y1, Y1", v.konst("quietBit"))
		e.op("VBLENDVPS Y3, Y1, Y2, Y2")
		e.op("VPACKUSDW Y2, Y2, Y2")
		e.op("VPERMQ $8, Y2, Y2")
		e.op("VMOVUPS X2, (DI)")
	}
	return step{dst: 2 * v.lanes, a: v.bytes()}
}

func (v *vectors) expSum(e *emitter) step {
	e.op("VMOVUPS (SI), %s", v.r(0))
	e.op("VSUBPS %s, %s, %s", v.r(15), v.r(0), v.r(0))
	v.exp(e)
	e.op("VMOVUPS %s, (DI)", v.r(0))
	e.op("VADDPS %s, %s, %s", v.r(0), v.r(14), v.r(14))
	return step{dst: v.bytes(), a: v.bytes()}
}

func (v *vectors) siluMul(e *emitter) step {
	e.op("VMOVUPS (SI), %s", v.r(5))
	v.xor(e, v.konst("signBit"), 5, 0)
	v.exp(e)
	e.op("VADDPS %s, %s, %s", v.konst("one"), v.r(0), v.r(0))
	e.op("VDIVPS %s, %s, %s", v.r(0), v.r(5), v.r(0))
	e.op("VMULPS (DX), %s, %s", v.r(0), v.r(0))
	e.op("VMOVUPS %s, (DI)", v.r(0))
	return step{dst: v.bytes(), a: v.bytes(), b: v.bytes()}
}

func (v *vectors) xor(e *emitter, c string, b, a int) {
	mnemonic := "VPXOR"
	if v.wide() {
		mnemonic = "VPXORD"
	}
	e.op("%s %s, %s, %s", mnemonic, c, v.r(b), v.r(a))
}

// exp replaces register 0 by its exponential, using 1 to 4: x = n*ln 2 + r with
// |r| <= ln 2 / 2, a Taylor polynomial for exp(r) whose first dropped term is
// below 1/10 unit, and 2^n. Results that round to zero are set to zero
// beforehand, because producing them by underflow is slow. The order of the
// operands of min keeps NaN.
func (v *vectors) exp(e *emitter) {
	z, n, p, t, low := v.r(0), v.r(1), v.r(2), v.r(3), v.r(4)
	e.op("VMOVUPS %s, %s", v.konst("expHigh"), p)
	e.op("VMINPS %s, %s, %s", z, p, z)
	if v.wide() {
		e.op("VCMPPS $1, %s, %s, K2", v.konst("expLow"), z)
		e.op("VXORPS %s, %s, K2, %s", z, z, z)
	} else {
		e.op("VCMPPS $1, %s, %s, %s", v.konst("expLow"), z, low)
		e.op("VANDNPS %s, %s, %s", z, low, z)
	}
	e.op("VMULPS %s, %s, %s", v.konst("log2e"), z, n)
	if v.wide() {
		e.op("VRNDSCALEPS $8, %s, %s", n, n)
	} else {
		e.op("VROUNDPS $8, %s, %s", n, n)
	}
	e.op("VFNMADD231PS %s, %s, %s", v.konst("ln2High"), n, z)
	e.op("VFNMADD231PS %s, %s, %s", v.konst("ln2Low"), n, z)
	e.op("VMOVUPS %s, %s", v.konst("exp7"), p)
	for _, c := range []string{"exp6", "exp5", "exp4", "exp3", "exp2", "one", "one"} {
		e.op("VFMADD213PS %s, %s, %s", v.konst(c), z, p)
	}
	if v.wide() {
		e.op("VSCALEFPS %s, %s, %s", n, p, z)
		e.op("VXORPS %s, %s, K2, %s", z, z, z)
		return
	}
	// 2^n in two factors, so that neither leaves the normal range.
	e.op("VCVTPS2DQ %s, %s", n, n)
	e.op("VPSRAD $1, %s, %s", n, t)
	e.op("VPSUBD %s, %s, %s", t, n, n)
	for _, f := range []string{t, n} {
		e.op("VPADDD %s, %s, %s", v.konst("expBias"), f, f)
		e.op("VPSLLD $23, %s, %s", f, f)
		e.op("VMULPS %s, %s, %s", f, p, p)
	}
	e.op("VANDNPS %s, %s, %s", p, low, z)
}

func (v *vectors) maximum(e *emitter) step {
	e.op("VMOVUPS (SI), %s", v.r(0))
	e.op("VMAXPS %s, %s, %s", v.r(0), v.r(14), v.r(14))
	if v.wide() {
		e.op("VCMPPS $3, Z0, Z0, K2")
		e.op("KORW K2, K1, K1")
	} else {
		e.op("VCMPPS $3, Y0, Y0, Y0")
		e.op("VORPS Y0, Y13, Y13")
	}
	return step{a: v.bytes()}
}

// reluAdd sums down one column of lanes: a advances by one row of a block of 64
// products, the factor by one element of dst.
func (v *vectors) reluAdd(e *emitter) step {
	e.op("VMAXPS (SI), %s, %s", v.r(13), v.r(0))
	e.op("VBROADCASTSS (DI), %s", v.r(1))
	e.op("VFMADD231PS %s, %s, %s", v.r(0), v.r(1), v.r(14))
	return step{dst: 4, a: 4 * 64}
}
