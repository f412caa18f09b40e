package kernels

// Cases returns all operations at the main shapes of V3.2 and V4, including those of the table of targets.
func Cases() []Case {
	var out []Case
	for _, list := range [][]Case{productCases(), blockCases(), groupCases(), indexCases(), attendCases(),
		cacheCases(), rowCases(), v4Cases(), v41Cases(),
		linearCases()} {
		out = append(out, list...)
	}
	return out
}
