package cuda

// productChoice is a kernel, the shape of its tiles and how it is launched. All choices give bitwise equal results. The
// rules follow from the measurements in src/sm90/product/NOTES.md.
type productChoice struct {
	kernel  string
	inputs  int32 // input rows of a tile
	weights int32 // weight rows of a tile
	few     bool
	turned  bool  // few rows: inputs are the rows of the tensor-core tile
	narrow  bool  // few rows: tiles of 32 weight rows, two parts of k in each of two blocks
	stages  int32 // few rows: stages of the ring
	ahead   int32 // few rows: stages whose weights are read before the previous kernel has ended
	across  bool  // many rows: the blocks of a cluster compute adjacent columns of one tile of rows
	perSM   int32 // blocks that share an SM
	// many rows: the weights of one batch entry stay in shared memory.
	resident bool
	sums     bool  // many rows: sums of parts of k are in global memory
	cost     int64 // many rows: time per element of a tile, relative to other choices
}

const (
	stripeRows = 64  // weight rows of a tile of the kernel for few rows
	manyRows   = 128 // input rows of a tile of the kernel for many rows
	mostFew    = 128 // maximum rows for the kernel for few rows
	scaleBox   = 8   // blocks of k whose input scales one copy reads
	mostStages = 32

	// Shared memory of a block, in bytes, if one, two or three blocks run on an SM.
	wholeShared = 232448
	halfShared  = 115712
	thirdShared = 75000

	narrowParts, narrowColumns = 4, 32 // parts of k and columns of a tile of the narrow kernel

	longBlocks = 32 // minimum blocks of a long k, for which a deep ring is faster than several blocks per SM
)

// productParts returns the number of parts into which k is divided: enough to use all SMs of an H200 for few rows. It
// depends only on the shape of the weight, not on the rows or the device, because it determines the order of summation.
func productParts(columns, blocks, batch int32) int32 {
	const sms, leastBlocks = 132, 4
	tiles := (int64(columns) + stripeRows - 1) / stripeRows * int64(batch)
	parts := int32(1)
	for next := int32(2); next <= 8 && tiles*int64(next) <= sms; next *= 2 {
		each := (blocks + next - 1) / next
		if each < leastBlocks || (next-1)*each >= blocks { // false if the last part would have no blocks
			break
		}
		parts = next
	}
	return parts
}

// blocks returns the number of blocks of k; a block is 128 bytes of a row.
func (x *Product) blocks() int32 {
	_, _, block := x.Type.element()
	return (x.K + block - 1) / block
}

func (x *Product) parts() int32 {
	if x.Whole > x.Columns {
		return productParts(x.Whole, x.blocks(), 1)
	}
	return productParts(x.Columns, x.blocks(), x.Batch)
}

// choose selects the kernel for the number of rows.
func (x *Product) choose(sms int32) productChoice {
	// The time of a product with a short k is bound by stores, so the wide tiles of the kernel for many rows are faster
	// also for fewer rows.
	short := x.Type == ProductBF16 && x.blocks() < 4
	switch {
	case x.Folded:
		return x.chooseFolded(sms)
	case x.residentFits() && (x.Rows > mostFew || x.Rows > 32 && 2*x.Batch >= sms):
		return x.resident()
	case x.Rows <= mostFew:
		if wide := x.chooseAcross(short, sms); wide != 0 {
			c := x.many(wide)
			c.across = true
			return c
		}
		return x.chooseFew(sms)
	case x.Type == ProductBF16 && x.parts() > 1: // narrow tiles use more SMs if there are few columns
		return x.cheapest(sms, x.many(128), x.many(64))
	case x.Type == ProductBF16:
		return x.cheapest(sms, x.many(256), x.many(128))
	case x.parts() > 1 && (x.Sums == 0 || x.Factors != 0):
		return x.cheapest(sms, x.many(176), x.many(128))
	case x.parts() > 1:
		return x.cheapest(sms, x.tall(), x.many(176), x.many(128))
	default:
		return x.cheapest(sms, x.tall(), x.many(192), x.many(128))
	}
}

// chooseAcross returns the number of columns of a tile if the kernel for many rows is faster for one tile of rows, or 0
// otherwise. That kernel loads the inputs once for 128 to 256 columns, and the kernel for few rows once for 64. It is
// faster if it has enough tiles of weights for all SMs.
func (x *Product) chooseAcross(short bool, sms int32) int32 {
	switch tiles := x.tiles(192); {
	case x.Rows <= 32 || x.parts() > 1:
		return 0
	case short, x.Type == ProductBF16 && x.Rows > 64 && x.tiles(256) >= 3*sms:
		return 256
	case x.Type == ProductFP8 && tiles >= sms*3/4 && (x.Rows > 64 || tiles <= sms):
		return 192
	}
	return 0
}

