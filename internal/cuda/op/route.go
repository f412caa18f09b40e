package op

import (
	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// route chooses experts by the sigmoid of their logits.
func route(d *Device, a kernel.RouteArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	return routeRows(d, "route", a.Logits, a.IDs, a.Weights, cuda.RouteArgs{Bias: at(a.Bias), Groups: int32(a.Groups),
		KeepGroups: int32(a.KeepGroups), Normalize: flag(a.Normalize), Scale: a.Scale})
}

// routeRoot chooses experts by the square root of softplus.
func routeRoot(d *Device, a kernel.RootRouteArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	return routeRows(d, "route by root", a.Logits, a.IDs, a.Weights, cuda.RouteArgs{Bias: at(a.Bias), Groups: 1,
		KeepGroups: 1, Normalize: 1, Scale: a.Scale, Root: 1})
}

// routeHash looks experts up by token. A token outside the table raises a fault.
func routeHash(d *Device, a kernel.HashRouteArgs) error {
	if err := a.Check(); err != nil {
		return err
	}
	r := require{op: "route by hash"}
	rows := r.count("rows of the table", a.Table.Rows)
	if r.err != nil {
		return r.err
	}
	return routeRows(d, r.op, a.Logits, a.IDs, a.Weights, cuda.RouteArgs{Table: at(a.Table), Tokens: at(a.Tokens),
		TableStride: stride(a.Table), TokenStride: stride(a.Tokens), TableRows: rows, Groups: 1, KeepGroups: 1,
		Normalize: 1, Scale: a.Scale, Root: 1})
}

// routeRows delays the choice of experts, to run in one launch with the operations of the experts that follow. A
// delayed sum stays delayed, unless the router reads or writes its rows. args has the fields that depend on the kind of
// router.
func routeRows(d *Device, op string, logits, ids, weights kernel.Tensor, args cuda.RouteArgs) error {
	if h := &d.held; h.kind != holdSum || h.routes || overlap(h.sum.rows, logits) || overlap(h.sum.rows, ids) ||
		overlap(h.sum.rows, weights) {
		if err := d.settle(); err != nil {
			return err
		}
	}
	r := require{op: op}
	if logits.Cols > cuda.MaxRouted || args.Groups > cuda.MaxGroups {
		r.fail("there are %d experts in %d groups, this backend supports up to %d in up to %d", logits.Cols,
			args.Groups, cuda.MaxRouted, cuda.MaxGroups)
	}
	args.Logits, args.IDs, args.Weights, args.Faults = at(logits), at(ids), at(weights), d.faults.Ptr()
	args.LogitStride, args.IDStride, args.WeightStride = stride(logits), stride(ids), stride(weights)
	args.Rows, args.Experts, args.Top = r.count("rows", logits.Rows), r.count("experts", logits.Cols),
		r.count("choices", ids.Cols)
	if r.err != nil || logits.Rows == 0 || ids.Cols == 0 {
		return r.err
	}
	d.held.routes, d.held.route = true, args
	return nil
}
