package main

import "fmt"

// Attention in float32 processes a strip of its rows at a time: 64 consecutive elements of up to 64 rows, widened and
// packed, which stay in the L1 cache while they are multiplied by all heads. A strip has space for eleven tiles of six
// keys.
const (
	stripDepth = 64
	stripKeys  = 66
	stripRow   = stripDepth * 4
	floatHeads = 16
	floatLine  = floatHeads * 4 // bytes of the scores of a key
	floatOut   = 512 * 4        // bytes of the sums of a head
)

// Offsets in floatState.
const (
	stateTop  = 0
	stateSum  = floatLine
	stateKeep = 2 * floatLine
)

// floatAttend writes the kernels of attention of 16 heads over up to 64 latent rows in float32.
//
//	AX arguments   R9 to R13 lines that are prefetched (fetch)
type floatAttend struct{ *emitter }

func emitFloatAttend(e *emitter) {
	(&vectors{e}).constants()
	e.constant("accHalfMask"+e.name, 0xBFFFBFFF)
	e.constant("accCodeMask"+e.name, 0x7F7F7F7F)
	e.constant("codeUnit"+e.name, 0x43800000)  // 256
	e.constant("weightLow"+e.name, 0xC2AEA8F6) // -87.33, whose exp is a little above the least normal number
	k := floatAttend{e}
	k.fill("F32", f32, false)
	k.fill("BF16", bf16, false)
	k.fill("Raw", fp8, false)
	k.fill("Block", fp8, true)
	k.scores()
	k.softmax()
	k.values()
}

// fill writes a kernel that widens 64 elements of every row, which begin at an offset, to a strip. Scaled codes have
// one scale, at another offset.
//
//	R9 offsets of rows   CX rows left   R10 row   R8 elements   DI line of the strip
//	R11, R12 offsets of elements and scale
func (k floatAttend) fill(name string, w weight, scaled bool) {
	d := &accumulate{emitter: k.emitter, w: w, mr: 1}
	k.function("floatFill"+name+k.name, "floatArgs", "64 elements of every row to a strip.")
	k.op(`
		MOVQ floatArgs_at(AX), R9
		MOVQ floatArgs_n(AX), CX
		MOVQ floatArgs_keys(AX), DI
		MOVQ floatArgs_offset(AX), R11
		MOVQ floatArgs_scaleAt(AX), R12`)
	if w == fp8 {
		k.zero(d.nan())
		k.op("VMOVUPS codeUnit%s<>(SB), V%d", k.name, d.scale())
	}
	k.loop("row", "CX", func() {
		k.op(`
			MOVQ (R9), R10
			ADDQ floatArgs_memory(AX), R10
			LEAQ (R10)(R11*1), R8`)
		if scaled {
			k.op(`
				VBROADCASTSS (R10)(R12*1), V%d
				VMULPS codeUnit%s<>(SB), V%d, V%d`, d.scale(), k.name, d.scale(), d.scale())
		}
		for v := 0; v < stripDepth/k.lanes; {
			got := d.decode(v)
			for i := range got {
				k.op("VMOVUPS V%d, %d(DI)", d.t(i), (v+i)*k.bytes())
			}
			v += got
		}
		k.op(`
			ADDQ $8, R9
			ADDQ $%d, DI`, stripRow)
	})
	if w == fp8 {
		k.op("VMOVDQU H%d, floatArgs_codes(AX)", d.nan())
	}
	k.ret()
}

// fetchOpen loads the state of the lines that are prefetched while others are multiplied: the next line, the end of its
// row, the place of its row in the list, the memory, and the distance to the next line. The distance is 0 when all rows
// are done.
func (k floatAttend) fetchOpen() {
	k.op(`
		MOVQ floatArgs_line(AX), R9
		MOVQ floatArgs_lineEnd(AX), R10
		MOVQ floatArgs_ahead(AX), R11
		MOVQ floatArgs_memory(AX), R12
		MOVQ floatArgs_lineStep(AX), R13`)
}

func (k floatAttend) fetchClose() {
	k.op(`
		MOVQ R9, floatArgs_line(AX)
		MOVQ R10, floatArgs_lineEnd(AX)
		MOVQ R11, floatArgs_ahead(AX)
		MOVQ R13, floatArgs_lineStep(AX)`)
}

