package server

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"

	"sparrow/api/ollama"
)

// tags handles GET /api/tags.
func (s ollamaAPI) tags(w http.ResponseWriter, _ *http.Request) error {
	return s.respond(w, http.StatusOK, ollama.Tags{Models: []ollama.Model{s.model()}})
}

// running handles GET /api/ps. The model is always loaded.
func (s ollamaAPI) running(w http.ResponseWriter, _ *http.Request) error {
	m := s.model()
	never, onDevice := s.now().AddDate(100, 0, 0).UTC(), int64(0)
	if strings.HasPrefix(s.info.Kernels, "cuda") {
		onDevice = m.Size
	}
	m.ExpiresAt, m.SizeVRAM, m.ContextLength = &never, &onDevice, s.info.ContextTokens
	return s.respond(w, http.StatusOK, ollama.Tags{Models: []ollama.Model{m}})
}

// show handles POST /api/show.
func (s ollamaAPI) show(w http.ResponseWriter, r *http.Request) error {
	req, err := decode(s.service, w, r, ollama.DecodeShow)
	if err != nil {
		return err
	}
	if err := s.checkModel(ollama.ModelName(req.Model)); err != nil {
		return err
	}
	m := s.model()
	can := []string{"completion"}
	if s.info.ChatFormat != "" {
		can = append(can, "tools", "thinking")
	}
	template := s.info.Tokenizer.ChatTemplate
	if template == "" {
		template = s.info.ChatFormat // the format has no template, so its name is returned
	}
	return s.respond(w, http.StatusOK, ollama.Show{
		Details: m.Details, Capabilities: can, ModifiedAt: m.ModifiedAt, Template: template,
		ModelInfo: map[string]any{
			"general.architecture":            s.info.Family,
			"general.basename":                s.info.Name,
			"general.parameter_count":         s.info.Parameters,
			s.info.Family + ".context_length": s.info.ContextTokens,
			s.info.Family + ".vocab_size":     s.info.Vocabulary,
		},
	})
}

// version handles GET /api/version.
func (s ollamaAPI) version(w http.ResponseWriter, _ *http.Request) error {
	return s.respond(w, http.StatusOK, ollama.VersionBody{Version: ollama.Version})
}

// model describes the served model. Digest is a hash of its configuration, not of a file.
func (s ollamaAPI) model() ollama.Model {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %v", s.info.Name, s.info.Config.Fingerprint,
		s.info.Created.UnixNano()))
	return ollama.Model{Name: s.info.Name, Model: s.info.Name, ModifiedAt: s.info.Created.UTC(),
		Size: s.info.Memory.Weights, Digest: hex.EncodeToString(sum[:]),
		Details: ollama.Details{Format: "safetensors", Family: s.info.Family, Families: []string{s.info.Family},
			ParameterSize: parameterSize(s.info.Parameters), QuantizationLevel: quantization(s.info.Format)}}
}

// parameterSize formats a number of parameters as Ollama does: 671.0B, 29.6M.
func parameterSize(n int64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "K"}} {
		if v := float64(n) / unit.size; v >= 1 {
			return fmt.Sprintf("%.1f%s", v, unit.name)
		}
	}
	return fmt.Sprint(n)
}

// quantization returns the first word of a weight format, such as FP8.
func quantization(format string) string {
	word, _, _ := strings.Cut(format, " ")
	return word
}
