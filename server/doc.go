// Package server is the HTTP interface of an engine: completions and responses as OpenAI has them, Anthropic's
// messages, Ollama's chats, the model list, tokenizing, health, metrics, recent plans and the page
// (server/internal/page).
//
// HTTP requests flow in and are decoded by the packages below api, authorised, and turned into engine requests by pure
// functions, one file for each endpoint. Every interface describes a chat as an openai.ChatRequest, and its reply comes
// as the pieces of a turn. Events of the engine flow back and leave as one JSON object, as server-sent events or as
// lines of JSON. Every failure, from a wrong path to a step that broke in the middle of a stream, leaves in the
// interface's error shape (dialect) with a status from one table.
//
// The package never looks into an engine beyond [Engine], keeps no prompt text and logs none.
package server