// fetch prefetches one line.
func (k floatAttend) fetch() {
	more, done := k.label("nextrow"), k.label("fetched")
	k.op(`
		PREFETCHT1 (R9)
		ADDQ R13, R9
		CMPQ R9, R10
		JLT %s
		DECQ floatArgs_rowsAhead(AX)
		JG %s
		MOVQ AX, R9
		MOVQ $0x7FFFFFFFFFFFFFFF, R10
		XORQ R13, R13
		JMP %s`, done, more, done)
	k.at(more)
	k.op(`
		ADDQ $8, R11
		MOVQ (R11), R9
		ADDQ R12, R9
		MOVQ floatArgs_rowBytes(AX), R10
		ADDQ R9, R10
		ANDQ $-64, R9`)
	k.at(done)
}

// scores writes the kernel that adds the products of a strip and its part of the queries: lanes are heads, every
// element of a key is broadcast, and a sum adds the elements in ascending order. Sums of strips are added afterwards:
// that rounds less than one sum of 576 products.
//
//	BX cursor in a tile of keys   R8 scores [keys, 16]   SI part of the queries [64, 16]   DI cursor in it
//	CX tiles left                 R15 steps of 8 elements left
func (k floatAttend) scores() {
	const part = 8
	vecs, keys := floatHeads/k.lanes, k.scoreKeys
	acc := func(i, v int) int { return i*vecs + v }
	each := func(f func(sum string, r int)) {
		for i := range keys {
			for v := range vecs {
				f(fmt.Sprintf("%d(R8)", i*floatLine+v*k.bytes()), acc(i, v))
			}
		}
	}
	k.function("floatScores"+k.name, "floatArgs", fmt.Sprintf("products of tiles of %d keys and 16 heads.", keys))
	k.op(`
		MOVQ floatArgs_keys(AX), BX
		MOVQ floatArgs_q(AX), SI
		MOVQ floatArgs_scores(AX), R8
		MOVQ floatArgs_tiles(AX), CX`)
	k.fetchOpen()
	k.loop("tile", "CX", func() {
		for i := range keys * vecs {
			k.zero(i)
		}
		k.op(`
			MOVQ SI, DI
			MOVQ $%d, R15`, stripDepth/part)
		k.loop("part", "R15", func() {
			for x := range part {
				k.scoreStep(x, keys*vecs, vecs, acc)
			}
			for range k.scoreFetch {
				k.fetch()
			}
			k.op(`
				ADDQ $%d, BX
				ADDQ $%d, DI`, 4*part, floatLine*part)
		})
		each(func(sum string, r int) {
			k.op("VADDPS %s, V%d, V%d", sum, r, r)
			k.op("VMOVUPS V%d, %s", r, sum)
		})
		k.op(`
			ADDQ $%d, BX
			ADDQ $%d, R8`, (keys-1)*stripRow, keys*floatLine)
	})
	k.fetchClose()
	k.ret()
}

// scoreStep multiplies element x of every key.
func (k floatAttend) scoreStep(x, q, vecs int, acc func(i, v int) int) {
	if k.wide() {
		q += x % 4
	}
	for v := range vecs {
		k.op("VMOVUPS %d(DI), V%d", x*floatLine+v*k.bytes(), q+v)
	}
	for i := range k.scoreKeys {
		if k.wide() {
			k.op("VFMADD231PS.BCST %d(BX), V%d, V%d", i*stripRow+4*x, q, acc(i, 0))
			continue
		}
		e := q + vecs + i%2
		k.op("VBROADCASTSS %d(BX), V%d", i*stripRow+4*x, e)
		for v := range vecs {
			k.op("VFMADD231PS V%d, V%d, V%d", q+v, e, acc(i, v))
		}
	}
}

// softmax writes the kernel that turns scores [n, 16] into weights: top is the largest score so far and becomes the
// largest now, keep is the factor of all earlier sums, and sum is rescaled and increased. Where all scores are -Inf the
// weights are zero; NaN makes the sum NaN. Weights below the least normal number are zero, because products of
// subnormal numbers take twenty times as long.
//
//	DI scores   CX keys left   R14 state   12 scale   15 base of the weights   14 largest   13 sums
func (k floatAttend) softmax() {
	v := &vectors{k.emitter}
	k.function("floatSoftmax"+k.name, "floatArgs", "scores to weights.")
	k.op("MOVQ floatArgs_state(AX), R14")
	for at := 0; at < floatLine; at += k.bytes() {
		keys := func(body func()) {
			k.op(`
				MOVQ floatArgs_scores(AX), DI
				MOVQ floatArgs_n(AX), CX`)
			k.loop("key", "CX", func() {
				k.op("VMULPS %d(DI), V12, V0", at)
				body()
				k.op("ADDQ $%d, DI", floatLine)
			})
		}
		k.op(`
			VBROADCASTSS floatArgs_scale(AX), V12
			VMOVUPS %d(R14), V14`, stateTop+at)
		keys(func() { k.op("VMAXPS V14, V0, V14") }) // the second operand, if one is NaN
		k.op(`
			VMOVUPS %d(R14), V0
			VMOVUPS V14, %d(R14)`, stateTop+at, stateTop+at)
		if k.wide() {
			k.op(`
				VMOVUPS Z14, Z15
				VCMPPS $0, %s, Z15, K1
				VXORPS Z15, Z15, K1, Z15`, v.konst("minusInf"))
		} else {
			k.op(`
				VCMPPS $0, %s, Y14, Y1
				VANDNPS Y14, Y1, Y15`, v.konst("minusInf"))
		}
		k.op("VSUBPS V15, V0, V0")
		v.expFrom("weightLow")
		k.op("VMOVUPS V0, %d(R14)", stateKeep+at)
		k.zero(13)
		keys(func() {
			k.op("VSUBPS V15, V0, V0")
			v.expFrom("weightLow")
			k.op(`
				VMOVUPS V0, %d(DI)
				VADDPS V0, V13, V13`, at)
		})
		k.op(`
			VMOVUPS %d(R14), V0
			VFMADD231PS %d(R14), V0, V13
			VMOVUPS V13, %d(R14)`, stateKeep+at, stateSum+at, stateSum+at)
	}
	k.ret()
}

