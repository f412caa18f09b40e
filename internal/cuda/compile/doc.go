// Package compile compiles the CUDA sources of kernel/cuda to the images that package image embeds.
//
// The input is a source tree and NVRTC, NVIDIA's run-time compiler, which is loaded from a CUDA toolkit or from the
// nvidia-cuda-nvrtc Python wheel. The output is compressed cubin and PTX files and a manifest with source hashes,
// kernel resources and argument-struct layouts. The sources include only files of their own tree, so no toolkit headers
// are needed. No GPU is needed either.
package compile
