// Package server is the HTTP interface of an engine: OpenAI's completions, the model list, tokenizing, health,
// metrics and recent plans.
//
// HTTP requests flow in and are decoded by package api/openai, authorised, and turned into engine requests by pure
// functions, one file for each endpoint. Events of the engine flow back and leave as one JSON object or as
// server-sent events. Every failure, from a wrong path to a step that broke in the middle of a stream, leaves in
// OpenAI's error shape with a status from one table.
//
// The package never looks into an engine beyond [Engine], keeps no prompt text and logs none.
package server
