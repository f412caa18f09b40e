package tokenizer

import "sparrow/internal/jsonscan"

// build builds a tokenizer from the contents of its two files.
func build(tokenizerJSON, configJSON []byte) (*Tokenizer, error) {
	f, err := parseFile(tokenizerJSON)
	if err != nil {
		return nil, err
	}
	cfg, err := parseConfig(configJSON)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{chatTemplate: string(cfg.ChatTemplate)}
	t.scratch.New = func() any { return new(scratch) }
	if t.normalizers, err = newNormalizers(f.normalizer); err != nil {
		return nil, err
	}
	if t.pieces, err = newPipeline(f.preTokenizer); err != nil {
		return nil, err
	}
	if t.detok, err = newDetok(f.decoder, t.pieces.byteLevel); err != nil {
		return nil, err
	}
	if err := t.loadModel(f); err != nil {
		return nil, err
	}
	t.loadAdded(f.added)
	for id := range int32(t.out.size()) {
		t.longest = max(t.longest, len(t.out.bytes(id)))
	}
	return t, t.loadFrame(f, cfg)
}

// loadModel reads the vocabulary, the merges and the options of the model.
func (t *Tokenizer) loadModel(f *file) error {
	names, err := t.loadVocab(f)
	if err != nil {
		return err
	}
	m := &t.model
	o := &f.model.options
	m.byteLevel = t.pieces.byteLevel
	m.ignoreMerges = o.IgnoreMerges
	m.fuseUnknown = o.FuseUnknown
	m.unknown = -1
	m.cache = newPieceCache()
	if o.Unknown != nil {
		id, ok := names.one([]byte(*o.Unknown))
		if !ok {
			return malformed("unk_token %q is not in the vocabulary", *o.Unknown)
		}
		m.unknown = id
	}
	for b := range 256 {
		m.byteID[b] = -1
		name := string([]byte{byte(b)})
		if !m.byteLevel {
			name = fallbackName(byte(b))
		}
		if id, ok := lookup(m.words, name); ok && (m.byteLevel || o.ByteFallback) {
			m.byteID[b] = id
		}
	}
	m.merges, err = readMerges(f.model.merges, names)
	return err
}

// loadVocab sets model.words and out, and returns a resolver of tokens by their spelling in the file. For byte-level
// vocabularies words and out are the same: a token matches the bytes that it represents.
func (t *Tokenizer) loadVocab(f *file) (*resolver, error) {
	added, err := newAddedIndex(f.added)
	if err != nil {
		return nil, err
	}
	names := &resolver{odd: map[string]int32{}, unspell: appendUnspelled}
	read := t.readByteLevel
	if !t.pieces.byteLevel {
		names.unspell = func(dst, word []byte) ([]byte, bool) { return append(dst, word...), true }
		read = t.readCharLevel
	}
	if err := read(f, added, names); err != nil {
		return nil, err
	}
	t.model.added = make([]bool, t.out.size())
	for id := range added.byID {
		t.model.added[id] = true
	}
	return names, nil
}

// readByteLevel reads a vocabulary in the byte-level alphabet. Tokens with other characters, and added tokens that are
// not in the vocabulary, represent their own text. They can be decoded, but merges do not produce them.
func (t *Tokenizer) readByteLevel(f *file, added *addedIndex, names *resolver) error {
	var words vocabBuilder
	var buf []byte
	err := readVocab(f.model.vocab, added, func(key []byte, id int32, _ *addedToken) {
		word, ok := names.unspell(buf[:0], key)
		buf = word
		if !ok {
			word = key
		}
		if !ok {
			names.odd[string(key)] = id
		}
		words.add(id, word, !ok)
	})
	if err != nil {
		return err
	}
	for _, a := range added.missing() {
		words.add(a.ID, []byte(a.Content), true)
	}
	words.unique = true
	t.out, err = words.build()
	t.model.words, names.words = t.out, t.out
	return err
}

// readCharLevel reads a vocabulary of texts. The decoder of the file replaces some of their characters, and converts
// tokens such as <0x0A> to a byte.
func (t *Tokenizer) readCharLevel(f *file, added *addedIndex, names *resolver) error {
	words, out := vocabBuilder{unique: true}, vocabBuilder{}
	err := readVocab(f.model.vocab, added, func(key []byte, id int32, a *addedToken) {
		words.add(id, key, false)
		if a != nil {
			out.add(id, key, true)
			return
		}
		_, fallback := fallbackByte(string(key))
		out.add(id, t.detok.bytes(key), fallback)
	})
	if err != nil {
		return err
	}
	for _, a := range added.missing() {
		out.add(a.ID, []byte(a.Content), true)
	}
	if t.model.words, err = words.build(); err != nil {
		return err
	}
	names.words = t.model.words
	t.out, err = out.build()
	return err
}

// readVocab calls add with every token of the vocabulary, and with its entry among the added tokens or nil. The key is
// valid only during the call.
func readVocab(data []byte, added *addedIndex, add func(key []byte, id int32, a *addedToken)) error {
	r := jsonscan.Scanner{Text: data, Name: "vocabulary"}
	err := r.Object(func(key []byte, _ int) error {
		id, err := readID(&r)
		if err != nil {
			return err
		}
		a := added.byContent[string(key)]
		switch other := added.byID[id]; {
		case a != nil && a.ID != id:
			return malformed("added token %q has id %d, but the vocabulary has it as %d", a.Content, a.ID, id)
		case a == nil && other != nil:
			return malformed("id %d is %q in the vocabulary and %q among the added tokens", id, key, other.Content)
		case a != nil:
			added.inVocab[id] = true
		}
		add(key, id, a)
		return nil
	})
	return asMalformed(err)
}

// loadAdded sets the added tokens to be matched.
func (t *Tokenizer) loadAdded(list []addedToken) {
	t.added = make(map[string]int32, len(list))
	t.special = make([]bool, t.out.size())
	for i := range list {
		a := &list[i]
		if a.Content == "" {
			continue
		}
		t.added[a.Content] = a.ID
		t.special[a.ID] = t.special[a.ID] || a.Special
		if a.normalized() {
			t.normed.add(t.normalize(a.Content), a)
		} else {
			t.raw.add(a.Content, a)
		}
	}
	for id, special := range t.special {
		if special {
			t.specials = append(t.specials, int32(id))
		}
	}
}

// loadFrame sets the special tokens that the configuration names, and the tokens that AddSpecial adds: those of the
// post-processor or, if it has none, those of add_bos_token and add_eos_token.
func (t *Tokenizer) loadFrame(f *file, cfg *config) (err error) {
	if t.bos, err = t.named("bos_token", cfg.BOS); err != nil {
		return err
	}
	if t.eos, err = t.named("eos_token", cfg.EOS); err != nil {
		return err
	}
	if t.frame, err = newFrame(f.postProcessor); err != nil {
		return err
	}
	if len(t.frame.before) > 0 || len(t.frame.after) > 0 {
		return t.frame.check(t.out)
	}
	if cfg.AddBOS && t.bos >= 0 {
		t.frame.before = []int32{t.bos}
	}
	if cfg.AddEOS && t.eos >= 0 {
		t.frame.after = []int32{t.eos}
	}
	return nil
}

// named returns the id of a token that the configuration names, or -1 if it names none.
func (t *Tokenizer) named(field string, token namedToken) (int32, error) {
	if token == "" {
		return -1, nil
	}
	id, ok := t.TokenID(string(token))
	if !ok {
		return -1, malformed("tokenizer_config.json: %s %q is not in the vocabulary", field, token)
	}
	return id, nil
}
