package cuda

import (
	"errors"
	"math"
	"strings"
	"testing"

	"sparrow/internal/cuda/image"
	"sparrow/layout"
)

// No launch uses this address: the kernels of these tests are not loaded, so a call that passes its checks ends with
// ErrUnknown.
const somewhere Ptr = 1 << 20

var (
	somePool   = PoolView{Base: somewhere, PageBytes: 64 * 1152, PageTokens: 64, Slots: 640}
	someRotary = RotaryView{Table: somewhere, Rows: 100}
)

func someWrite() WriteMainArgs {
	return WriteMainArgs{Pool: somePool, Rotary: someRotary, Latent: somewhere, Key: somewhere, Positions: somewhere,
		Slots: somewhere, LatentStride: 512, KeyStride: 64, Tokens: 5, KScale: 1}
}

func someSlots() GatherSlotsArgs {
	return GatherSlotsArgs{Pool: somePool, Source: SlotListView{somewhere}, Rows: somewhere, RowBytes: 1152, Count: 5,
		KScale: 1}
}

func somePages() GatherPagesArgs {
	return GatherPagesArgs{Pool: somePool,
		Source: PageTableView{Table: somewhere, Starts: somewhere, TableStride: 4, Requests: 2}, Rows: somewhere,
		RowBytes: 1152, Count: 5, KScale: 1}
}

func someKeys() WriteIndexKeyArgs {
	return WriteIndexKeyArgs{Pool: somePool, Rotary: someRotary, Keys: somewhere, Gamma: somewhere, Beta: somewhere,
		Positions: somewhere, Slots: somewhere, Epsilon: 1e-6, KeyStride: 128, Tokens: 5}
}

func someQueries() IndexQueryArgs {
	return IndexQueryArgs{Rotary: someRotary, Queries: somewhere, Weights: somewhere, Positions: somewhere,
		Codes: somewhere, Folded: somewhere, QueryStride: 8192, WeightStride: 64, Tokens: 5, Heads: 64, PaddedHeads: 64}
}

func someV4() WriteV4Args {
	return WriteV4Args{Pool: somePool, Rotary: someRotary, Rows: somewhere, Positions: somewhere, Slots: somewhere,
		RowStride: 512, Tokens: 5}
}

func someCombine() CombineV4Args {
	return CombineV4Args{Window: somewhere, WindowLength: somewhere, Extra: somewhere, ExtraLength: somewhere,
		Rows: somewhere, Lengths: somewhere, WindowStride: 128, ExtraStride: 512, Tokens: 5, WindowWidth: 128,
		ExtraWidth: 512}
}

func someTopK() TopKArgs {
	return TopKArgs{Scores: somewhere, Lengths: somewhere, Out: somewhere, PageTable: somewhere, Offsets: somewhere,
		Stride: 64, Rows: 5, K: 16, RowsPerRequest: 1}
}

func someSelected() SelectedScoresArgs {
	return SelectedScoresArgs{Scores: somewhere, Positions: somewhere, Lengths: somewhere, Out: somewhere, Stride: 64,
		PositionStride: 16, OutStride: 16, Rows: 5, Columns: 16, Keys: 64}
}

func somePick() PickArgs {
	return PickArgs{Table: somewhere, IDs: somewhere, Out: somewhere, TableStride: 8, IDStride: 1, OutStride: 8,
		Rows: 5, Columns: 8,
		TableRows: 9, TableType: ElementF16, OutType: ElementBF16}
}

func somePut() PutArgs {
	return PutArgs{X: somewhere, Places: somewhere, Out: somewhere, XStride: 8, PlaceStride: 1, OutStride: 16, Rows: 5,
		Columns: 8, OutRows: 9, XType: ElementF32, OutType: ElementBF16}
}

func someMix() HyperMixArgs {
	return HyperMixArgs{X: somewhere, Mix: somewhere, Base: somewhere, Scale: somewhere, Out: somewhere,
		Post: somewhere, Comb: somewhere, XStride: 32, MixStride: 24, OutStride: 8, PostStride: 4, CombStride: 16,
		Rows: 5, Hidden: 8, Streams: 4, Rounds: 20}
}

func somePost() HyperPostArgs {
	return HyperPostArgs{X: somewhere, Sub: somewhere, Post: somewhere, Comb: somewhere, XStride: 32, SubStride: 8,
		PostStride: 4, CombStride: 16, Rows: 5, Hidden: 8, Streams: 4}
}

func someHeads() HeadNormArgs {
	return HeadNormArgs{X: somewhere, XStride: 2048, Rows: 5, Heads: 4, Columns: 512}
}

