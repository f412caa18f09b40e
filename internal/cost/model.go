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
	Near, Far Rows // prompt rows before and after the dense threshold
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
// far prompt rows are separate fits, so that thousands of batches without prompts do not change the fitted time of
// prompts, and short prompts do not change the fitted time of long prompts.
type Model struct {
	decode, near, far Fit
	prompts           int     // number of observed batches with prompts
	nearRows, farRows float64 // number of near and far prompt rows of the latest observed batches, decayed
	most              float64 // maximum number of rows of an observed batch without prompts
	late              float64
}

// NewModel returns a model that begins with guesses of the seconds for a batch, for a row, and for a thousand tokens
// that a row attends to. The guesses are above the times of small models. If a model takes longer, the first batches
// correct them.
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

// Decoding returns the predicted time of only the decodes of a batch.
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

// Late returns a high quantile of the times of batches with prompts, relative to the prediction.
func (m *Model) Late() float64 { return m.late }

// Predictions count as valid up to a number of prompt rows of beyond times the observed number. The observed number
// decays by the share fade with every batch.
const beyond, fade = 1.5, 0.1

// Trusts reports whether a batch is similar to observed batches, or has at most least prompt rows of each kind.
func (m *Model) Trusts(w *Work, least float64) bool {
	return w.Near.N <= max(beyond*m.nearRows, least) && w.Far.N <= max(beyond*m.farRows, least)
}

// Outlier limits the influence of one measurement, as a multiple of the prediction: the machine may have been busy with
// other work. A permanent change is learned from a few measurements.
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
		// The decodes alone were predicted to take longer than the whole batch, and no batch without prompts was
		// observed yet.
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

// knownDecoding returns Decoding for the part of the batch that was observed. Guessed parts are counted as time of the
// prompts, so that the prediction for prompts is too slow rather than too fast.
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

// late is learned as the time, relative to the prediction, that one in lateShare batches exceeds: each such batch
// increases it by a tenth, and each other batch decreases it by a small amount that cancels this on average. A rare
// long delay counts like any other late batch, so late does not cover delays that occur once in a hundred batches.
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
