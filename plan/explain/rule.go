package explain

import "sparrow/plan"

// Title returns the heading of the section of docs/spec that a rule such as "dispatch 5" names. It is empty for a rule
// that is not a section.
func Title(rule string) string {
	switch rule {
	case "design 1":
		return "Scope"
	case "design 2":
		return "Rules of every decision"
	case "design 3":
		return "Segments"
	case "design 4":
		return "Devices"
	case "design 5":
		return "KV memory"
	case "design 6":
		return "Drafts"
	case "dispatch 1":
		return "Glossary"
	case "dispatch 2":
		return "Forward modes"
	case "dispatch 3":
		return "Attention forms"
	case "dispatch 4":
		return "Kernels and their limits"
	case "dispatch 5":
		return "DenseMHA one-shot rule"
	case "dispatch 6":
		return "Indexer path and when scores are skipped"
	case "dispatch 7":
		return "Reading a cached prefix for DenseMHA"
	case "dispatch 8":
		return "Automatic choice of the prefill kernel"
	case "dispatch 9":
		return "KV layouts"
	case "dispatch 10":
		return "Top-k transform"
	case "dispatch 11":
		return "Per-batch arrays"
	case "dispatch 12":
		return "Target verify"
	case "dispatch 13":
		return "DeepSeek-V4 routing"
	case "dispatch 14":
		return "Graph capture and replay"
	case "dispatch 15":
		return "Parallelism"
	case "dispatch 16":
		return "Flags and automatic resolution"
	case "dispatch 17":
		return "Limits and transient memory"
	case "dispatch 18":
		return "Conditions that deserve a clear error"
	case "dispatch 19":
		return "Decision functions"
	case "dispatch 20":
		return "Decision test cases"
	}
	return ""
}

// Reason returns the printed form of a reason: its text, then the title and number of its rule.
func Reason(r plan.Reason) string { return cite(r.Text, r.Rule) }

// Notice returns the printed form of a notice without its level: its text, then the title and number of its rule.
func Notice(n plan.Notice) string { return cite(n.Text, n.Rule) }

func cite(text, rule string) string {
	if t := Title(rule); t != "" {
		rule = t + ", " + rule
	}
	return text + " (" + rule + ")"
}
