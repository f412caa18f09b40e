// Package openai is the wire format of the HTTP interface: OpenAI's chat and text completions and model list, and the
// /tokenize and /detokenize calls in vLLM's shape.
//
// In flow request bodies as bytes: [DecodeChat], [DecodeCompletion], [DecodeTokenize] and [DecodeDetokenize] turn
// them into plain structs or into one [Error] that lists what is wrong. Out flow response structs ([Marshal]) and
// server-sent events ([ChatStream], [CompletionStream]). The package knows no engine type, reads no clock and does no
// I/O.
//
// # Strictness
//
// A body is read by a decoder of our own because encoding/json replaces invalid UTF-8, lets the last of two equal names
// win, ignores letter case and drops names it does not know. Here each of these is an error with status 400 whose param
// is the field's path, such as messages[2].content[0].type. All problems of a body are reported together, the first one
// as param; only malformed JSON ends the reading at once, with the byte offset. null means the same as leaving a field
// out. A number field takes any JSON number; an integer field takes 3, 3.0 and 3e0 but not 3.5.
//
// No field is dropped in silence. A name is one of:
//
//   - supported: a field of the request struct;
//   - ignored: what OpenAI's clients send that cannot change an answer, listed with the reason by [Ignored];
//   - fixed: accepted with the one value that describes what happens anyway ([Fixed]), refused otherwise;
//   - refused: known elsewhere but not here; the error says what to use instead;
//   - unknown: the error gives the nearest known name.
//
// # Extensions
//
// Beyond OpenAI's fields: top_k, min_p, repetition_penalty, min_tokens, ignore_eos, stop_token_ids,
// include_stop_str_in_output, add_special_tokens, add_generation_prompt, continue_final_message, chat_template_kwargs
// and cache_salt as in vLLM; thinking and reasoning_content as in DeepSeek's and GLM's own services; and the object
// sparrow ([Extension]).
package openai
