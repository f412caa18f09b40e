// Package openai is the wire format of the HTTP interface: OpenAI's chat and text completions, responses and model
// list, and the /tokenize and /detokenize calls in vLLM's format.
//
// Functions such as [DecodeChat] convert request bodies to plain structs, or return one error that lists all problems.
// The package also defines response structs and server-sent events ([ChatStream], [CompletionStream],
// [ResponseStream]). It uses no engine type, reads no clock and does no I/O.
//
// # Strictness
//
// Bodies are read by package wire: invalid UTF-8 and names that occur twice are errors with status 400 whose param is
// the field's path, such as messages[2].content[0].type. All problems of a body are reported together, the first one as
// param; only malformed JSON ends the reading at once, with the byte offset. null means the same as omitting a field. A
// number field accepts any JSON number; an integer field accepts 3, 3.0 and 3e0 but not 3.5.
//
// No field is dropped without notice. A name is one of:
//
//   - supported: a field of the request struct;
//   - ignored: sent by OpenAI's clients, but cannot change an answer;
//   - fixed: accepted with the one value that describes what happens anyway, refused otherwise;
//   - refused: supported elsewhere but not here; the error states what to use instead;
//   - unknown: ignored, or with [wire.Decoder.Strict] refused with the nearest known name.
//
// Ignored fields of either kind are listed in [wire.Decoder.Ignored].
//
// # Extensions
//
// Beyond OpenAI's fields: top_k, min_p, repetition_penalty, min_tokens, ignore_eos, stop_token_ids,
// include_stop_str_in_output, add_special_tokens, add_generation_prompt, continue_final_message, chat_template_kwargs
// and cache_salt as in vLLM; thinking and reasoning_content as in DeepSeek's and GLM's own services; and the object
// sparrow ([Extension]).
package openai
