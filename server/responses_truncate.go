package server

import (
	"slices"
	"sort"

	"sparrow"
	"sparrow/chat"
)

// truncate removes the oldest turns of a conversation, as few as possible, until it fits in the context together with
// the answer. Space for the answer is the token limit, or an eighth of the context if there is none, and at most half
// of the context. A turn begins with a message of the user; messages before the first turn, and the last turn, are
// kept. If the conversation still does not fit, the engine refuses it.
func (s *responsesAPI) truncate(r *sparrow.Request) error {
	context := s.info.ContextTokens
	room := context / 8
	if r.MaxTokens > 0 {
		room = min(r.MaxTokens, context/2)
	}
	all := r.Chat.Messages
	var starts []int // indices at which turns begin
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
