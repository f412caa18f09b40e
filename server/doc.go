// Package server is the HTTP interface of an engine: OpenAI's completions and responses, Anthropic's messages, Ollama's
// chats, the model list, tokenizing, health, metrics, recent plans and the page (server/internal/page).
//
// The packages below api decode HTTP requests. The server authorises them and converts them to engine requests with
// pure functions, one file for each endpoint. Every interface describes a chat as an openai.ChatRequest, and receives
// its reply as the pieces of a turn. Events of the engine are sent as one JSON object, as server-sent events or as
// lines of JSON. Every failure, from a wrong path to a failed step in the middle of a stream, is reported in the
// interface's error format (dialect) with a status from one table.
//
// The package uses an engine only through [Engine], keeps no prompt text and logs none.
package server
