package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"sparrow/internal/cuda/expect"
)

func TestV4PageSizes(t *testing.T) {
	for _, c := range []struct {
		tokens int
		want   int64
	}{{256, 149760}, {128, 74880}, {64, 37440}, {2, 1728}} {
		if got := V4PageBytes(c.tokens); got != c.want {
			t.Errorf("page of %d tokens: %d bytes, want %d", c.tokens, got, c.want)
		}
	}
}

func TestGPUV4PagesEqualTheHostByteForByte(t *testing.T) {
	r := onGPU(t)
	table := expect.RotaryTable(900, 10000)
	for _, pageTokens := range []int{2, 64, 128, 256} {
		rng := rand.New(rand.NewPCG(9, uint64(pageTokens)))
		tokens := 150
		slotCount := (tokens/pageTokens + 3) * pageTokens
		pageBytes := int(V4PageBytes(pageTokens))
		host := make([]byte, slotCount/pageTokens*pageBytes)
		for i := range host {
			host[i] = poison
		}
		rows := randomBF16(rng, tokens*512)
		clear(rows[512 : 512+64]) // a group of zeros
		for i := range 448 {      // finite patterns of every kind
			rows[i] = uint16(i * 72)
		}
		positions, slots := positionsBelow(rng, tokens, 900), scatter(rng, tokens, slotCount)
		a := &WriteV4Args{
			Pool: PoolView{Base: r.poisoned(int64(len(host))), PageBytes: int64(pageBytes),
				PageTokens: int32(pageTokens), Slots: int32(slotCount)},
			Rotary: RotaryView{Table: upload(r, table), Rows: 900}, Rows: upload(r, rows),
			Positions: upload(r, positions), Slots: upload(r, slots), Faults: r.faultWord(), RowStride: 512,
			Tokens: int32(tokens),
		}
		check(t, WriteV4(r.k, r.s, a))
		for i, s := range slots {
			if s < 0 {
				continue
			}
			v := expect.V4Row(rows[i*512:(i+1)*512], table[int(positions[i])*64:])
			expect.EncodeV4(host[int(s)/pageTokens*pageBytes:], pageTokens, int(s)%pageTokens, v)
		}
		name := fmt.Sprintf("pages of %d", pageTokens)
		got := r.download(a.Pool.Base, int64(len(host)))
		sameBytes(t, name, got, host)
		if f := r.faults(a.Faults); f != 0 {
			t.Errorf("%s: fault %d", name, f)
		}

		list := append(scatter(rng, 40, slotCount), -1, int32(slotCount))
		g := &GatherSlotsArgs{Pool: a.Pool, Source: SlotListView{upload(r, list)},
			Rows: r.poisoned(int64(len(list) * 1024)), Faults: r.faultWord(), RowBytes: 1024, Count: int32(len(list))}
		check(t, GatherV4Slots(r.k, r.s, g))
		var want []byte
		for _, s := range list {
			if s < 0 || int(s) >= slotCount {
				want = append(want, make([]byte, 1024)...)
				continue
			}
			want = append(want, expect.DecodeV4(host[int(s)/pageTokens*pageBytes:], pageTokens, int(s)%pageTokens)...)
		}
		sameBF16(t, name+" dequantised", r.download(g.Rows, int64(len(want))), want)
		if f := r.faults(g.Faults); f != FaultSlot {
			t.Errorf("%s: faults %d, want %d", name, f, FaultSlot)
		}

		pages := make([]int32, slotCount/pageTokens) // one request has all pages of the pool
		for i := range pages {
			pages[i] = int32(i)
		}
		w := &GatherPagesArgs{Pool: a.Pool,
			Source: PageTableView{Table: upload(r, pages), Starts: upload(r, []int32{0, int32(slotCount)}),
				TableStride: int32(len(pages)), Requests: 1}, Rows: r.poisoned(int64(slotCount * 1024)), RowBytes: 1024,
			Count: int32(slotCount)}
		check(t, gatherV4Pages(r.k, r.s, w))
		want = want[:0]
		for s := range slotCount {
			want = append(want, expect.DecodeV4(host[s/pageTokens*pageBytes:], pageTokens, s%pageTokens)...)
		}
		sameBF16(t, name+" whole pool", r.download(w.Rows, int64(len(want))), want)
	}
}

