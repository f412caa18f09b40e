package cuda

import "sparrow/layout"

// StoreLatentArgs are the arguments of the kernel that writes latent rows and indexer keys and prepares indexer
// queries. Each of the three parts is optional.
type StoreLatentArgs struct {
	Rows       WriteMainArgs
	Keys       WriteIndexKeyArgs
	Queries    IndexQueryArgs
	RowBlocks  int32 // numbers of blocks of the three parts; set by StoreLatent
	KeyBlocks  int32
	HeadBlocks int32
	Reserved   int32
}

// StoreLatent does the work of WriteMain, WriteIndexKeys and PrepareIndexQueries in one launch. Parts without tokens
// are skipped. The launch must not write the keys and queries that it reads.
func StoreLatent(k *Kernels, s *Stream, kind layout.Kind, a *StoreLatentArgs) error {
	names, err := kernelsOf(kind)
	if err != nil {
		return err
	}
	c := checks{kernel: names.store}
	blocks := uint32(0)
	if a.RowBlocks = int32(rowBlocks(a.Rows.Tokens, longRows)); a.Rows.Tokens > 0 {
		a.Rows.check(&c, kind, names)
	}
	if a.KeyBlocks = int32(rowBlocks(a.Keys.Tokens, shortRows)); a.Keys.Tokens > 0 {
		a.Keys.check(&c)
	}
	if a.Queries.Tokens > 0 {
		a.Queries.check(&c)
		a.HeadBlocks = int32(a.Queries.blocks())
		blocks = uint32(a.Queries.Tokens) * uint32(a.HeadBlocks)
	}
	return runGrid(k, s, &c, Dim{X: uint32(a.RowBlocks) + uint32(a.KeyBlocks) + blocks}, a)
}

// TurnArgs are the arguments of the kernel that rotates heads and locates positions; locating is optional.
type TurnArgs struct {
	Rotate     RotateArgs
	Locate     LocateArgs
	PairBlocks int32 // number of blocks that rotate a row; set by Turn
	Reserved   int32
}

// Turn applies RoPE to a part of every head and runs Locate in one launch.
func Turn(k *Kernels, s *Stream, a *TurnArgs) error {
	c := checks{kernel: "turn_and_locate"}
	a.Rotate.check(&c)
	a.PairBlocks = int32(a.Rotate.blocks())
	if a.Locate.Rows > 0 {
		a.Locate.check(&c)
	}
	return runGrid(k, s, &c, Dim{X: uint32(a.Rotate.Rows)*uint32(a.PairBlocks) + uint32(a.Locate.Rows)}, a)
}