// chooseFew selects the launch of the kernel for few rows. Several blocks on an SM balance the work of the SMs, and
// blocks of the next kernel can start earlier if launches overlap. With many input rows and a long k, one block with a
// ring that fills the shared memory of the SM is faster.
func (x *Product) chooseFew(sms int32) productChoice {
	inputs := int32(8)
	for inputs < x.Rows {
		inputs *= 2
	}
	parts := x.parts()
	if parts == narrowParts && x.Type == ProductFP8 && x.Rows > 32 && x.Batch == 1 {
		return x.narrow()
	}
	if parts > 2 {
		inputs = min(inputs, 64) // more rows are divided into several tiles
	}
	several := x.tiles(stripeRows) > sms
	long := x.blocks() >= longBlocks
	c := x.few(inputs, halfShared)
	switch {
	case inputs >= 64 && parts == 2:
		c = x.few(inputs, wholeShared)
		c.stages = min(c.stages, 8)
	case inputs >= 64 && parts > 1:
		// The choice above is kept.
	case inputs == 64 && x.Type == ProductFP8 && !several && !long:
		c = x.turned(halfShared)
	case inputs == 64 && x.Type == ProductFP8:
		c = x.turned(wholeShared)
	case inputs == 64 && !several && !long:
		// The choice above is kept.
	case inputs == 64 && x.Type == ProductBF16 && x.tiles(2*stripeRows) >= 4*sms && long:
		c = x.wide()
	case inputs >= 64:
		c = x.few(inputs, wholeShared)
	case parts > 1:
		c = x.few(inputs, thirdShared)
	case several && (x.Type == ProductFP8 || !long):
		c = x.few(inputs, thirdShared)
		c.perSM = 3
	case several:
		c.perSM = 2
	}
	c.ahead = min(c.stages, 3)
	return c
}

// chooseFolded selects the launch for e2m1 weights. Conversion to e4m3 is a chain of dependent instructions; several
// blocks on an SM hide its latency.
func (x *Product) chooseFolded(sms int32) productChoice {
	inputs := int32(16)
	for inputs < x.Rows {
		inputs *= 2
	}
	c := x.few(inputs, halfShared)
	if inputs == 16 {
		c = x.few(inputs, thirdShared)
	}
	if x.parts() == 1 && x.tiles(stripeRows) > sms {
		c.perSM = 2
		if inputs == 16 {
			c.perSM = 3
		}
	}
	c.ahead = min(c.stages, 3)
	return c
}

// few returns the kernel for a number of input rows, with the maximum number of stages that fits the given bytes of
// shared memory.
func (x *Product) few(inputs int32, bytes int) productChoice {
	c := productChoice{kernel: x.name(map[int32]string{8: "few8", 16: "few16", 32: "few32", 64: "few64",
		128: "few128"}[inputs]),
		few: true, inputs: inputs, weights: stripeRows, perSM: 1}
	return x.filled(c, bytes)
}

// narrow returns the kernel for small weights, which divides k into four parts.
func (x *Product) narrow() productChoice {
	// Copies of rows beyond the input take time, so the number of rows is rounded up only to a multiple of eight rows
	// (a swizzle atom).
	c := productChoice{kernel: x.name("narrow64"), few: true, narrow: true, inputs: (x.Rows + 7) / 8 * 8,
		weights: narrowColumns, perSM: 1}
	room := halfShared
	if c.inputs > 64 {
		c.kernel, room = x.name("narrow128"), wholeShared
	}
	c = x.filled(c, room)
	c.ahead = min(c.stages, 3)
	return c
}

// wide returns the kernel for 64 input rows with twice the weight rows in a block, so that inputs are read half as
// often.
func (x *Product) wide() productChoice {
	return x.filled(productChoice{kernel: x.name("few64_wide"), few: true, inputs: 64, weights: 2 * stripeRows,
		perSM: 1}, wholeShared)
}

// turned returns the e4m3 kernel for 64 input rows in which inputs, not weights, are the rows of the tensor-core tiles.
// It does not divide k.
func (x *Product) turned(bytes int) productChoice {
	return x.filled(productChoice{kernel: x.name("few64_turned"), few: true, turned: true, inputs: 64,
		weights: stripeRows, perSM: 1}, bytes)
}

