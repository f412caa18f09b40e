package eval

import "errors"

var (
	// ErrTask is wrapped when a task file cannot be used: a line that is not an item, an empty file, a pattern that
	// matches nothing.
	ErrTask = errors.New("eval: task file")

	// ErrPlan is wrapped when the text of a comparison names something that is not a plan, or a plan that the model
	// cannot run.
	ErrPlan = errors.New("eval: plan")

	// ErrRemote is wrapped when a server refuses a request or answers something that is not a chat completion.
	ErrRemote = errors.New("eval: server")

	// ErrOptions is wrapped when an option of Run is out of range.
	ErrOptions = errors.New("eval: options")

	// ErrItems is wrapped when reports over different items are compared.
	ErrItems = errors.New("eval: the reports are not about the same items")
)