func someCompress() CompressArgs {
	return CompressArgs{Values: somewhere, Gates: somewhere, State: somewhere, APE: somewhere, Sources: somewhere,
		Out: somewhere, ValueStride: 1024, GateStride: 1024, StateStride: 2048, APEStride: 1024, SourceStride: 8,
		OutStride: 512, Entries: 2, Columns: 512, Ratio: 4, Halves: 2, Rows: 5, StateRows: 64}
}

func someTally() TallyArgs {
	return TallyArgs{Counts: somewhere, IDs: somewhere, Seen: somewhere, IDStride: 8, SeenStride: 1, Rows: 5, Top: 6,
		Experts: 256}
}

func someAngles() AnglesArgs {
	return AnglesArgs{Positions: somewhere, Frequency: somewhere, Out: somewhere, PositionStride: 1, OutStride: 64,
		Rows: 5, Count: 32, Scale: 1}
}

func someRotate() RotateArgs {
	return RotateArgs{X: somewhere, Angles: somewhere, XStride: 384, AngleStride: 64, Rows: 5, Heads: 2, HeadDim: 192,
		Offset: 128, Rope: 64}
}

func someGate() GateArgs {
	return GateArgs{Gate: somewhere, Up: somewhere, Out: somewhere, GateStride: 8, UpStride: 8, OutStride: 8, Rows: 5,
		Columns: 8}
}

func someLowRank() LowRankArgs {
	return LowRankArgs{Weight: somewhere, Input: somewhere, Out: somewhere, WeightStride: 256, InputStride: 264,
		OutStride: 1000, Rows: 5, Columns: 1000, K: 256}
}

func someGateQuantise() GateQuantiseArgs {
	return GateQuantiseArgs{Gate: somewhere, Up: somewhere, Out: somewhere, Codes: somewhere, Scales: somewhere,
		GateStride: 256, UpStride: 256, OutStride: 128, CodeStride: 128, ScaleStride: 8, Rows: 5, Columns: 128}
}

func someRoute() RouteArgs {
	return RouteArgs{Logits: somewhere, Bias: somewhere, IDs: somewhere, Weights: somewhere, LogitStride: 256,
		IDStride: 33, WeightStride: 33,
		Rows: 5, Experts: 256, Top: 8, Groups: 8, KeepGroups: 4}
}

func someCandidates() CandidatesArgs {
	return CandidatesArgs{Logits: somewhere, IDs: somewhere, Values: somewhere, LogSum: somewhere, Keys: somewhere,
		Stride: 100, IDStride: 5,
		ValueStride: 5, Rows: 5, Columns: 100, Best: 5}
}

func someSample() SampleArgs {
	return SampleArgs{Logits: somewhere, Draws: somewhere, Best: somewhere, IDs: somewhere, Stride: 100, IDStride: 1,
		Rows: 5, Columns: 100}
}

func someAccept() AcceptArgs {
	return AcceptArgs{Tokens: somewhere, Drafts: somewhere, Words: somewhere, Out: somewhere, TokenStride: 1, Rows: 5,
		Columns: 100, TokenCount: 9, Sequences: 3, Most: 2}
}

func someDraw() DrawArgs {
	return DrawArgs{Out: somewhere, Stride: 8, Rows: 5, Columns: 8, FromStride: 8, Step: 1, Type: ElementE4M3}
}

func someWiden() WidenArgs {
	return WidenArgs{From: somewhere, Scales: somewhere, Out: somewhere, Rows: 5, Columns: 300, ScaleStride: 3,
		BlockRows: 128, BlockColumns: 128, Type: ElementE4M3}
}

func someMerge() MergeArgs {
	return MergeArgs{Codes: somewhere, Scales: somewhere, To: somewhere, Rows: 5, Columns: 300, ScaleStride: 10,
		BlockRows: 32, BlockColumns: 32}
}

var (
	someShape   = ExpertShape{Experts: 2, Hidden: 32, Inner: 32}
	somePacked4 = ExpertShape{Experts: 2, Hidden: 32, Inner: 32, BF16: true, E2M1: true}
	someMatrix  = Matrix{Data: somewhere, Scales: somewhere, Stride: 32, ScaleStride: 1}
	somePacked  = PackedExperts{GateUp: somewhere, GateUpScales: somewhere, Down: somewhere, DownScales: somewhere}
)

