// Command kernelc compiles the CUDA sources in kernel/cuda/src to the images that the sparrow binary embeds.
//
//	go run ./cmd/kernelc [--nvrtc FOLDER] [--force]
//
// It needs NVRTC, NVIDIA's run-time compiler, but neither a GPU nor a CUDA toolkit. Only images whose sources changed
// are compiled.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"sparrow/internal/cuda/compile"
)

func main() {
	cfg := compile.Config{Log: os.Stdout}
	cmd := &cobra.Command{
		Use:           "kernelc",
		Short:         "compile the CUDA kernels that the sparrow binary embeds",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(*cobra.Command, []string) error { return compile.Build(cfg) },
	}
	cmd.Flags().StringVar(&cfg.Source, "src", "kernel/cuda/src", "folder with the CUDA sources")
	cmd.Flags().StringVar(&cfg.Out, "out", "internal/cuda/image", "folder to write the images to")
	cmd.Flags().StringVar(&cfg.NVRTC, "nvrtc", "", "folder with libnvrtc.so, or a Python environment with "+
		"the nvidia-cuda-nvrtc wheel; default: the usual folders")
	cmd.Flags().BoolVar(&cfg.Force, "force", false, "compile every image, also unchanged ones")
	if err := cmd.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "kernelc:", err)
		os.Exit(1)
	}
}
