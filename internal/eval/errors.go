package eval

import "errors"

var (
	// ErrTask means that a task file cannot be used: a line that is not an item, an empty file, a pattern that matches
	// nothing.
	ErrTask = errors.New("eval: task file")

	// ErrPlan means that the text of a comparison contains something that is not a plan, or a plan that the model
	// cannot run.
	ErrPlan = errors.New("eval: plan")

	// ErrRemote means that a server refused a request or returned something that is not a chat completion.
	ErrRemote = errors.New("eval: server")

	// ErrOptions means that an option of Run is out of range.
	ErrOptions = errors.New("eval: options")

	// ErrItems means that reports on different items were compared.
	ErrItems = errors.New("eval: the reports are not about the same items")
)
