package plan

import "fmt"

// Notes collects what a resolution says of its choices.
type Notes struct {
	Reasons []Reason
	Notices []Notice
}

// Because adds the reason of a choice.
func (n *Notes) Because(rule, format string, args ...any) {
	n.Reasons = append(n.Reasons, Reason{rule, fmt.Sprintf(format, args...)})
}

// Notice adds something the user should see at start.
func (n *Notes) Notice(level NoticeLevel, rule, format string, args ...any) {
	n.Notices = append(n.Notices, Notice{level, rule, fmt.Sprintf(format, args...)})
}