func TestExpertArgumentsAreChecked(t *testing.T) {
	good := Experts{Shape: someShape, Packed: somePacked, X: somewhere, Out: somewhere, IDs: somewhere,
		Weights: somewhere, Scratch: somewhere,
		XStride: 32, OutStride: 32, IDStride: 8, WeightStride: 8, Rows: 65, Top: 8}
	a, err := good.Encode()
	if err != nil {
		t.Fatal(err)
	}
	last := a.Results + Ptr(65*8*32*2)
	if need := Ptr(someShape.ScratchBytes(65, 8)); last > somewhere+need || a.Codes != somewhere {
		t.Errorf("scratch begins at %#x and its last piece ends at %#x, want it inside %d bytes from %#x", a.Codes,
			last, need, somewhere)
	}
	if few := *with(good, func(x *Experts) { x.Rows = 64 }); a.GroupRows != 128 {
		t.Errorf("65 rows in groups of %d, want 128", a.GroupRows)
	} else if b, err := few.Encode(); err != nil || b.GroupRows != 64 {
		t.Errorf("64 rows in groups of %d, %v; want 64", b.GroupRows, err)
	}
	for says, change := range map[string]func(*Experts){
		"1 to 512":           func(x *Experts) { x.Shape.Experts = 513 },
		"x at":               func(x *Experts) { x.X = 8 },
		"x stride 33":        func(x *Experts) { x.XStride = 33 },
		"id stride 7":        func(x *Experts) { x.IDStride = 7 },
		"choices of a row":   func(x *Experts) { x.Top = 0 },
		"exceed 131072":      func(x *Experts) { x.Rows = 16385 },
		"scratch is not":     func(x *Experts) { x.Scratch = 0 },
		"limit NaN":          func(x *Experts) { x.Limit = float32(math.NaN()) },
		"packed scales of d": func(x *Experts) { x.Packed.DownScales = 0 },
	} {
		if _, err := with(good, change).Encode(); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want an argument error that says %q", err, says)
		}
	}
}

// with returns a copy of launch arguments with one argument changed.
func with[T any](a T, change func(*T)) *T {
	change(&a)
	return &a
}

