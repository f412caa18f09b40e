package step_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/step"
	"sparrow/internal/testkit/steps"
	"sparrow/internal/testkit/table"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/plan"
)

// overheard is a device that calls a function before every operation.
type overheard struct {
	kernel.Device
	before func(op kernel.Op)
}

func (p *overheard) Do(op kernel.Op) error {
	p.before(op)
	return p.Device.Do(op)
}

// The stages of a pass, which errors, the watchdog and traces name, and the operations of each stage are those of the
// golden table, for a prompt of every family.
func TestTableOfStages(t *testing.T) {
	var lines []string
	for _, c := range []struct {
		name, dir string
	}{
		{"deepseek_v3", testmodel.V3Draft(t)}, {"deepseek_v32", testmodel.V32Draft(t)},
		{"deepseek_v4", testmodel.V4(t)},
		{"deepseek_v41", testmodel.V41Spark(t)}, {"glm5_next", testmodel.Next(t)},
	} {
		dev := &overheard{Device: steps.Device(t, "cpu"), before: func(kernel.Op) {}}
		m := loadOn(t, c.dir, dev)
		b := newBench(t, m, plan.Policy{KV: "f32"})
		w := step.Work{Kind: plan.ModeExtend, Tokens: []int32{7, 8, 9}, Pages: []int32{0}, Logits: 1}
		if s, ok := m.(model.Stateful); ok {
			var err error
			if w.State, err = s.NewState(); err != nil {
				t.Fatal(err)
			}
			defer w.State.Release()
		}
		var stages []string
		dev.before = func(op kernel.Op) {
			place := strings.TrimPrefix(m.(model.Placer).Place(), "enqueued last: ")
			name, stage, _ := strings.Cut(place, " in ")
			if want := op.Name(); name != want {
				t.Errorf("%s: the place of %s is %s", c.name, want, place)
			}
			if stage = "  " + stage + ":"; len(stages) == 0 || !strings.HasPrefix(stages[len(stages)-1], stage) {
				stages = append(stages, stage)
			}
			stages[len(stages)-1] += " " + name
		}
		b.step(w)
		lines = slices.Concat(lines, []string{fmt.Sprint(c.name, ":")}, stages)
	}
	table.Check(t, "stages.txt", lines)
}
