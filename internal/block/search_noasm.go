//go:build purego || !amd64

package block

func affineSums(a *lanes)    { affineSumsGo(a) }
func affineErrors(a *lanes)  { affineErrorsGo(a) }
func symmetricSums(a *lanes) { symmetricSumsGo(a) }
