// Package server is the HTTP server of an engine. It implements OpenAI's completions and responses, Anthropic's
// messages, Ollama's chats, and endpoints for models, tokenization, health, metrics and recent plans. It also serves a
// web page (server/internal/page).
//
// The packages below api decode HTTP requests. The server authorises them and converts them to engine requests. A chat
// of any API is converted to an openai.ChatRequest, and its reply to the pieces of a turn. Responses are one JSON
// object, server-sent events or lines of JSON. Every error, also in the middle of a stream, has the format of the API
// (dialect) and a status from one table.
//
// The package uses an engine only through [Engine]. It neither stores nor logs the text of prompts.
package server
