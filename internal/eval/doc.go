// Package eval measures how often a model gives the expected answer.
//
// Its inputs are task files, one item per line ([Load], [Shipped]), and a runner ([Engine], [Remote]). It returns a
// [Report] of exact matches for each task with the speed, and for several reports on the same items a [Comparison] with
// their agreement. Decoding is greedy. The package checks outputs; it changes no model and no plan.
//
// # Task files
//
// A task is a file NAME.jsonl or NAME.jsonl.gz. Each line is one object:
//
//	messages  the conversation, as in OpenAI's chat completions
//	tools     optional: the available tools, in the same form
//	answer    the complete expected output as the model writes it, tool call markers included; an answer with </think>
//	          enables reasoning
//	final     optional: the value inside the answer, its words in order; without it the answer counts
//	task      optional: the kind of item
//	tokens    optional: the number of prompt tokens
//
// A line of multiple choice has instead:
//
//	prompt    a text, passed to the model unchanged
//	choices   texts that may follow it, with the space before them
//	label     the number of the right one, from 0
//
// # What counts
//
// Exact is the strict measure: an engine's output must equal the answer character for character and then end. A server
// returns parsed messages, so its answer is compared part by part: reasoning and content as text, calls by name and by
// the value of their arguments, because servers format JSON differently. Final is the lenient measure: every word of
// final appears in the output, in order. Choices are scored, not generated: exact means that the right one has the
// largest log probability, final that it has the largest log probability per character.
package eval
