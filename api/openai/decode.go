package openai

// Decoder reads the bodies of requests.
type Decoder struct {
	// Strict refuses unknown fields. Otherwise they are ignored.
	Strict bool
	// Ignored are the fields of the last body that had no effect, each once, with [] for any index:
	// messages[].annotations. Its text is plain ASCII. At most maxIgnored are named; "..." stands for the others.
	Ignored []string
}

// Chat reads and validates the body of a chat completion.
func (d *Decoder) Chat(body []byte) (*ChatRequest, *Error) {
	return decodeBody(d, body, chatFields, (*ChatRequest).check)
}

// Completion reads and validates the body of a text completion.
func (d *Decoder) Completion(body []byte) (*CompletionRequest, *Error) {
	r, err := decodeBody(d, body, completionFields, (*completionReader).check)
	if err != nil {
		return nil, err
	}
	return &r.CompletionRequest, nil
}

// Responses reads and validates the body of /v1/responses.
func (d *Decoder) Responses(body []byte) (*ResponsesRequest, *Error) {
	return decodeBody(d, body, responsesFields, (*ResponsesRequest).check)
}

// Tokenize reads and validates the body of /tokenize.
func (d *Decoder) Tokenize(body []byte) (*TokenizeRequest, *Error) {
	return decodeBody(d, body, tokenizeFields, (*TokenizeRequest).check)
}

// Detokenize reads and validates the body of /detokenize.
func (d *Decoder) Detokenize(body []byte) (*DetokenizeRequest, *Error) {
	return decodeBody(d, body, detokenizeFields, (*DetokenizeRequest).check)
}

// decodeBody reads an object, then checks it; both report into one list.
func decodeBody[T any](d *Decoder, body []byte, known fields[T], check func(*T, *problems)) (*T, *Error) {
	c := newCursor(body)
	c.strict = d.Strict
	v := new(T)
	if got := c.shape(); got != shapeObject && got != shapeNone {
		c.problem(CodeInvalidType, "the body must be a JSON object, got %s", got)
		c.skip()
		return nil, c.finish()
	}
	readObject(c, v, known)
	d.Ignored = c.ignored
	if c.malformed == nil {
		check(v, &c.problems)
	}
	if err := c.finish(); err != nil {
		return nil, err
	}
	return v, nil
}
