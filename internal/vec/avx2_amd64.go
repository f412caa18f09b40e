//go:build !purego

package vec

// avx2 is the instruction set AVX2 with FMA and F16C. The generator in _asm writes its kernels.
var avx2 = &isa{
	name:   "avx2",
	rowsMR: 2,
	rows: [formats][4][2]func(*rowsArgs){
		formatF32: {
			{rowsF321x4avx2, rowsF321x1avx2},
			{rowsF322x4avx2, rowsF322x1avx2},
		},
		formatBF16: {
			{rowsBF161x4avx2, rowsBF161x1avx2},
			{rowsBF162x4avx2, rowsBF162x1avx2},
		},
		formatFP8: {
			{rowsFP81x4avx2, rowsFP81x1avx2},
			{rowsFP82x4avx2, rowsFP82x1avx2},
		},
	},
	rowsCode: [4][2]func(*rowsArgs){
		{rowsCode1x4avx2, rowsCode1x1avx2},
		{rowsCode2x4avx2, rowsCode2x1avx2},
	},
	rowsUpTo: [formats]int{formatF32: 5, formatBF16: 8, formatFP8: 5},
	panelMR:  3,
	panels:   []panelKernel{{4, panel3x4avx2}},
	accCols:  16,
	acc: [accMR]func(*accArgs){
		accF321x16avx2,
		accF322x16avx2,
		accF323x16avx2,
		accF324x16avx2,
		accF325x16avx2,
		accF326x16avx2,
	},
	wideCols: 64,
	wide: [formats]func(*accArgs){
		formatF32:  accF321x64avx2,
		formatBF16: accBF161x64avx2,
		formatFP8:  accFP81x64avx2,
	},
	pack: [formats]func(*accArgs){
		formatF32:  packF3216avx2,
		formatBF16: packBF1616avx2,
		formatFP8:  packFP816avx2,
	},
	float: floatKernels{
		fill: [floatFormats]func(*floatArgs){
			RowBF16:  floatFillBF16avx2,
			RowRaw:   floatFillRawavx2,
			RowBlock: floatFillBlockavx2,
			RowF32:   floatFillF32avx2,
		},
		scores:    floatScoresavx2,
		softmax:   floatSoftmaxavx2,
		values:    floatValuesavx2,
		scoreKeys: 6,
	},
	nibbles: nibbleKernels{
		rows:   [4]func(*nibbleArgs){nibbleRows1avx2, nibbleRows2avx2, nibbleRows3avx2, nibbleRows4avx2},
		order:  orderNibblesavx2,
		scales: scalesToFloatavx2,
		factor: 0.5,
	},
	vec: vectors{lanes: 8, kernels: vecKernels{
		axpy:         axpyavx2,
		scaleMul:     scaleMulavx2,
		widenBF16:    widenBF16avx2,
		widenE4M3:    widenE4M3avx2,
		scaleExact:   scaleExactavx2,
		narrowBF16:   narrowBF16avx2,
		siluMul:      siluMulavx2,
		expSum:       expSumavx2,
		maximum:      maximumavx2,
		reluAdd:      reluAddavx2,
		rotatePairs:  rotatePairsavx2,
		rotateHalves: rotateHalvesavx2,
		softmax:      softmaxavx2,
	}},
	selects:     selectKernels{count: countAboveavx2},
	indexFP4:    indexFP4Rowsavx2,
	newIndexFP4: newFP4Rows,
}