func TestGPUV4DequantisesEveryCodeAndScale(t *testing.T) {
	r := onGPU(t)
	const tokens = 256
	host := make([]byte, V4PageBytes(tokens))
	for row := range tokens {
		for i := range 448 {
			host[row*V4DataBytes+i] = byte(i + row)
		}
		for g := range 7 {
			host[tokens*V4DataBytes+row*V4ScaleBytes+g] = byte(row + g)
		}
	}
	slots := make([]int32, tokens)
	var want []byte
	for i := range slots {
		slots[i] = int32(i)
		want = append(want, expect.DecodeV4(host, tokens, i)...)
	}
	g := &GatherSlotsArgs{Pool: PoolView{Base: upload(r, host), PageBytes: V4PageBytes(tokens), PageTokens: tokens,
		Slots: tokens},
		Source: SlotListView{upload(r, slots)}, Rows: r.poisoned(tokens * 1024), RowBytes: 1024, Count: tokens}
	check(t, GatherV4Slots(r.k, r.s, g))
	sameBF16(t, "codes and scales", r.download(g.Rows, tokens*1024), want)
}

func TestGPUCombineKeepsNegativesNegative(t *testing.T) {
	r := onGPU(t)
	for _, c := range []struct {
		name           string
		tokens, ks, ke int
		shift          int
		length         func(rng *rand.Rand, most int) int32
	}{
		{"tiny", 1, 1, 1, 5, func(_ *rand.Rand, most int) int32 { return int32(most) }},
		{"full lengths", 33, 128, 512, 9000, func(_ *rand.Rand, most int) int32 { return int32(most) }},
		{"zero lengths", 17, 128, 512, 9000, func(*rand.Rand, int) int32 { return 0 }},
		{"lengths differ by token", 1024, 512, 2048, 70000, func(rng *rand.Rand, most int) int32 {
			return int32(rng.IntN(most + 1))
		}},
		{"window alone", 40, 128, 0, 300, func(rng *rand.Rand, most int) int32 { return int32(rng.IntN(most + 1)) }},
		{"large shift", 9, 60, 70, 1 << 30, func(rng *rand.Rand, most int) int32 { return int32(rng.IntN(most + 1)) }},
	} {
		rng := rand.New(rand.NewPCG(10, uint64(c.ks)))
		fill := func(n int) []int32 {
			v := make([]int32, n)
			for i := range v {
				if v[i] = int32(rng.IntN(1000)); rng.IntN(5) == 0 {
					v[i] = -1
				}
			}
			return v
		}
		window, extra := fill(c.tokens*c.ks), fill(c.tokens*c.ke)
		var wl, el []int32
		for range c.tokens {
			wl, el = append(wl, c.length(rng, c.ks)), append(el, c.length(rng, c.ke))
		}
		width := int(CombinedWidth(int32(c.ks), int32(c.ke)))
		if width%128 != 0 || width < c.ks+c.ke {
			t.Errorf("%s: width %d", c.name, width)
		}
		a := &CombineV4Args{Window: upload(r, window), WindowLength: upload(r, wl),
			Rows: r.poisoned(int64(c.tokens * width * 4)), Lengths: r.poisoned(int64(c.tokens * 4)),
			WindowStride: int64(c.ks), ExtraStride: int64(c.ke), Tokens: int32(c.tokens), WindowWidth: int32(c.ks),
			ExtraWidth: int32(c.ke), WindowRows: int32(c.shift)}
		if c.ke > 0 {
			a.Extra, a.ExtraLength = upload(r, extra), upload(r, el)
		}
		check(t, CombineV4(r.k, r.s, a))
		var rows, lengths []int32
		for i := range c.tokens {
			rows = append(rows, expect.Combine(window[i*c.ks:][:wl[i]], extra[i*c.ke:][:el[i]], c.shift, width)...)
			lengths = append(lengths, wl[i]+el[i])
		}
		sameBytes(t, c.name+" rows", r.download(a.Rows, int64(len(rows)*4)), bytesOf(rows))
		sameBytes(t, c.name+" lengths", r.download(a.Lengths, int64(len(lengths)*4)), bytesOf(lengths))
	}
}
