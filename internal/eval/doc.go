// Package eval measures how often a model gives the expected answer.
//
// Its inputs are task files, one item per line ([Load], [Shipped]), and a runner ([Engine], [Remote]). It returns a
// [Report] with the exact matches of each task and the speed. A [Comparison] contains the agreement of several reports
// on the same items. Decoding is greedy.
//
// # Task files
//
// A task is a file NAME.jsonl or NAME.jsonl.gz. Each line is one object:
//
//	messages  the conversation, as in OpenAI's chat completions
//	tools     optional: the available tools, in the same form
//	answer    the complete expected output of the model, including tool call markers; an answer with </think>
//	          enables reasoning
//	final     optional: the words that must occur in the output, in order; the default is the answer
//	task      optional: the kind of item
//	tokens    optional: the number of prompt tokens
//
// A line of multiple choice has instead:
//
//	prompt    a text, passed to the model unchanged
//	choices   texts that may follow it, with the space before them
//	label     the index of the right choice, from 0
//
// # What counts
//
// Exact is strict: an engine's output must equal the answer character for character and then end. A server returns
// parsed messages, so its reasoning and content are compared as text, its calls by name and by the values of their
// arguments, because servers format JSON differently. Final is lenient: the output must contain every word of final, in
// order. Choices are scored, not generated: exact means that the right choice has the largest log probability, final
// that it has the largest log probability per character.
package eval
