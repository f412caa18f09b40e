package op

import (
	"fmt"

	"sparrow/kernel"
)

// missing answers the operations that have no kernel.
type missing struct{}

// ErrNoKernel is wrapped by operations that have no kernel. It wraps kernel.ErrUnsupported.
var ErrNoKernel = fmt.Errorf("%w: no CUDA kernel", kernel.ErrUnsupported)

// without is the answer of one of them.
type without string

func (op without) Error() string {
	return fmt.Sprintf("%v: cuda: %s has no kernel", kernel.ErrUnsupported, string(op))
}
func (without) Unwrap() error { return ErrNoKernel }

// Missing lists the operations without a kernel.
func Missing() []string {
	return []string{"hyper prepare", "hyper post", "hyper head", "head norm", "compress", "put", "route by root",
		"route by hash"}
}

func (missing) HyperPre(kernel.HyperPreArgs) error   { return without("hyper prepare") }
func (missing) HyperPost(kernel.HyperPostArgs) error { return without("hyper post") }
func (missing) HyperHead(kernel.HyperHeadArgs) error { return without("hyper head") }
func (missing) HeadNorm(kernel.HeadNormArgs) error   { return without("head norm") }
func (missing) Compress(kernel.CompressArgs) error   { return without("compress") }
func (missing) Put(kernel.PutArgs) error             { return without("put") }
func (missing) RouteRoot(kernel.RootRouteArgs) error { return without("route by root") }
func (missing) RouteHash(kernel.HashRouteArgs) error { return without("route by hash") }
