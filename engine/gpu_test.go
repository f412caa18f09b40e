package engine

import (
	"testing"

	"sparrow/internal/testkit/gpu"
	"sparrow/internal/testkit/strict"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
)

// standIn, if set, opens the device that the engines of the tests run on, instead of the CPU device. standIn closes the
// CPU device at once, or together with the device that it returns.
var standIn func(t testing.TB, host kernel.Device) kernel.Device

// deviceTest is a test of this package that also runs on another device.
type deviceTest struct {
	name string
	test func(*testing.T)
}

// onDevices lists the tests of this package that also run on a GPU. They cover large batches, preemption, faults,
// drafts, cancellations, scores and restored prefixes.
var onDevices = []deviceTest{
	{"overlap", TestOverlappedBatchesChangeNoAnswer},
	{"overlap, cancellations", TestOverlapAndCancellations},
	{"overlap, faults", TestFaultsOfOverlappedPasses},
	{"drawn tokens", TestTokensDrawnOnTheDevice},
	{"drawn tokens, cancellations", TestDrawnTokensAndCancellations},
	{"drafts ahead", TestDraftsAheadAreThoseOfTheHost},
	{"drafting layer ahead", TestTheDraftingLayerAheadDraftsTheSame},
	{"drafts ahead, faults", TestFaultsOfDraftsAhead},
	{"unseen drafts", TestDraftsThatTheHostHasNotSeen},
	{"crowd", TestACrowdGetsTheLogitsOfLoneRunsToTheBit},
	{"drafts", TestDraftedAnswersArePlainAnswers},
	{"drafting crowd", TestADraftingCrowdGetsTheLogitsOfLonePlainRuns},
	{"cancelled drafts", TestCancelledDraftsLeakNothing},
	{"failing drafter", TestAFailingDrafterCostsNothingButSpeed},
	{"drafts one by one", TestDraftsOfBatchesThatRunOneByOne},
	{"cancellations", TestCancelledJobsLeakNothing},
	{"faulty request", TestOnlyTheFaultyRequestIsLost},
	{"choices after a fault", TestChoicesGoOnWithoutTheFirst},
	{"NaN", TestLogitsThatAreNotNumbers},
	{"rows of NaN", TestRowsThatAreNotNumbersFailAlone},
	{"panic", TestAPanicInSamplingLosesOneRequest},
	{"broken loop", TestABrokenLoopFailsEveryStream},
	{"greedy rows", TestGreedyChoicesNeedNoWholeRows},
	{"shared prefix", TestASharedPrefixIsComputedOnce},
	{"prefix that comes back", TestAPrefixThatComesBackHasTheBitsOfRecomputing},
	{"evictions", TestRandomEvictionsRestoresAndCancellationsLeakNothing},
	{"scores", TestScoresDoNotDependOnHowTheyAreComputed},
	{"close", TestCloseLetsRequestsFinish},
}

// stateful lists the tests of models with a state for each sequence.
var stateful = []deviceTest{
	{"crowd", TestAStatefulModelServesACrowdToTheBit},
	{"cancellations", TestCancelledRequestsOfAStatefulModelLeakNothing},
	{"drafting crowd", TestADraftingCrowdOfAStatefulModel},
	{"shared prompt", TestChoicesOfAStatefulModelShareThePrompt},
	{"every way to a prompt", TestEveryWayToAPromptGivesTheSameBits},
	{"blocks", TestBlocksAtEveryLength},
	{"true blocks", TestTrueBlocksAreAccepted},
	{"random blocks", TestRandomBatchesOfBlocks},
	{"random blocks ahead", TestRandomBatchesOfBlocksAhead},
	{"unseen blocks", TestBlocksThatTheHostHasNotSeen},
	{"what stages remember", TestWhatTheStagesRememberComesBack},
	{"law of sampled blocks", TestSampledBlocksFollowTheTarget},
}

// linear lists the tests of a model with linear attention.
var linear = []deviceTest{
	{"crowd", TestLinearAttentionServesACrowdToTheBit},
	{"every way to a prompt", TestEveryWayToAPromptOfLinearAttentionGivesTheSameBits},
	{"failed batch", TestAFailedBatchRestartsLinearAttention},
	{"conversation", TestAConversationReusesItsSnapshots},
	{"drafting crowd", TestADraftingCrowdOfLinearAttention},
}

// tables lists the tests of a model whose layers share entries and that has n-gram tables.
var tables = []deviceTest{
	{"crowd", TestAModelWithTablesServesACrowdToTheBit},
	{"every way to a prompt", TestEveryWayToAPromptOfTablesGivesTheSameBits},
}

