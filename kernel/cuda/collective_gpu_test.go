package cuda

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"sparrow/internal/num"
)

// The tests of this file check these invariants: a sum over ranks is bitwise equal to float32 additions in the order of
// the ranks, rounded once. This holds on every rank, in every run, in one shot and in two, in launches and in graphs;
// the number of a rank that does not arrive is reported, and no rank waits for it forever. Ranks are streams of one
// device, so transfers over NVLink are not tested.

// peers holds several ranks that are streams of one device.
type peers struct {
	*rig
	streams []*Stream
	args    []AllReduceArgs
}

// in returns the same rig for a subtest.
func (r rig) in(t testing.TB) *rig {
	r.t = t
	return &r
}

// newPeers creates ranks that can sum up to the given number of bytes.
func newPeers(r *rig, ranks int, bytes int64, t ElementType) *peers {
	r.t.Helper()
	p := &peers{rig: r}
	a := AllReduceArgs{Half: bytes, Bytes: bytes, Timeout: int64(5 * time.Second), Type: t, Ranks: int32(ranks)}
	zeros := func(n int64) Ptr {
		at := r.alloc(n)
		check(r.t, r.s.Fill(at, 0, n))
		return at
	}
	for i := range ranks {
		a.Staging[i], a.Flags[i] = r.poisoned(2*bytes), zeros(ReduceFlagBytes)
	}
	for i := range ranks {
		s, err := r.d.NewStream()
		check(r.t, err)
		r.t.Cleanup(func() { check(r.t, s.Close()) })
		a.Rank, a.X, a.State = int32(i), r.alloc(bytes), zeros(ReduceStateBytes)
		p.streams, p.args = append(p.streams, s), append(p.args, a)
	}
	check(r.t, r.s.Sync())
	return p
}

// launch makes every rank sum the first bytes of its tensor.
func (p *peers) launch(kernel string, bytes int64) {
	p.t.Helper()
	for i := range p.args {
		a := p.args[i]
		a.Bytes = bytes
		check(p.t, allReduce(p.k, p.streams[i], kernel, &a))
	}
}

func (p *peers) sync() {
	p.t.Helper()
	for _, s := range p.streams {
		check(p.t, s.Sync())
	}
}

func (p *peers) fault(rank int) uint32 {
	p.t.Helper()
	return binary.LittleEndian.Uint32(p.download(p.args[rank].State+4*ReduceFault, 4))
}

// parts returns the bytes of every rank and their sum.
func parts(rng *rand.Rand, ranks int, bytes int64, t ElementType) (x [][]byte, sum []byte) {
	x, sum = make([][]byte, ranks), make([]byte, bytes)
	// A long tensor repeats a shorter one, because generating random values takes longer than summing.
	period := min(bytes, 1<<20)
	for r := range x {
		x[r] = make([]byte, bytes)
		if t == ElementBF16 {
			copy(x[r], bytesOf(randomBF16(rng, int(period/2))))
		} else {
			for i := int64(0); i < period; i += 4 {
				v := float32(rng.NormFloat64() * math.Exp(rng.NormFloat64()*4))
				binary.LittleEndian.PutUint32(x[r][i:], math.Float32bits(v))
			}
		}
	}
	for i := int64(0); i < period; i += int64(t.bytes()) {
		var s float32
		for r := range x {
			v := math.Float32frombits(binary.LittleEndian.Uint32(x[r][i&^3:]))
			if t == ElementBF16 {
				v = num.FromBF16(binary.LittleEndian.Uint16(x[r][i:]))
			}
			if s += v; r == 0 {
				s = v
			}
		}
		if t == ElementBF16 {
			binary.LittleEndian.PutUint16(sum[i:], num.BF16(s))
		} else {
			binary.LittleEndian.PutUint32(sum[i:], math.Float32bits(s))
		}
	}
	for at := period; at < bytes; at += period {
		copy(sum[at:], sum[:period])
		for r := range x {
			copy(x[r][at:], x[r][:period])
		}
	}
	return x, sum
}

