package plan

import "fmt"

// Notes collects the reasons and notices of a resolution.
type Notes struct {
	Reasons []Reason
	Notices []Notice
}

// Because adds the reason of a choice.
func (n *Notes) Because(rule, format string, args ...any) {
	n.Reasons = append(n.Reasons, Reason{rule, fmt.Sprintf(format, args...)})
}

// Notice adds a message for the user at start.
func (n *Notes) Notice(level NoticeLevel, rule, format string, args ...any) {
	n.Notices = append(n.Notices, Notice{level, rule, fmt.Sprintf(format, args...)})
}
