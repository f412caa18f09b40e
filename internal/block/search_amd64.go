//go:build !purego

package block

import "golang.org/x/sys/cpu"

//go:noescape
func affineSumsAVX2(a *lanes)

//go:noescape
func affineErrorsAVX2(a *lanes)

//go:noescape
func symmetricSumsAVX2(a *lanes)

func affineSums(a *lanes) {
	if cpu.X86.HasAVX2 {
		affineSumsAVX2(a)
		return
	}
	affineSumsGo(a)
}

func affineErrors(a *lanes) {
	if cpu.X86.HasAVX2 {
		affineErrorsAVX2(a)
		return
	}
	affineErrorsGo(a)
}

func symmetricSums(a *lanes) {
	if cpu.X86.HasAVX2 {
		symmetricSumsAVX2(a)
		return
	}
	symmetricSumsGo(a)
}
