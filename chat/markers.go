package chat

// Marker texts of the families. In DeepSeek's markers the bar is U+FF5C and the low line U+2581; the similar ASCII
// characters are ordinary text.
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

	kimiSystem      = "<|im_system|>"
	kimiUser        = "<|im_user|>"
	kimiAssistant   = "<|im_assistant|>"
	kimiMiddle      = "<|im_middle|>"
	kimiEnd         = "<|im_end|>"
	kimiCallsBegin  = "<|tool_calls_section_begin|>"
	kimiCallsEnd    = "<|tool_calls_section_end|>"
	kimiCallBegin   = "<|tool_call_begin|>"
	kimiArguments   = "<|tool_call_argument_begin|>"
	kimiCallEnd     = "<|tool_call_end|>"
	kimiFunctions   = "functions."
	kimiToolDeclare = "tool_declare"

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