func TestLaunchersNameTheArgumentThatIsWrong(t *testing.T) {
	k, s := &Kernels{device: &Device{}}, &Stream{}
	keep := func(*WriteMainArgs) {}
	for _, c := range []struct {
		name string
		err  error
		says string // empty if the arguments are valid
	}{
		{"write", WriteMain(k, s, layout.BF16Row1152, with(someWrite(), keep)), ""},
		{"write nothing", WriteMain(k, s, layout.BF16Row1152,
			with(someWrite(), func(a *WriteMainArgs) { a.Tokens = 0 })), "no launch"},
		{"layout", WriteMain(k, s, layout.F32Row2304, with(someWrite(), keep)), "f32-2304"},
		{"no latent", WriteMain(k, s, layout.BF16Row1152, with(someWrite(), func(a *WriteMainArgs) { a.Latent = 0 })),
			"latent is not given"},
		{"latent alignment", WriteMain(k, s, layout.BF16Row1152,
			with(someWrite(), func(a *WriteMainArgs) { a.Latent = 8 })), "latent at 0x8"},
		{"latent stride", WriteMain(k, s, layout.BF16Row1152,
			with(someWrite(), func(a *WriteMainArgs) { a.LatentStride = 500 })), "latent stride 500"},
		{"negative tokens", WriteMain(k, s, layout.BF16Row1152,
			with(someWrite(), func(a *WriteMainArgs) { a.Tokens = -1 })), "tokens -1"},
		{"page too small", WriteMain(k, s, layout.BF16Row1152,
			with(someWrite(), func(a *WriteMainArgs) { a.Pool.PageBytes = 64 * 656 })), "page bytes 41984"},
		{"scale", WriteMain(k, s, layout.FP8Row576, with(someWrite(), func(a *WriteMainArgs) { a.KScale = 0 })),
			"scale 0"},
		{"rotary", WriteMain(k, s, layout.FP8Row656, with(someWrite(), func(a *WriteMainArgs) { a.Rotary.Rows = 0 })),
			"rotary rows 0"},
		{"gather", GatherSlots(k, s, layout.FP8Row656, with(someSlots(), func(*GatherSlotsArgs) {})), ""},
		{"gather row bytes", GatherSlots(k, s, layout.FP8Row656,
			with(someSlots(), func(a *GatherSlotsArgs) { a.RowBytes = 656 })), "row bytes 656"},
		{"gather no slots", GatherSlots(k, s, layout.FP8Row656,
			with(someSlots(), func(a *GatherSlotsArgs) { a.Source.Slots = 0 })), "slots is not given"},
		{"raw to block", RawToBlockSlots(k, s, with(someSlots(), func(a *GatherSlotsArgs) { a.RowBytes = 656 })), ""},
		{"pages", GatherPages(k, s, layout.FP8Row576, with(somePages(), func(*GatherPagesArgs) {})), ""},
		{"raw to block pages", RawToBlockPages(k, s,
			with(somePages(), func(a *GatherPagesArgs) { a.Source.Requests = -1 })), "requests -1"},
		{"index keys", WriteIndexKeys(k, s, with(someKeys(), func(*WriteIndexKeyArgs) {})), ""},
		{"index keys without norm", WriteIndexKeys(k, s,
			with(someKeys(), func(a *WriteIndexKeyArgs) { a.Gamma, a.Beta, a.Epsilon = 0, 0, 0 })), ""},
		{"epsilon", WriteIndexKeys(k, s, with(someKeys(), func(a *WriteIndexKeyArgs) { a.Epsilon = 0 })), "epsilon"},
		{"rope at 32", WriteIndexKeys(k, s, with(someKeys(), func(a *WriteIndexKeyArgs) { a.Recipe.RopeAt = 32 })),
			"start at 32"},
		{"hadamard 2", WriteIndexKeys(k, s, with(someKeys(), func(a *WriteIndexKeyArgs) { a.Recipe.Hadamard = 2 })),
			"hadamard is 2"},
		{"queries", PrepareIndexQueries(k, s, with(someQueries(), func(*IndexQueryArgs) {})), ""},
		{"padding below heads", PrepareIndexQueries(k, s,
			with(someQueries(), func(a *IndexQueryArgs) { a.PaddedHeads = 32 })), "padded heads 32"},
		{"v4", WriteV4(k, s, with(someV4(), func(*WriteV4Args) {})), ""},
		{"v4 gather", GatherV4Slots(k, s, with(someSlots(), func(*GatherSlotsArgs) {})), ""},
		{"v4 gather pages", gatherV4Pages(k, s, with(somePages(), func(a *GatherPagesArgs) { a.RowBytes = 1000 })),
			"row bytes 1000"},
		{"combine", CombineV4(k, s, with(someCombine(), func(*CombineV4Args) {})), ""},
		{"combine stride", CombineV4(k, s, with(someCombine(), func(a *CombineV4Args) { a.ExtraStride = 100 })),
			"extra stride 100"},
		{"top-k", SelectTopK(k, s, with(someTopK(), func(*TopKArgs) {})), ""},
		{"kept without via", SelectTopK(k, s, with(someTopK(), func(a *TopKArgs) { a.Kept = somewhere })),
			"kept at 0x100000 and via at 0x0"},
		{"negative columns", SelectTopK(k, s, with(someTopK(), func(a *TopKArgs) { a.Columns = -1 })), "columns -1"},
		{"top-k too large", SelectTopK(k, s, with(someTopK(), func(a *TopKArgs) { a.K = 2049 })), "top-k is 2049"},
		{"top-k transform", SelectTopK(k, s, with(someTopK(), func(a *TopKArgs) { a.Transform = 3 })), "transform 3"},
		{"top-k ragged without offsets",
			SelectTopK(k, s, with(someTopK(), func(a *TopKArgs) { a.Transform, a.Offsets = int32(TopKRagged), 0 })),
			"offsets is not given"},
		{"pick", PickRows(k, s, with(somePick(), func(*PickArgs) {})), ""},
		{"pick f16 into f16", PickRows(k, s, with(somePick(), func(a *PickArgs) { a.OutType = ElementF16 })),
			"out has element type 2"},
		{"pick stride", PickRows(k, s, with(somePick(), func(a *PickArgs) { a.TableStride = 7 })), "table stride 7"},
		{"pick no ids", PickRows(k, s, with(somePick(), func(a *PickArgs) { a.IDs = 0 })), "ids is not given"},
		{"put", PutRows(k, s, with(somePut(), func(*PutArgs) {})), ""},
		{"put f16", PutRows(k, s, with(somePut(), func(a *PutArgs) { a.XType = ElementF16 })), "x has element type 2"},
		{"put nowhere", PutRows(k, s, with(somePut(), func(a *PutArgs) { a.Places = 0 })), "places is not given"},
		{"mix", HyperMix(k, s, with(someMix(), func(*HyperMixArgs) {})), ""},
		{"collapse", HyperMix(k, s, with(someMix(), func(a *HyperMixArgs) {
			a.Post, a.Comb, a.MixStride = 0, 0, 4
		})), ""},
		{"mix 17 streams", HyperMix(k, s, with(someMix(), func(a *HyperMixArgs) { a.Streams = 17 })), "17 streams"},
		{"mix too narrow", HyperMix(k, s, with(someMix(), func(a *HyperMixArgs) { a.MixStride = 23 })),
			"mix stride 23"},
		{"mix without post", HyperMix(k, s, with(someMix(), func(a *HyperMixArgs) { a.Post = 0 })),
			"comb is given without post"},
		{"post", HyperPost(k, s, with(somePost(), func(*HyperPostArgs) {})), ""},
		{"post strides", HyperPost(k, s, with(somePost(), func(a *HyperPostArgs) { a.XStride = 31 })), "x stride 31"},
		{"post of nothing", HyperPost(k, s, with(somePost(), func(a *HyperPostArgs) { a.Rows = 0 })), "no launch"},
		{"head norm", HeadNorm(k, s, with(someHeads(), func(*HeadNormArgs) {})), ""},
		{"head norm of too many", HeadNorm(k, s, with(someHeads(), func(a *HeadNormArgs) {
			a.Rows, a.Heads, a.XStride = math.MaxInt32, 128, 1<<16
		})), "heads in all"},
		{"compress", CompressGroups(k, s, with(someCompress(), func(*CompressArgs) {})), ""},
		{"compress state", CompressGroups(k, s, with(someCompress(), func(a *CompressArgs) { a.StateStride = 1024 })),
			"state stride 1024"},
		{"tally", TallyChoices(k, s, with(someTally(), func(*TallyArgs) {})), ""},
		{"tally nothing", TallyChoices(k, s, with(someTally(), func(a *TallyArgs) { a.Experts = 0 })), "experts"},
		{"tally overlapping", TallyChoices(k, s, with(someTally(), func(a *TallyArgs) { a.IDStride = 5 })),
			"id stride"},
		{"tally nowhere", TallyChoices(k, s, with(someTally(), func(a *TallyArgs) { a.Counts = 0 })),
			"counts is not given"},
		{"compress thirds", CompressGroups(k, s, with(someCompress(), func(a *CompressArgs) { a.Halves = 3 })),
			"halves is 3"},
		{"selected scores", SelectedScores(k, s, with(someSelected(), func(*SelectedScoresArgs) {})), ""},
		{"selected scores of no scores", SelectedScores(k, s, with(someSelected(), func(a *SelectedScoresArgs) {
			a.Scores, a.Keys, a.Stride = 0, 0, 0
		})), ""},
		{"selected scores nowhere", SelectedScores(k, s, with(someSelected(), func(a *SelectedScoresArgs) {
			a.Out = 0
		})), "out is not given"},
		{"angles", ComputeAngles(k, s, with(someAngles(), func(*AnglesArgs) {})), ""},
		{"angles without frequencies", ComputeAngles(k, s, with(someAngles(), func(a *AnglesArgs) { a.Count = 0 })),
			"count 0"},
		{"rotate", Turn(k, s, &TurnArgs{Rotate: *with(someRotate(), func(*RotateArgs) {})}), ""},
		{"rotate beyond the head", Turn(k, s, &TurnArgs{Rotate: *with(someRotate(),
			func(a *RotateArgs) { a.Offset = 129 })}),
			"columns 129 to 193"},
		{"rotate an odd number", Turn(k, s, &TurnArgs{Rotate: *with(someRotate(),
			func(a *RotateArgs) { a.Rope = 63 })}),
			"even number"},
		{"rotate into heads too short", Turn(k, s, &TurnArgs{Rotate: *with(someRotate(), func(a *RotateArgs) {
			a.Copy, a.CopyStride, a.CopyDim, a.CopyOffset = somewhere, 256, 128, 65
		})}), "columns 65 to 129 are outside the heads of 128 columns of the copy"},
		{"rotate and locate", Turn(k, s, &TurnArgs{Rotate: someRotate(), Locate: LocateArgs{Rows: 1, Columns: 1,
			Out: somewhere}}), "positions is not given"},
		{"gate and quantise", GateQuantise(k, s, with(someGateQuantise(), func(*GateQuantiseArgs) {})), ""},
		{"gate and quantise nowhere", GateQuantise(k, s, with(someGateQuantise(), func(a *GateQuantiseArgs) {
			a.Codes = 0
		})), "codes is not given"},
		{"gate and quantise between pieces", GateQuantise(k, s, with(someGateQuantise(), func(a *GateQuantiseArgs) {
			a.UpStride = 129
		})), "up stride 129"},
		{"route other experts", RouteAndPrepare(k, s, ExpertShape{}, &RouteExpertsArgs{Route: someRoute(),
			Arrived: somewhere}), "5 rows of 8 choices among 256 experts were routed, but 0 rows of 0 choices among " +
			"0 are run"},
		{"low rank", MultiplyLowRank(k, s, with(someLowRank(), func(*LowRankArgs) {})), ""},
		{"low rank of long rows", MultiplyLowRank(k, s, with(someLowRank(), func(a *LowRankArgs) {
			a.K, a.WeightStride, a.InputStride = 520, 520, 520
		})), "k is 520, want at most 512"},
		{"low rank between pieces", MultiplyLowRank(k, s, with(someLowRank(), func(a *LowRankArgs) {
			a.InputStride = 260
		})), "input stride 260"},
		{"gate", GateRows(k, s, with(someGate(), func(*GateArgs) {})), ""},
		{"gate limit", GateRows(k, s, with(someGate(), func(a *GateArgs) { a.Limit = -1 })), "limit -1"},
		{"route", RouteExperts(k, s, with(someRoute(), func(*RouteArgs) {})), ""},
		{"route groups", RouteExperts(k, s, with(someRoute(), func(a *RouteArgs) { a.Groups = 3 })),
			"256 experts in 3 groups"},
		{"route by table", RouteExperts(k, s, with(someRoute(), func(a *RouteArgs) {
			a.Bias, a.Table, a.Tokens, a.TableStride, a.TokenStride, a.TableRows = 0, somewhere, somewhere, 8, 1, 9
		})), ""},
		{"route by a narrow table", RouteExperts(k, s, with(someRoute(), func(a *RouteArgs) {
			a.Table, a.Tokens, a.TableStride, a.TokenStride, a.TableRows = somewhere, somewhere, 7, 1, 9
		})), "table stride 7"},
		{"route top", RouteExperts(k, s, with(someRoute(), func(a *RouteArgs) { a.Top = 33 })), "the best 33"},
		{"candidates", FindCandidates(k, s, with(someCandidates(), func(*CandidatesArgs) {})), ""},
		{"65 candidates", FindCandidates(k, s, with(someCandidates(), func(a *CandidatesArgs) { a.Best = 65 })),
			"best 65"},
		{"candidates of too few", FindCandidates(k, s, with(someCandidates(),
			func(a *CandidatesArgs) { a.Columns = 3 })), "best 5 of 3"},
		{"sample", SampleRows(k, s, with(someSample(), func(*SampleArgs) {})), ""},
		{"accept", AcceptDrafts(k, s, with(someAccept(), func(*AcceptArgs) {})), ""},
		{"accept without words", AcceptDrafts(k, s, with(someAccept(), func(a *AcceptArgs) { a.Words = 0 })), "words"},
		{"accept fewer drafts than none", AcceptDrafts(k, s, with(someAccept(), func(a *AcceptArgs) { a.Most = -1 })),
			"drafts"},
		{"sample of too many", SampleRows(k, s, with(someSample(),
			func(a *SampleArgs) { a.Columns, a.Stride = 262145, 262145 })), "262145 columns"},
		{"sample by odd words", SampleRows(k, s, with(someSample(), func(a *SampleArgs) { a.Draws += 4 })), "draws"},
		{"pack", PackExpert(k, s, someShape, 1, someMatrix, someMatrix, someMatrix, somePacked), ""},
		{"pack expert 2", PackExpert(k, s, someShape, 2, someMatrix, someMatrix, someMatrix, somePacked),
			"expert 2 was given, want one below 2"},
		{"pack an odd size", PackExpert(k, s, ExpertShape{Experts: 2, Hidden: 40, Inner: 32}, 0, someMatrix,
			someMatrix, someMatrix, somePacked),
			"32 x 40"},
		{"pack e2m1", PackExpert(k, s, somePacked4, 1, someMatrix, someMatrix, someMatrix, somePacked), ""},
		{"pack folded e2m1", PackExpert(k, s, ExpertShape{Experts: 2, Hidden: 32, Inner: 32, E2M1: true}, 1, someMatrix,
			someMatrix, someMatrix, somePacked), ""},
		{"pack e2m1 of 48", PackExpert(k, s, ExpertShape{Experts: 2, Hidden: 48, Inner: 32, BF16: true, E2M1: true}, 1,
			someMatrix, someMatrix, someMatrix, somePacked), "multiples of 32"},
		{"pack strides", PackExpert(k, s, someShape, 1, someMatrix, Matrix{somewhere, somewhere, 64, 1}, someMatrix,
			somePacked), "want equal strides for both"},
		{"draw", DrawValues(k, s, with(someDraw(), func(*DrawArgs) {})), ""},
		{"draw odd columns", DrawValues(k, s, with(someDraw(), func(a *DrawArgs) { a.Columns = 7 })), "columns 7"},
		{"draw f16", DrawValues(k, s, with(someDraw(), func(a *DrawArgs) { a.Type = ElementF16 })),
			"element type is 2"},
		{"draw too much", DrawValues(k, s, with(someDraw(), func(a *DrawArgs) { a.Rows = 1 << 40 })), "want at most"},
		{"widen", WidenWeight(k, s, with(someWiden(), func(*WidenArgs) {})), ""},
		{"widen into nothing", WidenWeight(k, s, with(someWiden(), func(a *WidenArgs) { a.Out = 0 })), "no output"},
		{"widen scales", WidenWeight(k, s, with(someWiden(), func(a *WidenArgs) { a.ScaleStride = 1 })),
			"scale stride is 1, too small for 300 columns"},
		{"widen and turn", WidenWeight(k, s,
			with(someWiden(), func(a *WidenArgs) { a.Turned, a.TurnedStride = somewhere, 4 })), "turned stride 4"},
		{"merge", MergeBlocks(k, s, with(someMerge(), func(*MergeArgs) {})), ""},
		{"merge blocks of 96", MergeBlocks(k, s, with(someMerge(), func(a *MergeArgs) { a.BlockRows = 96 })),
			"do not divide 128 x 128"},
		{"merge scales", MergeBlocks(k, s, with(someMerge(), func(a *MergeArgs) { a.ScaleStride = 9 })),
			"scale stride is 9, too small for 300 columns"},
		{"paged scores of 5 rows", ScorePaged(k, s, 64, &IndexPagedArgs{NextN: 5}), "5 query rows"},
	} {
		switch c.says {
		case "no launch":
			if c.err != nil {
				t.Errorf("%s: %v", c.name, c.err)
			}
		case "":
			if !errors.Is(c.err, image.ErrUnknown) {
				t.Errorf("%s: got %v, want to get as far as the kernel", c.name, c.err)
			}
		default:
			if !errors.Is(c.err, ErrArgument) || !strings.Contains(c.err.Error(), c.says) {
				t.Errorf("%s: got %v, want an argument error that says %q", c.name, c.err, c.says)
			}
		}
	}
}

