package server

import (
	"net/http"
	"strings"
	"time"

	"sparrow"
	"sparrow/api/anthropic"
	"sparrow/api/openai"
)

// modelPrefix is followed by the name of a model, which may contain slashes.
const modelPrefix = "/v1/models/"

// models handles GET /v1/models.
func (s openaiAPI) models(w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get(anthropicVersion) != "" {
		return s.respond(w, http.StatusOK, anthropic.NewModelList(anthropicModel(&s.info)))
	}
	list := []openai.Model{openaiModel(&s.info)}
	for _, name := range s.options.Aliases {
		if !strings.ContainsAny(name, `*?[\`) { // patterns are not listed
			alias := list[0]
			alias.ID = name
			list = append(list, alias)
		}
	}
	return s.respond(w, http.StatusOK, openai.ModelList{Object: openai.ObjectList, Data: list})
}

// model handles GET /v1/models/{id}.
func (s openaiAPI) model(w http.ResponseWriter, r *http.Request) error {
	name := strings.TrimPrefix(r.URL.Path, modelPrefix)
	if err := s.checkModel(name); err != nil {
		return err
	}
	if r.Header.Get(anthropicVersion) != "" {
		return s.respond(w, http.StatusOK, anthropicModel(&s.info))
	}
	m := openaiModel(&s.info)
	m.ID = name // an alias is returned under its own name, as in the list
	return s.respond(w, http.StatusOK, m)
}

func openaiModel(i *sparrow.Info) openai.Model {
	return openai.Model{ID: i.Name, Object: openai.ObjectModel, Created: i.Created.Unix(), OwnedBy: "sparrow",
		MaxModelLen: i.ContextTokens}
}

func anthropicModel(i *sparrow.Info) anthropic.Model {
	return anthropic.NewModel(i.Name, i.Created.UTC().Format(time.RFC3339), i.ContextTokens)
}
