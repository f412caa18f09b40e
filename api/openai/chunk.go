package openai

import (
	"encoding/json"

	"sparrow/record"
)

// ChatChunk is one event of a chat stream. A server writes chunks through [ChatStream]; ChatChunk is for clients that
// decode events.
type ChatChunk struct {
	Head                    // with ObjectChatChunk
	Choices []ChunkChoice   `json:"choices"` // empty in the closing chunk
	Usage   *Usage          `json:"usage"`   // absent unless requested; null before the closing chunk
	Sparrow json.RawMessage `json:"sparrow,omitempty"`
}

// ChunkChoice is the part of one chunk that belongs to one choice.
type ChunkChoice struct {
	Index        int           `json:"index"`
	Delta        Delta         `json:"delta"`
	Logprobs     *ChatLogprobs `json:"logprobs"`
	FinishReason FinishReason  `json:"finish_reason"`
	Sparrow      *record.Rows  `json:"sparrow,omitempty"` // recorded rows of the chunk's tokens, if requested
}

// Delta is a piece of a message. Empty fields are omitted. The exception is content in a delta with a role, the first
// of a message: it is written even if empty, as OpenAI does.
type Delta struct {
	Role             string          `json:"role,omitempty"`
	Content          string          `json:"content,omitempty"`
	ReasoningContent string          `json:"reasoning_content,omitempty"`
	ToolCalls        []ToolCallDelta `json:"tool_calls,omitempty"`
	// FunctionCall is a piece of the call if the request used the older field functions.
	FunctionCall *FunctionDelta `json:"function_call,omitempty"`
}

// ToolCallDelta is a piece of a tool call: the first one has id and name, the following pieces have only arguments.
type ToolCallDelta struct {
	Index    int           `json:"index"`
	ID       string        `json:"id,omitempty"`
	Type     string        `json:"type,omitempty"` // "function" or "custom"; only with ID
	Function FunctionDelta `json:"function"`
	Custom   bool          `json:"-"` // belongs to a custom tool, whose input is in Arguments
}

// FunctionDelta is a piece of a function call.
type FunctionDelta struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}
