// Package openai is the wire format of the HTTP interface: OpenAI's chat and text completions, responses and model
// list, and the /tokenize and /detokenize calls in vLLM's shape.
//
// In flow request bodies as bytes: functions such as [DecodeChat] turn them into plain structs or into one error that
// lists what is wrong. Out flow response structs and server-sent events ([ChatStream], [CompletionStream],
// [ResponseStream]). The package knows no engine type, reads no clock and does no I/O.
//
// # Strictness
//
// Bodies are read by package wire: invalid UTF-8 and names that occur twice are errors with status 400 whose param
// is the field's path, such as messages[2].content[0].type. All problems of a body are reported together, the first one
// as param; only malformed JSON ends the reading at once, with the byte offset. null means the same as leaving a field
// out. A number field takes any JSON number; an integer field takes 3, 3.0 and 3e0 but not 3.5.
//
// No field is dropped in silence. A name is one of:
//
//   - supported: a field of the request struct;
//   - ignored: what OpenAI's clients send that cannot change an answer;
//   - fixed: accepted with the one value that describes what happens anyway, refused otherwise;
//   - refused: known elsewhere but not here; the error says what to use instead;
//   - unknown: ignored, or with [wire.Decoder.Strict] refused with the nearest known name.
//
// Ignored fields of either kind are named in [wire.Decoder.Ignored].
//
// # Extensions
//
// Beyond OpenAI's fields: top_k, min_p, repetition_penalty, min_tokens, ignore_eos, stop_token_ids,
// include_stop_str_in_output, add_special_tokens, add_generation_prompt, continue_final_message, chat_template_kwargs
// and cache_salt as in vLLM; thinking and reasoning_content as in DeepSeek's and GLM's own services; and the object
// sparrow ([Extension]).
package openai
