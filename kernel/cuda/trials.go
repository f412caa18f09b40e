package cuda

// Trials are kernels that no default uses yet: they are correct where they were checked, and have not been timed beside
// what they would replace. The zero value is what runs everywhere.
type Trials struct {
	HeldRows bool // top-k of many rows of up to 8192 scores, a row in the registers of one block
}

// With is k with other trials. Both share modules, which k closes.
func (k *Kernels) With(t Trials) *Kernels {
	c := *k
	c.trials = t
	return &c
}