func TestAllReduce(t *testing.T) {
	sizes := []int64{16, 48, 4080, 4096, 14336, 100 << 10, 256 << 10, 917504, 8<<20 + 16, 64 << 20}
	if testing.Short() {
		sizes = sizes[:5]
	}
	gpu := onGPU(t)
	for _, ranks := range []int{1, 2, 4, 8} {
		for _, typ := range []ElementType{ElementBF16, ElementF32} {
			t.Run(fmt.Sprintf("%d ranks of type %d", ranks, typ), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(ranks), uint64(typ)))
				p := newPeers(gpu.in(t), ranks, sizes[len(sizes)-1], typ)
				for _, size := range sizes {
					x, want := parts(rng, ranks, size, typ)
					for _, kernel := range []string{"all_reduce_once", "all_reduce_twice", "all_reduce_once"} {
						for r := range x {
							check(t, p.s.CopyToDevice(p.args[r].X, x[r]))
						}
						check(t, p.s.Sync())
						p.launch(kernel, size)
						p.sync()
						for r := range x {
							if f := p.fault(r); f != 0 {
								t.Fatalf("%s of %d bytes: rank %d did not see rank %d", kernel, size, r, f-1)
							}
							if got := p.download(p.args[r].X, size); !bytes.Equal(got, want) {
								sameBytes(t, fmt.Sprintf("%s of %d bytes, rank %d", kernel, size, r), got, want)
							}
						}
					}
				}
			})
		}
	}
}

// Sums of different sizes and kernels follow each other in graphs that run many times: staging memory is reused, and
// the counter of rounds continues.
func TestAllReduceInGraphs(t *testing.T) {
	gpu := onGPU(t)
	for _, ranks := range []int{2, 4, 8} {
		p := newPeers(gpu, ranks, 1<<20, ElementF32)
		sum := float32(0)
		for r := range ranks {
			check(t, p.s.FillWords(p.args[r].X, math.Float32bits(float32(r+1)), 1<<18))
			sum += float32(r + 1)
		}
		check(t, p.s.Sync())
		const launches = 5
		order := []struct {
			kernel string
			bytes  int64
		}{{"all_reduce_once", 1 << 20}, {"all_reduce_twice", 1 << 20}, {"all_reduce_twice", 16},
			{"all_reduce_once", 4096}}
		graphs := make([]*Graph, ranks)
		for r := range graphs {
			g, err := p.streams[r].Capture(func() error {
				for _, o := range order {
					a := p.args[r]
					a.Bytes = o.bytes
					if err := allReduce(p.k, p.streams[r], o.kernel, &a); err != nil {
						return err
					}
				}
				return nil
			})
			check(t, err)
			t.Cleanup(func() { check(t, g.Close()) })
			graphs[r] = g
		}
		for range launches {
			for r, g := range graphs {
				check(t, g.Launch(p.streams[r]))
			}
		}
		p.sync()
		// The first sum is 1 + ... + ranks; every later sum multiplies it by the number of ranks, which is exact.
		after := func(sums int) float32 { return sum * float32(math.Pow(float64(ranks), float64(sums-1))) }
		for r := range ranks {
			got := p.download(p.args[r].X, 1<<20)
			four, three, two := after(4*launches), after(3*launches), after(2*launches)
			for at, want := range map[int]float32{0: four, 12: four, 16: three, 4092: three, 4096: two,
				1<<20 - 4: two} {
				if v := math.Float32frombits(binary.LittleEndian.Uint32(got[at:])); v != want {
					t.Errorf("%d ranks: byte %d of rank %d is %v, want %v", ranks, at, r, v, want)
				}
			}
		}
	}
}

func TestAllReduceNamesTheRankThatIsMissing(t *testing.T) {
	p := newPeers(onGPU(t), 4, 4096, ElementBF16)
	launch := func(rank int) time.Duration {
		begun := time.Now()
		a := p.args[rank]
		a.Timeout = int64(50 * time.Millisecond)
		check(t, AllReduce(p.k, p.streams[rank], &a))
		check(t, p.streams[rank].Sync())
		return time.Since(begun)
	}
	for r := range 3 {
		launch(r) // one after the other: each rank but the last also waits for the ranks after it
	}
	for r, least := range []uint32{2, 3, 4} {
		if f := p.fault(r); f < least || f > 4 {
			t.Errorf("rank %d misses rank %d", r, int(f)-1)
		}
	}
	if took := launch(0); took > 40*time.Millisecond {
		t.Errorf("a sum after the fault took %v, want no wait", took)
	}
}

