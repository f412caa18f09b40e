package load

import (
	"math/rand/v2"
	"strings"
)

// words is a text of ordinary words, which the server tokenizes to find their ids.
const words = `time year people way day man thing woman life child world school state family student group country problem hand part place case
week company system program question work government number night point home water room mother area money story fact month lot right study book
eye job word business issue side kind head house service friend father power hour game line end member law car city community name`

// The first of plainIDs ids that exist in every vocabulary, and their number. They are used if the server has no
// /tokenize.
const firstPlainID, plainIDs = 16, 240

// task is a completion request to send.
type task struct {
	index   int
	prompt  []int32
	output  int
	choices int // number of choices; 0 means one
}

// prompter generates the random prompts of a run. Task i depends only on the seed and i.
type prompter struct {
	o        *Options
	ids      []int32
	words    []string  // words of which conversations consist
	prefixes [][]int32 // [groups][SharedPrefix] token ids
}

func newPrompter(o *Options, ids []int32) *prompter {
	if len(ids) == 0 {
		for i := range int32(plainIDs) {
			ids = append(ids, firstPlainID+i)
		}
	}
	p := &prompter{o: o, ids: ids, words: strings.Fields(words)}
	for g := range o.Groups {
		p.prefixes = append(p.prefixes, p.draw(rand.New(rand.NewPCG(o.Seed, ^uint64(g))), nil, o.SharedPrefix))
	}
	return p
}

func (p *prompter) task(i int) task {
	r := rand.New(rand.NewPCG(p.o.Seed, uint64(i)))
	n, out := p.o.Prompt.draw(r), p.o.Output.draw(r)
	prefix := p.prefixes[i%len(p.prefixes)]
	return task{index: i, prompt: p.draw(r, prefix, n), output: out}
}

// conversation generates conversation i: the user's messages, and the maximum tokens of each answer. The first message
// begins with the words that its group shares.
func (p *prompter) conversation(i int) (said []string, output []int) {
	r := rand.New(rand.NewPCG(p.o.Seed, uint64(i)))
	for turn := range p.o.Turns.draw(r) {
		text := p.text(r, p.o.Prompt.draw(r))
		if turn == 0 && p.o.SharedPrefix > 0 {
			shared := rand.New(rand.NewPCG(p.o.Seed, ^uint64(i%p.o.Groups)))
			text = p.text(shared, p.o.SharedPrefix) + " " + text
		}
		said, output = append(said, text), append(output, p.o.Output.draw(r))
	}
	return said, output
}

// text returns n random words.
func (p *prompter) text(r *rand.Rand, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(p.words[r.IntN(len(p.words))])
	}
	return b.String()
}

// draw appends n random ids to a copy of prefix.
func (p *prompter) draw(r *rand.Rand, prefix []int32, n int) []int32 {
	out := append(make([]int32, 0, len(prefix)+n), prefix...)
	for range n {
		out = append(out, p.ids[r.IntN(len(p.ids))])
	}
	return out
}

func vocabularyText() string { return strings.Join(strings.Fields(words), " ") }
