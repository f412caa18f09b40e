package main

// emitVectors writes the element-wise loops. Each takes whole registers only;
// the Go side pads the last elements.
//
//	AX arguments   DI dst   SI a   DX b   CX registers left
func emitVectors(e *emitter) {
	v := &vectors{e}
	v.constants()
	v.elements("axpy", "dst += s*a.", v.axpy)
	v.elements("scaleMul", "dst = (a*s)*b.", v.scaleMul)
	v.elements("widenBF16", "dst = a, from bfloat16.", v.widenBF16)
	v.elements("narrowBF16", "dst = a, to bfloat16.", v.narrowBF16)
	v.elements("siluMul", "dst = a/(1+exp(-a))*b.", v.siluMul)
	v.rotate("rotatePairs", "rotates adjacent pairs of 64 elements of every head.", v.pairs)
	v.rotate("rotateHalves", "rotates pairs of an element of the lower and one of the upper 32 of every head.",
		v.halves)
	v.softmax()
	v.widenE4M3()
	v.scaleExact()
	v.sum("expSum", "dst = exp(a-s), added to acc.", v.expSum)
	v.sum("maximum", "acc = max(acc, a); nan collects the lanes with a NaN.", v.maximum)
	v.sum("reluAdd", "acc += dst*max(0, a), down a column of products.", v.reluAdd)
}

type vectors struct{ *emitter }

// konst returns the name of the read-only vector of a constant.
func (v *vectors) konst(name string) string { return name + v.name + "<>(SB)" }

func (v *vectors) constants() {
	v.raw("")
	for _, c := range []struct {
		name string
		word uint32
	}{
		{"halfMask", 0xBFFFBFFF}, // clears the shifted sign from a half's exponent
		{"codeMask", 0x7F7F7F7F}, // an e4m3 code without its sign
		{"roundBias", 0x7FFF},
		{"quietBit", 0x40},
		{"oneBit", 1},
		{"expLow", 0xC2D00000},  // -104: exp is below half of the smallest subnormal
		{"expHigh", 0x42B20000}, // 89: exp is above the largest float32
		{"log2e", 0x3FB8AA3B},
		{"ln2High", 0x3F318000}, // leading bits of ln 2, so that n*ln2High is exact
		{"ln2Low", 0xB95E8083},  // remaining bits of ln 2
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
		v.constant(c.name+v.name, c.word)
	}
}

// elements writes a function that applies body to every register of its operands. body writes its result to its
// destination; the returned step has the bytes by which each pointer advances.
func (v *vectors) elements(name, doc string, body func() step) {
	v.function(name+v.name, "vecArgs", doc)
	v.open()
	v.around(body)
	v.ret()
}

// step holds the number of bytes by which each pointer advances per register.
type step struct{ dst, a, b int }

func (v *vectors) open() {
	v.op(`
		MOVQ vecArgs_dst(AX), DI
		MOVQ vecArgs_a(AX), SI
		MOVQ vecArgs_b(AX), DX
		MOVQ vecArgs_steps(AX), CX
		VBROADCASTSS vecArgs_s(AX), V15`)
}

func (v *vectors) around(body func() step) {
	v.loop("loop", "CX", func() {
		move := body()
		for _, p := range []struct {
			reg string
			by  int
		}{{"DI", move.dst}, {"SI", move.a}, {"DX", move.b}} {
			if p.by != 0 {
				v.op("ADDQ $%d, %s", p.by, p.reg)
			}
		}
	})
}

// sum writes a function like elements with a running vector in register 14, which is kept in acc between calls.
func (v *vectors) sum(name, doc string, body func() step) {
	v.function(name+v.name, "vecArgs", doc)
	v.open()
	v.op("VMOVUPS vecArgs_acc(AX), V14")
	v.zero(13)
	if name == "maximum" && v.wide() {
		v.op("KXORW K1, K1, K1")
	}
	v.around(body)
	v.op("VMOVUPS V14, vecArgs_acc(AX)")
	if name == "maximum" {
		if v.wide() {
			v.op("KMOVW K1, R8")
		} else {
			v.op("VMOVMSKPS Y13, R8")
		}
		v.op("ORQ R8, vecArgs_nan(AX)")
	}
	v.ret()
}

