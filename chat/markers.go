package chat

// Marker texts of the families. The bars of DeepSeek's are U+FF5C and the low lines U+2581: the ASCII look-alikes are
// ordinary text to the tokenizer.
const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"

	deepseekBOS       = "<｜begin▁of▁sentence｜>"
	deepseekEOS       = "<｜end▁of▁sentence｜>"
	deepseekUser      = "<｜User｜>"
	deepseekAssistant = "<｜Assistant｜>"
	deepseekReminder  = "<｜latest_reminder｜>"

	dsml = "｜DSML｜"

	callsBegin  = "<｜tool▁calls▁begin｜>"
	callsEnd    = "<｜tool▁calls▁end｜>"
	callBegin   = "<｜tool▁call▁begin｜>"
	callEnd     = "<｜tool▁call▁end｜>"
	callSep     = "<｜tool▁sep｜>"
	outputBegin = "<｜tool▁output▁begin｜>"
	outputEnd   = "<｜tool▁output▁end｜>"

	glmStart       = "[gMASK]<sop>"
	glmSystem      = "<|system|>"
	glmUser        = "<|user|>"
	glmAssistant   = "<|assistant|>"
	glmObservation = "<|observation|>"
	glmEnd         = "<|endoftext|>"

	glmCallOpen      = "<tool_call>"
	glmCallClose     = "</tool_call>"
	glmKeyOpen       = "<arg_key>"
	glmKeyClose      = "</arg_key>"
	glmValueOpen     = "<arg_value>"
	glmValueClose    = "</arg_value>"
	glmResponseOpen  = "<tool_response>"
	glmResponseClose = "</tool_response>"
)
