package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"sparrow/internal/device"
	"sparrow/internal/device/group"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/verify"
)

func verifyCommand() *cobra.Command {
	var flags policyFlags
	var exact, exactIndex, replay, asJSON bool
	var chunk int
	var ranks rankFlags
	var kernels string
	c := &cobra.Command{
		Use:   "verify DIR",
		Short: "Compare a checkpoint's outputs with its golden ones",
		Long: `Verify runs the prompts of a checkpoint's golden.safetensors: prefill, then greedy decode with the cache. It compares
logits, hidden states, selections and tokens with the golden ones. With --exact, rows are cached and multiplied in
float32, and all results must agree. With a quantised cache medians are compared, because rounding changes single
choices on random weights. A GPU has bf16 activations, so it is compared with the reference with the same rounding,
operation by operation and as a whole (docs/gpu.md). Exit status 1 means that a result is out of tolerance. DIR is a
folder with golden.json and golden.safetensors next to the weights, such as those in testdata/oracle of the source tree.`,
		Example: `  sparrow verify testdata/oracle/deepseek_v32-1 --exact
  sparrow verify testdata/oracle/glm_moe_dsa-1 --kv fp8-576 --prefill sparse-block --chunk 64
  sparrow verify testdata/oracle/deepseek_v32-1 --exact --replay
  sparrow verify testdata/oracle/deepseek_v32-1 --exact --ranks 2
  sparrow verify testdata/oracle/deepseek_v32-1 --exact --kernels ref --json`,
		Args: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := flags.policy()
			if err != nil {
				return err
			}
			if exact {
				if p.KV != "" && p.KV != "f32" && p.KV != "exact" {
					return fmt.Errorf(
						"verify: --exact means float32 caches and contradicts --kv %s; omit one of them", p.KV)
				}
				p.KV = "f32"
			}
			p.ExactIndex = exactIndex
			if chunk < 0 {
				return fmt.Errorf("verify: --chunk %d: want the number of prompt tokens per step, or 0 for whole "+
					"prompts", chunk)
			}
			of, err := ranks.devices(kernels)
			if err != nil {
				return fmt.Errorf("verify: %w", err)
			}
			q := device.Request{Kernels: kernels, Policy: p, Warn: warnings(cmd)}
			r, err := runVerify(args[0], q, of, verify.Options{Chunk: chunk, Replay: replay})
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if asJSON {
				err = writeJSON(out, r)
			} else {
				err = r.Print(out)
			}
			if err == nil && !r.Passed {
				err = errReported
			}
			return err
		},
	}
	flags.add(c.Flags())
	c.Flags().BoolVar(&exact, "exact", false,
		"cache rows and indexer keys in float32, multiply without rounding, and require equality")
	c.Flags().BoolVar(&exactIndex, "exact-index", false,
		"keep indexer keys in float32, to see the rounding of rows alone")
	c.Flags().IntVar(&chunk, "chunk", 0, "prompt tokens per step; 0 runs prompts whole")
	c.Flags().BoolVar(&replay, "replay", false,
		"run every case again with the selections and experts it chose, and require the same bits; on CPUs")
	addKernels(c.Flags(), &kernels)
	ranks.add(c.Flags())
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func runVerify(dir string, q device.Request, ranks device.Ranks, o verify.Options) (_ *verify.Report,
	err error) {
	if dir, err = modelFolder("verify: ", dir); err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, errors.New("verify: the model inside the binary has no golden outputs; verify a folder " +
			"under testdata/oracle of the source tree, or ask questions with known answers: sparrow eval")
	}
	src, err := family.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	q.Source, q.Precise = src, q.Policy.KV == "f32" || q.Policy.KV == "exact"
	open := onDevice
	if max(ranks.Count, len(ranks.GPUs)) > 1 {
		open = func(q device.Request) (kernel.Machine, func() (model.Model, error), error) {
			return onRanks(q, ranks)
		}
	}
	dev, load, err := open(q)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	m, err := load()
	if err != nil {
		return nil, err
	}
	hw, err := model.Hardware(dev)
	if err != nil {
		return nil, err
	}
	if o.Config, _, err = plan.Resolve(hw, m.Facts(), q.Policy); err != nil {
		return nil, err
	}
	if o.Replay && hw.Arch != plan.CPU {
		return nil, fmt.Errorf("verify: --replay is not supported on a GPU, which cannot run with given choices; " +
			"run with --kernels cpu")
	}
	if dev.Activation() == kernel.BF16 {
		if o.Reference, err = reference(src, dev, hw, q.Policy); err != nil {
			return nil, err
		}
	}
	return verify.Run(dir, m, o)
}

// reference returns the device for comparison with a device that has bf16 activations, or with ranks of such devices.
func reference(src *family.Source, dev kernel.Machine, hw plan.Hardware, p plan.Policy) (*verify.Reference, error) {
	if one, ok := dev.(kernel.Device); ok {
		return verify.NewReference(src, one)
	}
	facts, err := family.Facts(src.Model)
	if err != nil {
		return nil, err
	}
	whole, _, err := plan.Resolve(hw, facts, p)
	if err != nil {
		return nil, err
	}
	return verify.NewRanksReference(src, dev, whole)
}

// onDevice opens a device, and returns a function that loads the model on it.
func onDevice(q device.Request) (kernel.Machine, func() (model.Model, error), error) {
	dev, err := device.Open(registry(), q)
	return dev, func() (model.Model, error) { return q.Source.Load(dev, nil) }, err
}

// onRanks opens several ranks. With Compare, the group checks that replicated data is bitwise equal on all ranks.
func onRanks(q device.Request, of device.Ranks) (kernel.Machine, func() (model.Model, error), error) {
	g, err := device.OpenRanks(registry(), q, of, group.Options{Compare: true})
	if err != nil {
		return nil, nil, err
	}
	return g.Machine(), func() (model.Model, error) { return q.Source.LoadRanks(g, of.Attention, nil) }, nil
}
