package eval

import "errors"

var (
	// ErrTask means that a task file is invalid or missing: a line is not an item, a file is empty, or no file matches.
	ErrTask = errors.New("eval: task file")

	// ErrPlan means that a comparison names an unknown plan, or a plan that the model cannot run.
	ErrPlan = errors.New("eval: plan")

	// ErrRemote means that a server refused a request, or returned something other than a chat completion.
	ErrRemote = errors.New("eval: server")

	// ErrOptions means that an option of Run is out of range.
	ErrOptions = errors.New("eval: options")

	// ErrItems means that reports on different items were compared.
	ErrItems = errors.New("eval: the reports are not about the same items")
)
