package cuda

import "reflect"

// Mirrors lists the Go type of every argument struct of kernels by the name of the C struct. A test compares sizes,
// offsets and field names with those that the device compiler recorded in the images.
func Mirrors() map[string]reflect.Type {
	m := map[string]reflect.Type{}
	for _, v := range []any{
		PoolView{}, RotaryView{}, SlotListView{}, PageTableView{}, IndexRecipeView{},
		WriteMainArgs{}, GatherSlotsArgs{}, GatherPagesArgs{}, AllReduceArgs{},
		GatherRanksArgs{}, ReduceScatterArgs{}, PartIdsArgs{},
		WriteIndexKeyArgs{}, IndexQueryArgs{}, GatherIndexSlotsArgs{}, GatherIndexPagesArgs{},
		WriteV4Args{}, CombineV4Args{}, RMSNormArgs{}, LocateArgs{},
		ListedView{}, ExpertsArgs{}, RouteExpertsArgs{}, PackExpertArgs{}, PackE2M1Args{},
		PickArgs{}, PutArgs{}, MoveArgs{}, AnglesArgs{}, RotateArgs{}, GateArgs{}, RouteArgs{}, CandidatesArgs{},
		SampleArgs{}, AcceptArgs{},
		IndexRaggedArgs{}, IndexPagedArgs{}, TopKArgs{}, SelectedScoresArgs{},
		SelectionView{}, SparseAttendArgs{}, MappedAttendArgs{}, DenseAttendArgs{}, ProductArgs{}, QuantiseRowsArgs{},
		NormQuantiseArgs{},
		GateQuantiseArgs{}, StoreLatentArgs{}, TurnArgs{}, DrawArgs{}, WidenArgs{}, MergeArgs{}, LowRankArgs{},
		PutFourArgs{}, HeadTurnArgs{}, QuantiseTurnedArgs{}, HyperSumArgs{}, MixNormArgs{}, PartsArgs{},
		PickFourArgs{}, AngleFourArgs{},
		HyperMixArgs{}, HyperPostArgs{}, HyperStepArgs{}, HyperManyArgs{}, HeadNormArgs{}, CompressArgs{},
		TallyArgs{},
		ExchangeArgs{}, PlacesArgs{}, FetchArgs{}, PackedArgs{}, PackPackedArgs{}, PackedPairArgs{}, UnfoldArgs{},
		SequencesView{}, ConvolveArgs{}, DeltaArgs{}, GatedNormArgs{}, LayerNormArgs{}, MeanStreamsArgs{},
		SpreadPoolsArgs{},
		ScoreV41Args{}, BlockMaxArgs{}, EngramArgs{}, ReadTableArgs{}, CollapseArgs{},
	} {
		t := reflect.TypeOf(v)
		m[t.Name()] = t
	}
	return m
}
