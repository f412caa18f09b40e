package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"sparrow/api/openai"
	"sparrow/internal/wire"
)

// tokenize handles POST /tokenize.
func (s openaiAPI) tokenize(w http.ResponseWriter, r *http.Request) error {
	req, err := decode(s.service, w, r, openai.DecodeTokenize)
	if err != nil {
		return err
	}
	if err := s.checkOptionalModel(req.Model); err != nil {
		return err
	}
	ids, err := s.tokensOf(req)
	if err != nil {
		return err
	}
	out := openai.TokenizeResponse{Count: len(ids), MaxModelLen: s.info.ContextTokens, Tokens: ids}
	if ids == nil {
		out.Tokens = []int32{}
	}
	if req.ReturnTokenStrs {
		spell := newSpelling(s.engine, false)
		out.TokenStrs = make([]string, len(ids))
		for i, id := range ids {
			out.TokenStrs[i] = openai.TokenText([]byte(spell.of(id)))
		}
	}
	return s.respond(w, http.StatusOK, out)
}

// tokensOf returns the token ids of a prompt or of a conversation.
func (s openaiAPI) tokensOf(r *openai.TokenizeRequest) ([]int32, error) {
	if r.Prompt != nil {
		return s.engine.Encode(*r.Prompt, r.WantsSpecialTokens())
	}
	return s.engine.EncodeChat(conversation(r.AsChat()), r.WantsSpecialTokens())
}

// detokenize handles POST /detokenize.
func (s openaiAPI) detokenize(w http.ResponseWriter, r *http.Request) error {
	req, err := decode(s.service, w, r, openai.DecodeDetokenize)
	if err != nil {
		return err
	}
	if err := s.checkOptionalModel(req.Model); err != nil {
		return err
	}
	if err := s.checkIDs("tokens", req.Tokens); err != nil {
		return err
	}
	text, err := s.engine.Decode(req.Tokens)
	if err != nil {
		return err
	}
	return s.respond(w, http.StatusOK, openai.DetokenizeResponse{Prompt: strings.ToValidUTF8(text, "\uFFFD")})
}

// tokenizerInfo handles GET /tokenizer_info in vLLM's format, for clients that render prompts themselves: members of
// tokenizer_config.json, which are null if they are missing.
func (s openaiAPI) tokenizerInfo(w http.ResponseWriter, _ *http.Request) error {
	t := &s.info.Tokenizer
	orNull := func(text string) *string {
		if text == "" {
			return nil
		}
		return &text
	}
	return s.respond(w, http.StatusOK, struct {
		Class        string  `json:"tokenizer_class"`
		BOS          *string `json:"bos_token"`
		EOS          *string `json:"eos_token"`
		Pad          *string `json:"pad_token"`
		Unk          *string `json:"unk_token"`
		AddsBOS      bool    `json:"add_bos_token"`
		MaxLength    int     `json:"model_max_length"`
		ChatTemplate *string `json:"chat_template"`
	}{t.Class, orNull(t.BOS), orNull(t.EOS), orNull(t.Pad), orNull(t.Unk), t.AddsBOS, s.info.ContextTokens,
		orNull(t.ChatTemplate)})
}

// checkOptionalModel checks the model's name, which may be empty.
func (s openaiAPI) checkOptionalModel(name string) error {
	if name == "" {
		return nil
	}
	return s.checkModel(name)
}

// checkIDs returns an error if an id is not in the vocabulary.
func (s *service) checkIDs(param string, ids []int32) error {
	outside := func(id int32) bool { return id < 0 || int(id) >= s.info.Vocabulary }
	if i := slices.IndexFunc(ids, outside); i >= 0 {
		return wire.NewError(wire.CodeOutOfRange, fmt.Sprintf("%s[%d]", param, i),
			"%d is not in the model's vocabulary, [0, %d]", ids[i], s.info.Vocabulary-1)
	}
	return nil
}
