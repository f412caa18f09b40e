package wire

import (
	"strings"
	"testing"
)

func TestCodesHaveAStatus(t *testing.T) {
	for code, want := range map[Code]int{
		CodeInvalidJSON: 400, CodeUnknownParameter: 400, CodeContextLength: 400, CodeInvalidKey: 401,
		CodeModelNotFound: 404, CodeUnknownURL: 404, CodeBadMethod: 405, CodeBodyTooLarge: 413, CodeMediaType: 415,
		CodeWrongHost: 421,
		CodeQueueFull: 429, CodeInternal: 500, CodeUnavailable: 503, CodeDeadline: 504, Code("never heard of"): 500,
	} {
		if got := NewError(code, "", "x").Status(); got != want {
			t.Errorf("%s: status %d, want %d", code, got, want)
		}
	}
	for code, status := range statuses {
		if status < 400 || status > 599 {
			t.Errorf("%s maps to %d", code, status)
		}
	}
}

func TestJoinedProblems(t *testing.T) {
	if err := JoinProblems(nil); err != nil {
		t.Errorf("no problems: %v", err)
	}
	err := JoinProblems([]Problem{{"top_p", CodeOutOfRange, "too large"}, {"", CodeInternal, "and more"}})
	if err.Param != "top_p" || err.Status() != 400 || err.Message != "top_p: too large; and more" {
		t.Errorf("two problems: %+v", err)
	}
	if err := JoinProblems(make([]Problem, 20)); len(err.Problems) != maxProblems ||
		!strings.HasSuffix(err.Message, "and 4 more") {
		t.Errorf("twenty problems: %+v", err)
	}
}