func TestScoreArgumentsAreCheckedBeforeMapsAreMade(t *testing.T) {
	d := &Device{}
	r := IndexRagged{Queries: somewhere, Keys: somewhere, Scales: somewhere, Weights: somewhere, KeyStart: somewhere,
		KeyEnd: somewhere, Scores: somewhere, Stride: 64, Rows: 2, KeyCount: 64, Heads: 64}
	if _, err := r.Encode(d); !errors.Is(err, ErrClosed) {
		t.Errorf("correct ragged arguments ended with %v, want to get as far as the driver", err)
	}
	r.Heads = 48
	if _, err := r.Encode(d); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), "48 heads") {
		t.Errorf("48 heads gave %v", err)
	}
	p := IndexPaged{Queries: somewhere, Cache: somewhere, PageBytes: layout.IndexPageBytes, Pages: 4,
		Weights: somewhere, ContextLengths: somewhere, BlockTable: somewhere, Scores: somewhere, Stride: 256,
		TableStride: 4, Requests: 2, NextN: 2, Heads: 64, MaxContext: 256, MaxBlocks: 4}
	if _, err := p.Encode(d); !errors.Is(err, ErrClosed) {
		t.Errorf("correct paged arguments ended with %v, want to get as far as the driver", err)
	}
	p.NextN = 5
	if _, err := p.Encode(d); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), "5 query rows") {
		t.Errorf("5 query rows gave %v", err)
	}
}