// The rows of all ranks are gathered on every rank, in place and into adjacent columns, in units of 16 and of 4 bytes,
// also if a rank has no rows.
func TestGatherRanks(t *testing.T) {
	gpu := onGPU(t)
	for _, ranks := range []int{2, 4, 8} {
		p := newPeers(gpu, ranks, 1<<20, ElementBF16)
		rng := rand.New(rand.NewPCG(uint64(ranks), 3))
		gather := func(what string, all []GatherRanksArgs, want []byte) {
			t.Helper()
			check(t, p.s.Sync()) // the gathered rows were written in place
			for r := range all {
				check(t, GatherRanks(p.k, p.streams[r], &all[r]))
			}
			p.sync()
			for r := range all {
				if f := p.fault(r); f != 0 {
					t.Fatalf("%d ranks: rank %d did not see rank %d", ranks, r, f-1)
				}
				sameBytes(t, fmt.Sprintf("%d ranks, %s, rank %d", ranks, what, r),
					p.download(all[r].Out, int64(len(want))), want)
			}
		}
		for _, width := range []int64{96, 20} { // bytes of a row
			for round, rows := range [][MaxRanks]int32{{3, 0, 5, 1, 0, 700, 2, 9}, {0, 1, 0, 0, 4, 0, 0, 3}} {
				a := GatherRanksArgs{XStride: width, OutStride: width, RowBytes: int32(width)}
				count := int64(0)
				for r := range ranks {
					a.Rows[r], a.First[r] = rows[r], count*width
					count += int64(rows[r])
				}
				want := randomBytes(rng, int(count*width))
				all := make([]GatherRanksArgs, ranks)
				for r := range all {
					own := bytes.Repeat([]byte{0xEE}, len(want))
					first := a.First[r]
					copy(own[first:], want[first:first+int64(rows[r])*width])
					x := a
					x.Peers, x.Out = p.args[r], upload(p.rig, own)
					x.Peers.X = x.Out.Add(first)
					all[r] = x
				}
				gather(fmt.Sprintf("rows of %d bytes, round %d", width, round), all, want)
			}
		}
		// Gathering into adjacent columns is tested with 5 rows of each rank.
		for _, narrow := range []int64{32, 12} {
			const height = 5
			full := int64(ranks) * narrow
			want := randomBytes(rng, int(height*full))
			all := make([]GatherRanksArgs, ranks)
			for r := range all {
				var own []byte
				for row := range int64(height) {
					at := row*full + int64(r)*narrow
					own = append(own, want[at:at+narrow]...)
				}
				a := GatherRanksArgs{Peers: p.args[r], Out: p.poisoned(height * full), XStride: narrow,
					OutStride: full, RowBytes: int32(narrow)}
				a.Peers.X = upload(p.rig, own)
				for k := range ranks {
					a.Rows[k], a.First[k] = height, int64(k)*narrow
				}
				all[r] = a
			}
			gather(fmt.Sprintf("%d bytes side by side", narrow), all, want)
		}
	}
}

// Every rank gets its columns of a sum, bitwise equal to those of the complete sum.
func TestReduceScatterOfRanks(t *testing.T) {
	gpu := onGPU(t)
	for _, ranks := range []int{2, 4, 8} {
		for _, typ := range []ElementType{ElementBF16, ElementF32} {
			// The field width is the number of bytes of a rank's part of a row.
			for _, c := range []struct{ rows, width int64 }{{1, 16}, {3, 48}, {70, 1024}, {9, 14336}} {
				whole := c.width * int64(ranks)
				p := newPeers(gpu, ranks, c.rows*whole, typ)
				x, want := parts(rand.New(rand.NewPCG(uint64(ranks), uint64(typ))), ranks, c.rows*whole, typ)
				all := make([]ReduceScatterArgs, ranks)
				for r := range all {
					// Rows of x and of the result have gaps.
					gaps := bytes.Repeat([]byte{0xEE}, int(c.rows*(whole+32)))
					for row := range c.rows {
						copy(gaps[row*(whole+32):], x[r][row*whole:(row+1)*whole])
					}
					all[r] = ReduceScatterArgs{Peers: p.args[r], Out: p.poisoned(c.rows * (c.width + 16)),
						XStride: whole + 32, OutStride: c.width + 16, Rows: int32(c.rows), RowBytes: int32(c.width)}
					all[r].Peers.X = upload(p.rig, gaps)
				}
				check(t, p.s.Sync())
				for range 3 { // the result is the same in every run
					for r := range all {
						check(t, ReduceScatter(p.k, p.streams[r], &all[r]))
					}
				}
				p.sync()
				for r := range all {
					if f := p.fault(r); f != 0 {
						t.Fatalf("%d ranks: rank %d did not see rank %d", ranks, r, f-1)
					}
					own := bytes.Repeat([]byte{poison}, int(c.rows*(c.width+16)))
					for row := range c.rows {
						copy(own[row*(c.width+16):], want[row*whole+int64(r)*c.width:][:c.width])
					}
					sameBytes(t, fmt.Sprintf("type %d, %+v, rank %d of %d", typ, c, r, ranks),
						p.download(all[r].Out, int64(len(own))), own)
				}
			}
		}
	}
}

