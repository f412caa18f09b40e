package sample

// Stream identifies one of the independent random numbers of an output token.
type Stream uint32

const (
	StreamToken    Stream = iota // for sampling the token
	StreamAccept                 // for the test whether a draft is accepted
	StreamResidual               // for sampling the replacement of a rejected draft
)

// Uniform returns a random number in [0, 1) for output token number step of a choice. It is a pure function of its
// arguments with 53 random bits: Philox4x32 with ten rounds, key = seed, counter = (step, choice, stream).
func Uniform(seed int64, choice int, step int, stream Stream) float64 {
	return float64(randomBits(seed, choice, step, stream)>>11) * 0x1p-53
}

// randomBits returns the random number of Uniform times 2^64; its lowest 11 bits are zero.
func randomBits(seed int64, choice int, step int, stream Stream) uint64 {
	key := [2]uint32{uint32(seed), uint32(uint64(seed) >> 32)}
	counter := [4]uint32{uint32(step), uint32(uint64(step) >> 32), uint32(choice), uint32(stream)}
	r := philox(counter, key)
	return (uint64(r[0])<<32 | uint64(r[1])) &^ (1<<11 - 1)
}

// philox is the counter-based generator of Salmon and others, "Parallel random numbers: as easy as 1, 2, 3" (2011),
// section 3.
func philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	const (
		mul0, mul1   = 0xD2511F53, 0xCD9E8D57
		weyl0, weyl1 = 0x9E3779B9, 0xBB67AE85
	)
	for range 10 {
		p0 := uint64(mul0) * uint64(counter[0])
		p1 := uint64(mul1) * uint64(counter[2])
		counter = [4]uint32{
			uint32(p1>>32) ^ counter[1] ^ key[0],
			uint32(p1),
			uint32(p0>>32) ^ counter[3] ^ key[1],
			uint32(p0),
		}
		key[0] += weyl0
		key[1] += weyl1
	}
	return counter
}