// softmax writes the kernel that turns scores into weights in place: acc[0] is the
// largest score so far and becomes the largest now, acc[1] the sum of weights
// relative to it. Where all are -Inf the weights are zero.
//
//	AX arguments   DI scores   CX registers left   15 scale, then the largest   14 running   13 sums
func (v *vectors) softmax() {
	v.function("softmax"+v.name, "vecArgs", "dst = exp(s*dst - largest), with the largest of acc[0] and s*dst.")
	begin := func() {
		v.op(`
			MOVQ vecArgs_dst(AX), DI
			MOVQ vecArgs_steps(AX), CX`)
	}
	around := func(body func()) {
		v.loop("loop", "CX", func() {
			body()
			v.op("ADDQ $%d, DI", v.bytes())
		})
	}
	begin()
	v.op(`
		VBROADCASTSS vecArgs_s(AX), V15
		VBROADCASTSS vecArgs_acc(AX), V14`)
	around(func() {
		v.op(`
			VMULPS (DI), V15, V0
			VMOVUPS V0, (DI)
			VMAXPS V0, V14, V14`)
	})
	v.across("VMAXPS", 14)
	v.op(`
		VMOVSS X14, vecArgs_acc(AX)
		VBROADCASTSS X14, V15`)
	if v.wide() {
		v.op(`
			VCMPPS $0, %s, Z15, K1
			VXORPS Z15, Z15, K1, Z15`, v.konst("minusInf"))
	} else {
		v.op(`
			VCMPPS $0, %s, Y15, Y0
			VANDNPS Y15, Y0, Y15`, v.konst("minusInf"))
	}
	v.zero(13)
	begin()
	around(func() {
		v.op(`
			VMOVUPS (DI), V0
			VSUBPS V15, V0, V0`)
		v.exp()
		v.op(`
			VMOVUPS V0, (DI)
			VADDPS V0, V13, V13`)
	})
	v.across("VADDPS", 13)
	v.op("VMOVSS X13, 4+vecArgs_acc(AX)")
	v.ret()
}

// across combines the lanes of register r into its first lane: it applies op to the upper and the lower half until one
// lane is left. It overwrites register 0.
func (v *vectors) across(op string, r int) {
	if v.wide() {
		v.list(`
			VEXTRACTF64X4 $1, Z{r}, Y0
			{op} Y0, Y{r}, Y{r}`, "r", r, "op", op)
	}
	v.list(`
		VEXTRACTF128 $1, Y{r}, X0
		{op} X0, X{r}, X{r}`, "r", r, "op", op)
	for _, order := range []int{0x4E, 0xB1} {
		v.op("VPERMILPS $%#x, X%d, X0", order, r)
		v.op("%s X0, X%d, X%d", op, r, r)
	}
}

// rotate writes a loop over heads that turns 64 elements of each: every element
// times its cosine, plus its partner times its sine, which has a sign.
//
//	AX arguments   DI elements   DX distance of heads   SI 64 cosines, 64 sines   CX heads left
func (v *vectors) rotate(name, doc string, body func()) {
	v.function(name+v.name, "vecArgs", doc)
	v.op(`
		MOVQ vecArgs_dst(AX), DI
		MOVQ vecArgs_a(AX), SI
		MOVQ vecArgs_stride(AX), DX
		MOVQ vecArgs_steps(AX), CX`)
	v.loop("loop", "CX", func() {
		body()
		v.op("ADDQ DX, DI")
	})
	v.ret()
}

// turned computes register i of the rotated elements from the elements in x and their partners in y. It overwrites
// registers to and to+1.
func (v *vectors) turned(i, x, y, to int) {
	v.op("VMULPS %d(SI), V%d, V%d", i*v.bytes(), x, to)
	v.op("VMULPS %d(SI), V%d, V%d", 256+i*v.bytes(), y, to+1)
	v.op("VADDPS V%d, V%d, V%d", to+1, to, to)
	v.op("VMOVUPS V%d, %d(DI)", to, i*v.bytes())
}

func (v *vectors) pairs() {
	for i := range 64 / v.lanes {
		v.op(`
			VMOVUPS %d(DI), V0
			VPERMILPS $0xB1, V0, V1`, i*v.bytes())
		v.turned(i, 0, 1, 2)
	}
}

func (v *vectors) halves() {
	half := 32 / v.lanes
	for i := range half {
		v.op(`
			VMOVUPS %d(DI), V0
			VMOVUPS %d(DI), V1`, i*v.bytes(), (half+i)*v.bytes())
		v.turned(i, 0, 1, 2)
		v.turned(half+i, 1, 0, 4)
	}
}

func (v *vectors) axpy() step {
	v.op(`
		VMOVUPS (DI), V0
		VFMADD231PS (SI), V15, V0
		VMOVUPS V0, (DI)`)
	return step{dst: v.bytes(), a: v.bytes()}
}

func (v *vectors) scaleMul() step {
	v.op(`
		VMULPS (SI), V15, V0
		VMULPS (DX), V0, V0
		VMOVUPS V0, (DI)`)
	return step{dst: v.bytes(), a: v.bytes(), b: v.bytes()}
}

func (v *vectors) widenBF16() step {
	v.op(`
		VPMOVZXWD (SI), V0
		VPSLLD $16, V0, V0
		VMOVUPS V0, (DI)`)
	return step{dst: v.bytes(), a: 2 * v.lanes}
}

