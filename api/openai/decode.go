package openai

import "sparrow/internal/wire"

// DecodeChat reads and validates the body of a chat completion.
func DecodeChat(d *wire.Decoder, body []byte) (*ChatRequest, *wire.Error) {
	return wire.Decode(d, body, chatFields, (*ChatRequest).check)
}

// DecodeCompletion reads and validates the body of a text completion.
func DecodeCompletion(d *wire.Decoder, body []byte) (*CompletionRequest, *wire.Error) {
	r, err := wire.Decode(d, body, completionFields, (*completionReader).check)
	if err != nil {
		return nil, err
	}
	return &r.CompletionRequest, nil
}

// DecodeResponses reads and validates the body of /v1/responses.
func DecodeResponses(d *wire.Decoder, body []byte) (*ResponsesRequest, *wire.Error) {
	return wire.Decode(d, body, responsesFields, (*ResponsesRequest).check)
}

// DecodeTokenize reads and validates the body of /tokenize.
func DecodeTokenize(d *wire.Decoder, body []byte) (*TokenizeRequest, *wire.Error) {
	return wire.Decode(d, body, tokenizeFields, (*TokenizeRequest).check)
}

// DecodeDetokenize reads and validates the body of /detokenize.
func DecodeDetokenize(d *wire.Decoder, body []byte) (*DetokenizeRequest, *wire.Error) {
	return wire.Decode(d, body, detokenizeFields, (*DetokenizeRequest).check)
}