func TestAllReduceArgumentsAreChecked(t *testing.T) {
	good := AllReduceArgs{X: somewhere, State: somewhere, Half: 4096, Bytes: 4096, Timeout: 1e9, Type: ElementBF16,
		Rank: 1, Ranks: 2, Staging: [MaxRanks]Ptr{somewhere, somewhere}, Flags: [MaxRanks]Ptr{somewhere, somewhere}}
	k := &Kernels{}
	if err := AllReduce(k, &Stream{}, &good); !errors.Is(err, image.ErrUnknown) || good.Blocks != 1 {
		t.Errorf("good arguments: %v, %d blocks", err, good.Blocks)
	}
	for says, change := range map[string]func(*AllReduceArgs){
		"x at":                                func(a *AllReduceArgs) { a.X = 8 },
		"bytes 24":                            func(a *AllReduceArgs) { a.Bytes = 24 },
		"rank 2 of 2":                         func(a *AllReduceArgs) { a.Rank = 2 },
		"rank 1 of 9":                         func(a *AllReduceArgs) { a.Ranks = 9 },
		"staging is not":                      func(a *AllReduceArgs) { a.Staging[1] = 0 },
		"flags is not":                        func(a *AllReduceArgs) { a.Flags[0] = 0 },
		"half of the staging memory has 2048": func(a *AllReduceArgs) { a.Half = 2048 },
		"time-out is 0":                       func(a *AllReduceArgs) { a.Timeout = 0 },
		"want f32 or":                         func(a *AllReduceArgs) { a.Type = ElementE4M3 },
	} {
		a := good
		change(&a)
		if err := AllReduce(k, &Stream{}, &a); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want an argument error that says %q", err, says)
		}
	}
}