// elsewhere runs tests on the device that open returns.
func elsewhere(t *testing.T, open func(t testing.TB, host kernel.Device) kernel.Device, tests []deviceTest) {
	standIn = open
	t.Cleanup(func() { standIn = nil })
	testmodel.OnGPU(t)
	for _, c := range tests {
		t.Run(c.name, c.test)
	}
}

// onGPU runs tests on the first GPU.
func onGPU(t *testing.T, tests []deviceTest) {
	t.Helper()
	gpu.Need(t)
	elsewhere(t, func(t testing.TB, host kernel.Device) kernel.Device {
		if err := host.Close(); err != nil {
			t.Fatal(err)
		}
		d := gpu.Open(t)
		return d
	}, tests)
}

func TestGPUEngine(t *testing.T) { onGPU(t, onDevices) }

// On a GPU, an engine passes the same tests with models without an indexer.
func TestGPUEngineWithoutIndexer(t *testing.T) {
	testmodel.WithoutIndexer(t)
	onGPU(t, onDevices)
}

func TestGPUStateful(t *testing.T) { onGPU(t, stateful) }

func TestGPULinearAttention(t *testing.T) { onGPU(t, linear) }

func TestGPUTables(t *testing.T) { onGPU(t, tables) }

// byRules returns a device that checks the arguments of operations by the rules of a GPU and computes on the host.
func byRules(t testing.TB, host kernel.Device) kernel.Device {
	s, err := strict.Open(host)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A device with the rules of a GPU accepts the operations of linear attention.
func TestLinearAttentionByADevicesRules(t *testing.T) {
	notUnderRace(t)
	elsewhere(t, byRules, []deviceTest{{"failed batch", TestAFailedBatchRestartsLinearAttention}})
}

// Requests that run together over n-gram tables and shared entries use operations that a GPU supports.
func TestTablesByADevicesRules(t *testing.T) {
	notUnderRace(t)
	elsewhere(t, byRules, []deviceTest{{"crowd", func(t *testing.T) { servesACrowd(t, testmodel.V41, 4) }}})
}

// The operations of overlapped passes, of sampling on the device and of drafts in advance follow the rules of a GPU.
func TestOverlapByADevicesRules(t *testing.T) {
	notUnderRace(t)
	list := []deviceTest{{"overlap", TestOverlappedBatchesChangeNoAnswer},
		{"drawn", TestTokensDrawnOnTheDevice}, {"unseen drafts", TestDraftsThatTheHostHasNotSeen}}
	if *everything { // this test has the operations of drafts that the host has not seen
		list = append(list, deviceTest{"drafts ahead", TestFaultsOfDraftsAhead})
	}
	elsewhere(t, byRules, list)
}

// Models without an indexer use operations in latent space over whole pages, which follow the rules of a GPU.
func TestEveryKeyByADevicesRules(t *testing.T) {
	notUnderRace(t)
	testmodel.WithoutIndexer(t)
	elsewhere(t, byRules, []deviceTest{{"shared prefix", TestASharedPrefixIsComputedOnce},
		{"drafting crowd", TestADraftingCrowdGetsTheLogitsOfLonePlainRuns}})
}

// Ranks on devices with the rules of a GPU and with bf16 activations share prefixes and cancel requests in the same way
// as one device. This holds for both ways of dividing attention.
func TestRanksByADevicesRules(t *testing.T) {
	notUnderRace(t)
	n, how := *ranks, *division
	defer func() { *ranks, *division = n, how }()
	for _, *division = range []string{"tp", "dp"} {
		*ranks = 2
		t.Run(*division, func(t *testing.T) {
			standIn = byRules
			t.Cleanup(func() { standIn = nil })
			testmodel.OnGPU(t)
			t.Run("shared prefix", TestASharedPrefixIsComputedOnce)
			t.Run("crowd", TestARankedCrowdGetsTheAnswersOfLoneRuns)
		})
	}
}

// Requests that run together on several ranks get the answers that each gets alone on one device.
func TestARankedCrowdGetsTheAnswersOfLoneRuns(t *testing.T) {
	list := crowd(6)
	cfg := Config{Policy: deterministic("fp8-656"), CacheTokens: 16 * 64, StepTokens: 96}
	want := lone(t, testmodel.V32(t), cfg, list)
	got := together(t, start(t, testmodel.V32(t), cfg, checked(t)), list)
	for i := range list {
		for j := range want[i].Choices {
			sameTokens(t, list[i].ID, got[i].Choices[j], want[i].Choices[j])
		}
	}
}
