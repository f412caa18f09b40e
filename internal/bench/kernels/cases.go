package kernels

// Cases are all operations at the shapes of V3.2 and V4 that matter, the rows of the table of targets among them.
func Cases() []Case {
	var out []Case
	for _, list := range [][]Case{productCases(), blockCases(), groupCases(), indexCases(), attendCases(),
		cacheCases(), rowCases(), v4Cases(), v41Cases(),
		linearCases()} {
		out = append(out, list...)
	}
	return out
}
