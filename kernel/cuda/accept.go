package cuda

// AcceptArgs are the arguments of the kernel that compares drafts with the tokens that the target chose.
type AcceptArgs struct {
	Tokens      Ptr   // i32 [TokenCount]: tokens that the target model chose
	Drafts      Ptr   // i32 [Sequences, 1+2*Most]: first token, then lowest and highest token of each draft
	Words       Ptr   // i32 [Rows, 3+Most]: place or -1-place, sequence, word for each count of accepted drafts
	Out         Ptr   // i32 [Columns]: words that are written
	Faults      Ptr   // one u32 of fault bits (FaultRow), or zero
	TokenStride int64 // entries between tokens
	Rows        int32
	Columns     int32
	TokenCount  int32
	Sequences   int32
	Most        int32 // maximum number of drafts of a sequence
	Reserved    int32
}

// AcceptDrafts writes one value for each row of Words: the word for the number of accepted drafts of its sequence or,
// for a negative place, the token that the target chose after the accepted drafts.
func AcceptDrafts(k *Kernels, s *Stream, a *AcceptArgs) error {
	c := checks{kernel: "accept_drafts"}
	c.memory("tokens", a.Tokens, 4)
	c.memory("drafts", a.Drafts, 4)
	c.memory("words", a.Words, 4)
	c.memory("out", a.Out, 4)
	c.multiple("token stride", a.TokenStride, 1, 1)
	c.count("rows", a.Rows)
	c.count("columns", a.Columns)
	c.count("tokens", a.TokenCount)
	c.count("sequences", a.Sequences)
	c.count("drafts", a.Most)
	return runRows(k, s, &c, a.Rows, portableThreads, a)
}
