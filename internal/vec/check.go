package vec

import "fmt"

// The checks below run before any assembly, so that assembly never accesses memory outside its arguments. They divide
// instead of multiplying, because a product of two large dimensions could overflow and pass the check.

// needMatrix panics unless length elements are enough for rows x cols with rows ld apart.
func needMatrix(method, name string, length, rows, cols, ld int) {
	if rows < 0 || cols < 0 {
		panic(fmt.Sprintf("vec: %s: %s has negative shape [%d, %d]", method, name, rows, cols))
	}
	if rows == 0 || cols == 0 {
		return
	}
	if rows > 1 && ld < cols {
		panic(fmt.Sprintf("vec: %s: %s has rows of %d elements only %d apart", method, name, cols, ld))
	}
	if length < cols || rows > 1 && (length-cols)/ld < rows-1 {
		panic(fmt.Sprintf("vec: %s: %s has %d elements, too few for [%d, %d] with rows %d apart",
			method, name, length, rows, cols, ld))
	}
}

// needLen panics unless a slice has the required length.
func needLen(method, name string, length, want int) {
	if length != want {
		panic(fmt.Sprintf("vec: %s: %s has %d elements, want %d", method, name, length, want))
	}
}

// needScales panics unless the scales cover rows x cols weights whose first
// row is row0 of the full matrix.
func needScales(method string, s FP8Blocks, rows, cols int) {
	if s.Row0 < 0 {
		panic(fmt.Sprintf("vec: %s: the first row is %d, want 0 or more", method, s.Row0))
	}
	if rows == 0 || cols == 0 {
		return
	}
	bands := (s.Row0+rows-1)/s.Rows + 1
	needMatrix(method, "scale", len(s.Scale), bands, (cols-1)/s.Cols+1, s.Ld)
}