// narrowBF16 adds half a unit less one plus the last kept bit, so that the carry rounds to nearest even. NaN becomes
// its upper half with the quiet bit set.
func (v *vectors) narrowBF16() step {
	v.op(`
		VMOVUPS (SI), V0
		VPSRLD $16, V0, V1`)
	v.and(v.konst("oneBit"), 1, 2)
	v.op(`
		VPADDD %s, V2, V2
		VPADDD V0, V2, V2
		VPSRLD $16, V2, V2`, v.konst("roundBias"))
	if v.wide() {
		v.op(`
			VCMPPS $3, Z0, Z0, K1
			VPORD %s, Z1, K1, Z2
			VPMOVDW Z2, (DI)`, v.konst("quietBit"))
	} else {
		v.op(`
			VCMPPS $3, Y0, Y0, Y3
			VPOR %s, Y1, Y1
			VBLENDVPS Y3, Y1, Y2, Y2
			VPACKUSDW Y2, Y2, Y2
			VPERMQ $8, Y2, Y2
			VMOVUPS X2, (DI)`, v.konst("quietBit"))
	}
	return step{dst: 2 * v.lanes, a: v.bytes()}
}

func (v *vectors) expSum() step {
	v.op(`
		VMOVUPS (SI), V0
		VSUBPS V15, V0, V0`)
	v.exp()
	v.op(`
		VMOVUPS V0, (DI)
		VADDPS V0, V14, V14`)
	return step{dst: v.bytes(), a: v.bytes()}
}

func (v *vectors) siluMul() step {
	v.op("VMOVUPS (SI), V5")
	v.xor(v.konst("signBit"), 5, 0)
	v.exp()
	v.op(`
		VADDPS %s, V0, V0
		VDIVPS V0, V5, V0
		VMULPS (DX), V0, V0
		VMOVUPS V0, (DI)`, v.konst("one"))
	return step{dst: v.bytes(), a: v.bytes(), b: v.bytes()}
}

func (v *vectors) xor(c string, b, a int) {
	mnemonic := "VPXOR"
	if v.wide() {
		mnemonic = "VPXORD"
	}
	v.op("%s %s, V%d, V%d", mnemonic, c, b, a)
}

// exp replaces register 0 by its exponential, using 1 to 4: x = n*ln 2 + r with
// |r| <= ln 2 / 2, a Taylor polynomial for exp(r) whose first dropped term is
// below 1/10 unit, and 2^n. Results that round to zero are set to zero
// beforehand, because producing them by underflow is slow. The order of the
// operands of min keeps NaN.
func (v *vectors) exp() { v.expFrom("expLow") }

// expFrom is exp with zero for numbers below a constant.
func (v *vectors) expFrom(least string) {
	const z, n, p, t, low = "V0", "V1", "V2", "V3", "V4"
	v.op("VMOVUPS %s, %s", v.konst("expHigh"), p)
	v.op("VMINPS %s, %s, %s", z, p, z)
	if v.wide() {
		v.op("VCMPPS $1, %s, %s, K2", v.konst(least), z)
		v.op("VXORPS %s, %s, K2, %s", z, z, z)
	} else {
		v.op("VCMPPS $1, %s, %s, %s", v.konst(least), z, low)
		v.op("VANDNPS %s, %s, %s", z, low, z)
	}
	v.op("VMULPS %s, %s, %s", v.konst("log2e"), z, n)
	if v.wide() {
		v.op("VRNDSCALEPS $8, %s, %s", n, n)
	} else {
		v.op("VROUNDPS $8, %s, %s", n, n)
	}
	v.op("VFNMADD231PS %s, %s, %s", v.konst("ln2High"), n, z)
	v.op("VFNMADD231PS %s, %s, %s", v.konst("ln2Low"), n, z)
	v.op("VMOVUPS %s, %s", v.konst("exp7"), p)
	for _, c := range []string{"exp6", "exp5", "exp4", "exp3", "exp2", "one", "one"} {
		v.op("VFMADD213PS %s, %s, %s", v.konst(c), z, p)
	}
	if v.wide() {
		v.list(`
			VSCALEFPS {n}, {p}, {z}
			VXORPS {z}, {z}, K2, {z}`, "n", n, "p", p, "z", z)
		return
	}
	// 2^n is split into two factors, so that neither leaves the normal range.
	v.list(`
		VCVTPS2DQ {n}, {n}
		VPSRAD $1, {n}, {t}
		VPSUBD {t}, {n}, {n}`, "n", n, "t", t)
	for _, f := range []string{t, n} {
		v.op("VPADDD %s, %s, %s", v.konst("expBias"), f, f)
		v.list(`
			VPSLLD $23, {f}, {f}
			VMULPS {f}, {p}, {p}`, "f", f, "p", p)
	}
	v.op("VANDNPS %s, %s, %s", p, low, z)
}

func (v *vectors) maximum() step {
	v.op(`
		VMOVUPS (SI), V0
		VMAXPS V0, V14, V14`)
	if v.wide() {
		v.op(`
			VCMPPS $3, Z0, Z0, K2
			KORW K2, K1, K1`)
	} else {
		v.op(`
			VCMPPS $3, Y0, Y0, Y0
			VORPS Y0, Y13, Y13`)
	}
	return step{a: v.bytes()}
}

// reluAdd adds along one column of lanes: a advances by one row of a block of 64 products, and the factor by one
// element of dst.
func (v *vectors) reluAdd() step {
	v.op(`
		VMAXPS (SI), V13, V0
		VBROADCASTSS (DI), V1
		VFMADD231PS V0, V1, V14`)
	return step{dst: 4, a: 4 * 64}
}