func TestGathersAndScattersOfRanksAreChecked(t *testing.T) {
	peers := AllReduceArgs{X: somewhere, State: somewhere, Half: 4096, Timeout: 1e9, Type: ElementBF16, Rank: 1,
		Ranks: 2, Staging: [MaxRanks]Ptr{somewhere, somewhere}, Flags: [MaxRanks]Ptr{somewhere, somewhere}}
	gather := GatherRanksArgs{Peers: peers, Out: somewhere, XStride: 32, OutStride: 64, RowBytes: 32,
		Rows: [MaxRanks]int32{3, 5}}
	scatter := ReduceScatterArgs{Peers: peers, Out: somewhere, XStride: 64, OutStride: 32, RowBytes: 32, Rows: 5}
	k := &Kernels{}
	for says, change := range map[string]func(*GatherRanksArgs){
		"":                              func(*GatherRanksArgs) {},
		"row bytes 30":                  func(a *GatherRanksArgs) { a.RowBytes = 30 },
		"x stride 40":                   func(a *GatherRanksArgs) { a.XStride = 40 },
		"x stride 16":                   func(a *GatherRanksArgs) { a.XStride = 16 },
		"out at 0x100004":               func(a *GatherRanksArgs) { a.Out = somewhere + 4 },
		"first 8":                       func(a *GatherRanksArgs) { a.First[1] = 8 },
		"rows -1":                       func(a *GatherRanksArgs) { a.Rows[0] = -1 },
		"x has 4800 bytes, but half of": func(a *GatherRanksArgs) { a.Rows[0] = 150 },
		"rank 1 of 9":                   func(a *GatherRanksArgs) { a.Peers.Ranks = 9 },
	} {
		a := gather
		change(&a)
		if err := GatherRanks(k, &Stream{}, &a); !launchChecked(err, says) {
			t.Errorf("gather: got %v, want an argument error that says %q", err, says)
		}
	}
	words := gather
	words.RowBytes, words.XStride, words.Out = 20, 36, somewhere+4
	if err := GatherRanks(k, &Stream{}, &words); !launchChecked(err, "") || words.Unit != 4 {
		t.Errorf("rows of 20 bytes in units of %d: %v", words.Unit, err)
	}
	for says, change := range map[string]func(*ReduceScatterArgs){
		"":                              func(*ReduceScatterArgs) {},
		"row bytes 24":                  func(a *ReduceScatterArgs) { a.RowBytes = 24 },
		"x stride 32":                   func(a *ReduceScatterArgs) { a.XStride = 32 },
		"out stride 16":                 func(a *ReduceScatterArgs) { a.OutStride = 16 },
		"want f32 or":                   func(a *ReduceScatterArgs) { a.Peers.Type = ElementF16 },
		"x has 6400 bytes, but half of": func(a *ReduceScatterArgs) { a.Rows = 100 },
	} {
		a := scatter
		change(&a)
		if err := ReduceScatter(k, &Stream{}, &a); !launchChecked(err, says) {
			t.Errorf("scatter: got %v, want an argument error that says %q", err, says)
		}
	}
}

// launchChecked reports whether a launch was refused with an error that contains says or, if says is empty, reached its
// kernel.
func launchChecked(err error, says string) bool {
	if says == "" {
		return errors.Is(err, image.ErrUnknown)
	}
	return errors.Is(err, ErrArgument) && strings.Contains(err.Error(), says)
}
