package config

import (
	"math"
	"testing"
)

// The rotation frequencies of V3.2 equal the released ones (v32 spec, 2.3): pairs below 10 are unchanged, and pairs
// from 23 on are 40 times slower.
func TestYarnTable(t *testing.T) {
	want := []float64{
		1, 0.749894209, 0.562341325, 0.421696503, 0.316227766, 0.237137371, 0.177827941, 0.133352143,
		0.1, 0.0749894209, 0.0562341325, 0.0390069266, 0.0268793601, 0.0183781462, 0.0124479559, 0.00833450895,
		0.0055, 0.00356199749, 0.0022493653, 0.00137051364, 0.000790569415, 0.000414990398, 0.000177827941,
		3.33380358e-5, 2.5e-5, 1.87473552e-5, 1.40585331e-5, 1.05424126e-5, 7.90569415e-6, 5.92843426e-6, 4.44569853e-6,
		3.33380358e-6,
	}
	got := parse(t, v32()).Rope.InvFreq(64)
	if len(got) != len(want) {
		t.Fatalf("%d frequencies, want %d", len(got), len(want))
	}
	for i := range want {
		if math.Abs(float64(got[i])-want[i]) > 1e-6*want[i] {
			t.Errorf("pair %d turns by %v, want %v", i, got[i], want[i])
		}
	}
}

// With 128 original positions, corr(32) = 64 ln(128/64π)/(2 ln 10000) = -1.569, so the ramp begins at 0 (not at -2) and
// ends at ceil(corr(1)) = ceil(10.472) = 11: pair i is slowed down by i/11 of the way, pair 11 and all after it fully.
func TestYarnClampsTheLowEnd(t *testing.T) {
	c := parse(t, v32(fields{"rope_scaling": yarn(fields{"original_max_position_embeddings": 128})}))
	got := c.Rope.InvFreq(64)
	for i, g := range got {
		f := math.Pow(10000, -float64(i)/32)
		ramp := min(float64(i)/11, 1)
		if want := f*(1-ramp) + f/40*ramp; math.Abs(float64(g)-want) > 1e-6*want {
			t.Errorf("pair %d turns by %v, want %v", i, g, want)
		}
	}
	// The value of pair 1 was computed by hand: f = 0.749894209 and the ramp is 1/11, so the frequency is
	// 0.749894209*(10/11 + 1/440) = 0.683426306.
	if math.Abs(float64(got[1])-0.683426306) > 1e-6 {
		t.Errorf("pair 1 turns by %v, want 0.683426306", got[1])
	}
}

// The ramp of a vector of 8 is cut at d-1 = 7, not at d/2-1 = 3: corr(1e4) = 8 ln(4096²/2e4π)/(2 ln 10000) = 2.43, so
// low is 2; corr(0.001) = 9.43, so high would be 10 and is 7. The ramp of pair 3 is (3-2)/(7-2) = 0.2.
func TestYarnClampsTheHighEndAtTheVector(t *testing.T) {
	r := Rope{Theta: 10000, Yarn: &Yarn{Factor: 40, Original: 4096 * 4096, BetaFast: 1e4, BetaSlow: 0.001}}
	f := math.Pow(10000, -2*3.0/8)
	if got, want := float64(r.InvFreq(8)[3]), f*0.8+f/40*0.2; math.Abs(got-want) > 1e-6*want {
		t.Errorf("pair 3 turns by %v, want %v", got, want)
	}
}

// corr(700) = 64 ln(4096/1400π)/(2 ln 10000) = -0.247: floor and ceiling, clamped, are both 0, so that the ramp has
// length 0. Pair 0 keeps its frequency and the others are slowed down, without a division by zero.
func TestYarnWithoutRampIsAStep(t *testing.T) {
	r := Rope{Theta: 10000, Yarn: &Yarn{Factor: 40, Original: 4096, BetaFast: 700, BetaSlow: 700}}
	for i, g := range r.InvFreq(64) {
		f := math.Pow(10000, -float64(i)/32)
		want := f / 40
		if i == 0 {
			want = f
		}
		if math.IsNaN(float64(g)) || math.Abs(float64(g)-want) > 1e-6*want {
			t.Errorf("pair %d turns by %v, want %v", i, g, want)
		}
	}
}

func TestPlainFrequencies(t *testing.T) {
	got := parse(t, glm()).Rope.InvFreq(64)
	for i, g := range got {
		if want := math.Pow(1e6, -float64(i)/32); math.Abs(float64(g)-want) > 1e-6*want {
			t.Errorf("pair %d turns by %v, want %v", i, g, want)
		}
	}
}

func TestScales(t *testing.T) {
	// g(40, m) = 0.1 m ln 40 + 1 = 1 + 0.368887945 m; 192^-1/2 = 0.0721687836.
	const g1 = 1.3688879454
	for _, c := range []struct {
		name         string
		f            fields
		qk           int
		softmax, cos float64
	}{
		{"v3.2 as released", v32(), 192, 0.13523378, 1},
		{"v3.2 with another first context",
			v32(fields{"rope_scaling": yarn(fields{"original_max_position_embeddings": 128})}), 192, 0.13523378, 1},
		{"glm-5 as released", glm(), 256, 0.0625, 1},
		{"neither mscale", v32(fields{"rope_scaling": yarn(fields{"mscale": absent, "mscale_all_dim": absent})}), 192,
			0.0721687836, g1},
		{"only mscale", v32(fields{"rope_scaling": yarn(fields{"mscale_all_dim": absent})}), 192, 0.0721687836, g1},
		{"only mscale_all_dim", v32(fields{"rope_scaling": yarn(fields{"mscale": absent})}), 192, 0.13523378, g1},
		{"mscale_all_dim zero", v32(fields{"rope_scaling": yarn(fields{"mscale_all_dim": 0})}), 192, 0.0721687836, g1},
		// g(40, 0.707) = 1.2608037774, squared 1.5896261652 times 0.0721687836 = 0.11472138; cosines times
		// g1/1.2608037774 = 1.08572640.
		{"two different ones", v32(fields{"rope_scaling": yarn(fields{"mscale_all_dim": 0.707})}), 192, 0.11472138,
			1.08572640},
		{"a factor of one stretches nothing", v32(fields{"rope_scaling": yarn(fields{"factor": 1})}), 192, 0.0721687836,
			1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := parse(t, c.f).Rope
			if got := float64(r.SoftmaxScale(c.qk)); math.Abs(got-c.softmax) > 1e-8 {
				t.Errorf("softmax scale %.9f, want %.9f", got, c.softmax)
			}
			if got := float64(r.CosScale()); math.Abs(got-c.cos) > 1e-7 {
				t.Errorf("scale of cosines %.9f, want %.9f", got, c.cos)
			}
		})
	}
}