// filled sets the number of stages of a choice to the maximum that fits the given bytes of shared memory.
func (x *Product) filled(c productChoice, bytes int) productChoice {
	for c.stages = 2; c.stages < mostStages && x.fewBytes(&c, c.stages+1) <= bytes; c.stages++ {
	}
	c.ahead = c.stages
	return c
}

// fewBytes returns the shared memory in bytes of a block of the kernel for few rows with the given number of stages;
// few.cuh computes the same sum.
func (x *Product) fewBytes(c *productChoice, stages int32) int {
	const align, barriers = 1024, 640
	parts := x.parts()
	each := (x.blocks() + parts - 1) / parts
	if c.narrow {
		rows := (c.inputs + 63) / 64 * 64
		scales, sums := (2*each+scaleBox-1)/scaleBox*scaleBox*rows*4, 2*rows*64
		return int(align + stages*(c.weights+rows)*128 + sums + barriers + scales)
	}
	groups, scales, sums := c.weights/stripeRows, int32(0), int32(0)
	out := 4 * groups * c.inputs * 32
	if c.turned {
		out = 0
	}
	if x.Type == ProductFP8 {
		scales = (each + scaleBox - 1) / scaleBox * scaleBox * c.inputs * 4
	}
	if parts > 1 {
		sums = groups * 2048 * max(c.inputs/8, parts)
	}
	if x.Folded {
		return int(align + stages*(foldedRoom+c.inputs*128) + out + barriers + scales + sums)
	}
	return int(align + stages*(c.weights+c.inputs)*128 + out + barriers + scales + sums)
}

// many returns the kernel for many rows with tiles of the given number of columns.
func (x *Product) many(columns int32) productChoice {
	name := map[int32]string{64: "many64", 128: "many128", 176: "many176", 192: "many192", 256: "many256"}[columns]
	if x.parts() > 1 {
		name += "_parts"
	}
	c := productChoice{kernel: x.name(name), inputs: manyRows, weights: columns, perSM: 1, cost: 100}
	switch {
	case x.Type == ProductFP8 && columns == 192:
		c.cost = 94
	case columns == 64: // bound by the traffic from L2
		c.cost = 130
	}
	return c
}

// tall returns the e4m3 kernel for many rows with tiles of 256 rows.
func (x *Product) tall() productChoice {
	c := productChoice{kernel: x.name("many256"), inputs: 2 * manyRows, weights: 128, across: true, perSM: 1, cost: 95}
	if x.parts() > 1 {
		c.kernel, c.sums = x.name("many256_parts"), true
	}
	return c
}

// residentFits reports whether the kernel that keeps the weights of one batch entry in shared memory can compute the
// product.
func (x *Product) residentFits() bool {
	const mostTiles, stages = 8, 4 // tiles of 128 weight rows and a block of k in shared memory, stages of inputs
	columns := (x.Columns + 127) / 128
	return x.Type == ProductBF16 && !x.OutF32 && x.parts() == 1 && columns*x.blocks() <= mostTiles &&
		(columns == 1 || x.blocks() <= stages)
}

// resident returns the kernel that keeps the weights of a batch entry in shared memory.
func (x *Product) resident() productChoice {
	return productChoice{kernel: x.name("resident"), inputs: manyRows, weights: 128, perSM: 1, resident: true}
}

// cheapest returns the kernel for many rows with the shortest estimated time, assuming that all tiles that run at the
// same time take equally long.
func (x *Product) cheapest(sms int32, choices ...productChoice) productChoice {
	best := choices[0]
	for _, c := range choices[1:] {
		if x.time(&c, sms) < x.time(&best, sms) {
			best = c
		}
	}
	return best
}

// time returns the relative time of the tiles that a cluster of two blocks computes in sequence.
func (x *Product) time(c *productChoice, sms int32) int64 {
	rows, columns := 2*c.inputs, c.weights // rows and columns of a cluster
	if c.across {
		rows, columns = c.inputs, 2*c.weights
	}
	tiles := (int64(x.Rows) + int64(rows) - 1) / int64(rows) * int64(x.tiles(columns))
	clusters := int64(max(sms/2, 1))
	return (tiles + clusters - 1) / clusters * int64(c.inputs) * int64(c.weights) * c.cost
}

// tiles returns the number of tiles with the given number of columns, in all weights of the batch.
func (x *Product) tiles(columns int32) int32 { return (x.Columns + columns - 1) / columns * x.Batch }

func (x *Product) name(kernel string) string {
	if x.Folded {
		return "sparrow_product_folded_" + kernel
	}
	return "sparrow_product_" + x.Type.String() + "_" + kernel
}
