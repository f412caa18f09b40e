package cost

// Rows describes rows of one kind. A row takes longer the more tokens it attends to.
type Rows struct {
	N    float64
	Seen float64 // sum over rows of the number of tokens that each row may attend to, in thousands
}

// Add adds n rows of a sequence after cached tokens.
func (r *Rows) Add(n, cached int) {
	r.N += float64(n)
	r.Seen += float64(n) * (float64(cached) + float64(n)/2) / 1000
}

func (r *Rows) features() Features { return Features{1, r.N, r.Seen} }

// Work holds the properties of a batch that determine its time.
type Work struct {
	Decode    Rows // rows of decoding sequences, including drafts
	Near, Far Rows // prompt rows at positions before and after the dense threshold
}

// AddPrompt adds n tokens of a prompt after cached tokens.
func (w *Work) AddPrompt(n, cached, threshold int) {
	near := min(max(threshold-cached, 0), n)
	w.Near.Add(near, cached)
	w.Far.Add(n-near, cached+near)
}

// Prompts returns the number of prompt rows.
func (w *Work) Prompts() float64 { return w.Near.N + w.Far.N }

// Model predicts the seconds of a batch from observed batches. The time of decodes and the additional times of near and
// far prompt rows have separate fits. So many batches without prompts do not change the fitted time of prompts, and
// short prompts do not change that of long prompts.
type Model struct {
	decode, near, far Fit
	prompts           int     // number of observed batches with prompts
	nearRows, farRows float64 // number of near and far prompt rows of the latest observed batches, decayed
	most              float64 // maximum number of rows of an observed batch without prompts
	late              float64
}

// NewModel returns a model that begins with guesses of the seconds for a batch, for a row, and for a thousand tokens
// that a row attends to. The guesses are longer than the times of small models; the first batches correct them.
func NewModel() Model {
	return Model{
		decode: NewFit(0.98, Features{1e-3, 1e-3, 1e-4}),
		near:   NewFit(0.9, Features{1e-3, 2e-3, 2e-4}),
		far:    NewFit(0.9, Features{1e-3, 2e-3, 2e-4}),
		late:   firstLate,
	}
}

// Predict returns the time of a batch.
func (m *Model) Predict(w *Work) float64 {
	return m.Decoding(w) + added(&m.near, &w.Near) + added(&m.far, &w.Far)
}

// Decoding returns the predicted time of the decodes of a batch, without its prompts.
func (m *Model) Decoding(w *Work) float64 { return m.decode.Predict(w.Decode.features()) }

// added returns the predicted time that prompt rows add to a batch.
func added(f *Fit, r *Rows) float64 {
	if r.N == 0 {
		return 0
	}
	return f.Predict(r.features())
}

// Prompts returns the number of observed batches with prompts.
func (m *Model) Prompts() int { return m.prompts }

// Late returns a high quantile of the ratio of measured to predicted times of batches with prompts.
func (m *Model) Late() float64 { return m.late }

// Predictions are trusted for at most beyond times the observed number of prompt rows. With every batch, the observed
// number decreases by the fraction fade.
const beyond, fade = 1.5, 0.1

// Trusts reports whether a batch is similar to observed batches, or has at most least prompt rows of each kind.
func (m *Model) Trusts(w *Work, least float64) bool {
	return w.Near.N <= max(beyond*m.nearRows, least) && w.Far.N <= max(beyond*m.farRows, least)
}

// Outlier is the maximum ratio of a measurement to its prediction; longer times are reduced to it, because other
// programs may have used the machine. A permanent change is learned from a few measurements.
const Outlier = 3

// Observe adds the measured seconds of a batch.
func (m *Model) Observe(w *Work, seconds float64) {
	if seconds <= 0 {
		return
	}
	predicted := m.Predict(w)
	ratio := seconds / predicted
	seconds = min(seconds, Outlier*predicted)
	if w.Prompts() == 0 {
		m.most = max(m.most, w.Decode.N)
		m.decode.Observe(w.Decode.features(), seconds, seconds)
		return
	}
	if m.prompts++; w.Decode.N > 0 {
		m.note(ratio)
	}
	if w.Decode.N > 0 && m.Decoding(w) > seconds {
		// The predicted time of the decodes alone exceeds the time of the whole batch, so it is too long.
		m.decode.Observe(w.Decode.features(), seconds, seconds)
	}
	m.nearRows, m.farRows = max(w.Near.N, m.nearRows*(1-fade)), max(w.Far.N, m.farRows*(1-fade))
	// If a batch has near and far prompt rows, each kind gets its predicted share of the time.
	rest := max(seconds-m.knownDecoding(w), 0)
	near, far := added(&m.near, &w.Near), added(&m.far, &w.Far)
	if near > 0 {
		m.near.Observe(w.Near.features(), rest*near/(near+far), seconds)
	}
	if far > 0 {
		m.far.Observe(w.Far.features(), rest*far/(near+far), seconds)
	}
}

// knownDecoding returns Decoding for the part of the batch that was observed. The time of other parts, which is only
// guessed, is attributed to the prompts, so that the prediction for prompts is too long rather than too short.
func (m *Model) knownDecoding(w *Work) float64 {
	if m.most == 0 {
		return 0
	}
	known := *w
	if rows := w.Decode.N; rows > m.most {
		known.Decode = Rows{m.most, w.Decode.Seen * m.most / rows}
	}
	return m.Decoding(&known)
}

// Model.late converges to the ratio of measured to predicted time that one in lateShare batches exceeds: each such
// batch increases late by a tenth, and each other batch decreases it by a small amount, so that both cancel on average.
// It does not cover rare long delays, such as one in a hundred batches.
const (
	firstLate, leastLate, mostLate = 1.25, 1.1, 2.0
	lateShare, lateStep            = 0.03, 0.1
)

// note adds the ratio of a measured to a predicted time.
func (m *Model) note(ratio float64) {
	if ratio > m.late {
		m.late *= 1 + lateStep*(1-lateShare)
	} else {
		m.late *= 1 - lateStep*lateShare
	}
	m.late = min(max(m.late, leastLate), mostLate)
}
