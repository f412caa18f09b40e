package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sparrow/model/inspect"
)

func inspectCommand() *cobra.Command {
	var memories []float64
	var asJSON bool
	c := &cobra.Command{
		Use:   "inspect DIR",
		Short: "Describe a checkpoint: parameters, bytes, cache per token, what fits where",
		Example: `  sparrow inspect testdata/oracle/deepseek_v32-1
  sparrow inspect /models/DeepSeek-V3.2 --memory 768,1024 --json
  sparrow inspect deepseek-ai/DeepSeek-V3.2`,
		Args: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, m := range memories {
				if !(m > 0) || m > 1<<20 {
					return fmt.Errorf("inspect: --memory %g: want GiB between 0 and %d", m, 1<<20)
				}
			}
			dir, err := modelFolder("inspect: ", args[0])
			if err != nil {
				return err
			}
			s, err := modelSource(dir)
			if err != nil {
				return err
			}
			defer s.Close()
			sum := inspect.Of(s, memories)
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), sum)
			}
			return sum.Print(cmd.OutOrStdout())
		},
	}
	c.Flags().Float64SliceVar(&memories, "memory", []float64{24, 80, 141},
		"memories, in `GiB`, to fit weights and cache into")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