// values writes the kernel that adds the weighted values of n keys in a strip to out, after multiplying it by keep.
// Weights are broadcast, lanes are columns, and a sum adds the keys in ascending order.
//
//	SI strip   DI out [16, 512]   BX cursor in the strip   R8 cursor in the weights   R14 state
//	CX, DX keys left
func (k floatAttend) values() {
	const vecs, unroll = 2, 4
	k.function("floatValues"+k.name, "floatArgs", "out = keep*out + weights*values.")
	k.op(`
		MOVQ floatArgs_keys(AX), SI
		MOVQ floatArgs_out(AX), DI
		MOVQ floatArgs_state(AX), R14`)
	k.fetchOpen()
	done := k.label("heads")
	h0 := 0
	for _, heads := range k.valueHeads {
		if h0 > 0 {
			k.op(`
				CMPQ floatArgs_heads(AX), $%d
				JLE %s`, h0, done)
		}
		for at := 0; at < stripRow; at += vecs * k.bytes() {
			k.valueTile(h0, heads, at, vecs, unroll)
		}
		h0 += heads
	}
	k.at(done)
	k.fetchClose()
	k.ret()
}

// valueTile adds the weighted values of a strip to the sums of some heads, for the columns from byte at on.
func (k floatAttend) valueTile(h0, heads, at, vecs, unroll int) {
	acc := func(h, v int) int { return h*vecs + v }
	free := heads * vecs
	out := func(h, v int) string { return fmt.Sprintf("%d(DI)", (h0+h)*floatOut+at+v*k.bytes()) }
	for h := range heads {
		k.op("VBROADCASTSS %d(R14), V%d", stateKeep+4*(h0+h), free)
		for v := range vecs {
			k.op("VMULPS %s, V%d, V%d", out(h, v), free, acc(h, v))
		}
	}
	key := func(u int) {
		values, weight := free, free+vecs
		if k.wide() {
			values += u % 2 * vecs
			weight += vecs
		}
		for v := range vecs {
			k.op("VMOVUPS %d(BX), V%d", u*stripRow+at+v*k.bytes(), values+v)
		}
		for h := range heads {
			w := weight + h%min(4, k.regs-weight)
			k.op("VBROADCASTSS %d(R8), V%d", u*floatLine+4*(h0+h), w)
			for v := range vecs {
				k.op("VFMADD231PS V%d, V%d, V%d", values+v, w, acc(h, v))
			}
		}
	}
	few, none := k.label("few"), k.label("none")
	k.op(`
		MOVQ SI, BX
		MOVQ floatArgs_scores(AX), R8
		MOVQ floatArgs_n(AX), CX
		MOVQ CX, DX
		ANDQ $%d, DX
		SHRQ $2, CX
		JZ %s`, unroll-1, few)
	k.loop("keys", "CX", func() {
		for u := range unroll {
			key(u)
		}
		k.fetch()
		k.op(`
			ADDQ $%d, BX
			ADDQ $%d, R8`, unroll*stripRow, unroll*floatLine)
	})
	k.at(few)
	k.op(`
		TESTQ DX, DX
		JZ %s`, none)
	k.loop("key", "DX", func() {
		key(0)
		k.op(`
			ADDQ $%d, BX
			ADDQ $%d, R8`, stripRow, floatLine)
	})
	k.at(none)
	for h := range heads {
		for v := range vecs {
			k.op("VMOVUPS V%d, %s", acc(h, v), out(h, v))
		}
	}
}
