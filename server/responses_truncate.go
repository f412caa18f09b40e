package server

import (
	"slices"
	"sort"

	"sparrow"
	"sparrow/chat"
)

// truncate removes the oldest turns of a conversation, as few as possible, until conversation and answer fit in the
// context. For the answer it reserves the token limit, or an eighth of the context if there is none, but at most half
// of the context. A turn begins with a message of the user. Messages before the first turn, and the last turn, are
// kept; if they do not fit, the engine refuses the request.
func (s *responsesAPI) truncate(r *sparrow.Request) error {
	context := s.info.ContextTokens
	room := context / 8
	if r.MaxTokens > 0 {
		room = min(r.MaxTokens, context/2)
	}
	all := r.Chat.Messages
	var starts []int // indices of the first messages of turns
	for i := range all {
		if all[i].Role == chat.User {
			starts = append(starts, i)
		}
	}
	if len(starts) < 2 {
		return nil
	}
	without := func(turns int) []chat.Message {
		return slices.Concat(all[:starts[0]], all[starts[turns]:])
	}
	var failed error
	least := sort.Search(len(starts)-1, func(turns int) bool {
		c := *r.Chat
		c.Messages = without(turns)
		ids, err := s.engine.EncodeChat(&c, false)
		if err != nil {
			failed = err
			return true
		}
		return len(ids)+room <= context
	})
	if failed != nil {
		return failed
	}
	r.Chat.Messages = without(least)
	return nil
}