func randomBytes(rng *rand.Rand, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(rng.Uint32())
	}
	return out
}

// Ids of other ranks and negative ids become -1; an id that no rank holds raises a fault.
func TestPartIDs(t *testing.T) {
	r := onGPU(t)
	run := func(ids []int32) ([]byte, uint32) {
		t.Helper()
		faults, out := r.faultWord(), r.poisoned(int64(4*len(ids)))
		check(t, PartIDs(r.k, r.s, &PartIdsArgs{IDs: upload(r, ids), Out: out, Faults: faults, IDStride: 2,
			Rows: int32(len(ids) / 2), Columns: 2, First: 4, Count: 3, All: 9, Fault: FaultExpert}))
		check(t, r.s.Sync())
		return r.download(out, int64(4*len(ids))), r.faults(faults)
	}
	got, fault := run([]int32{3, 4, 5, 6, 7, 8, 0, -1})
	if want := bytesOf([]int32{-1, 0, 1, 2, -1, -1, -1, -1}); !bytes.Equal(got, want) || fault != 0 {
		t.Errorf("%v with fault %d, want %v", got, fault, want)
	}
	if got, fault = run([]int32{4, 9}); !bytes.Equal(got, bytesOf([]int32{0, -1})) || fault != FaultExpert {
		t.Errorf("%v with fault %d", got, fault)
	}
}

// BenchmarkAllReduce measures one of the 64 all-reduces in a graph; all ranks share one device.
func BenchmarkAllReduce(b *testing.B) {
	const sums = 64
	gpu := onGPU(b)
	for _, ranks := range []int{2, 4, 8} {
		for _, bytes := range []int64{14336, 917504} {
			for _, kernel := range []string{"all_reduce_once", "all_reduce_twice"} {
				b.Run(fmt.Sprintf("%s/%d_ranks/%d_bytes", kernel, ranks, bytes), func(b *testing.B) {
					p := newPeers(gpu.in(b), ranks, bytes, ElementBF16)
					for r := range ranks {
						check(b, p.s.Fill(p.args[r].X, 0, bytes))
					}
					check(b, p.s.Sync())
					var graphs []*Graph
					for r := range ranks {
						g, err := p.streams[r].Capture(func() error {
							for range sums {
								a := p.args[r]
								if err := allReduce(p.k, p.streams[r], kernel, &a); err != nil {
									return err
								}
							}
							return nil
						})
						check(b, err)
						b.Cleanup(func() { check(b, g.Close()) })
						graphs = append(graphs, g)
					}
					first, err := p.d.NewEvent()
					check(b, err)
					last, err := p.d.NewEvent()
					check(b, err)
					best := time.Hour
					for b.Loop() {
						check(b, first.Record(p.streams[0]))
						for r, g := range graphs {
							check(b, g.Launch(p.streams[r]))
						}
						check(b, last.Record(p.streams[0]))
						p.sync()
						took, err := last.Since(first)
						check(b, err)
						best = min(best, took)
					}
					b.ReportMetric(float64(best.Nanoseconds())/1000/sums, "us/sum")
					check(b, first.Close())
					check(b, last.Close())
				})
			}
		}
	}
}
