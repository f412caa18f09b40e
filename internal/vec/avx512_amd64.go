//go:build !purego

package vec

// avx512 is the instruction set AVX-512 (F, BW, DQ, VL). The generator in _asm writes its kernels.
var avx512 = &isa{
	name:   "avx512",
	rowsMR: 4,
	rows: [formats][4][2]func(*rowsArgs){
		formatF32: {
			{rowsF321x4avx512, rowsF321x1avx512},
			{rowsF322x4avx512, rowsF322x1avx512},
			{rowsF323x4avx512, rowsF323x1avx512},
			{rowsF324x4avx512, rowsF324x1avx512},
		},
		formatBF16: {
			{rowsBF161x4avx512, rowsBF161x1avx512},
			{rowsBF162x4avx512, rowsBF162x1avx512},
			{rowsBF163x4avx512, rowsBF163x1avx512},
			{rowsBF164x4avx512, rowsBF164x1avx512},
		},
		formatFP8: {
			{rowsFP81x4avx512, rowsFP81x1avx512},
			{rowsFP82x4avx512, rowsFP82x1avx512},
			{rowsFP83x4avx512, rowsFP83x1avx512},
			{rowsFP84x4avx512, rowsFP84x1avx512},
		},
	},
	rowsCode: [4][2]func(*rowsArgs){
		{rowsCode1x4avx512, rowsCode1x1avx512},
		{rowsCode2x4avx512, rowsCode2x1avx512},
		{rowsCode3x4avx512, rowsCode3x1avx512},
		{rowsCode4x4avx512, rowsCode4x1avx512},
	},
	rowsUpTo: [formats]int{formatF32: 8, formatBF16: 11, formatFP8: 8},
	panelMR:  4,
	panels:   []panelKernel{{6, panel4x6avx512}, {4, panel4x4avx512}},
	accCols:  64,
	acc: [accMR]func(*accArgs){
		accF321x64avx512,
		accF322x64avx512,
		accF323x64avx512,
		accF324x64avx512,
		accF325x64avx512,
		accF326x64avx512,
	},
	wideCols: 128,
	wide: [formats]func(*accArgs){
		formatF32:  accF321x128avx512,
		formatBF16: accBF161x128avx512,
		formatFP8:  accFP81x128avx512,
	},
	pack: [formats]func(*accArgs){
		formatF32:  packF3264avx512,
		formatBF16: packBF1664avx512,
		formatFP8:  packFP864avx512,
	},
	float: floatKernels{
		fill: [floatFormats]func(*floatArgs){
			RowBF16:  floatFillBF16avx512,
			RowRaw:   floatFillRawavx512,
			RowBlock: floatFillBlockavx512,
			RowF32:   floatFillF32avx512,
		},
		scores:    floatScoresavx512,
		softmax:   floatSoftmaxavx512,
		values:    floatValuesavx512,
		scoreKeys: 16,
		again:     [floatFormats]bool{RowBF16: true},
	},
	nibbles: nibbleKernels{
		rows:   [4]func(*nibbleArgs){nibbleRows1avx512, nibbleRows2avx512, nibbleRows3avx512, nibbleRows4avx512},
		order:  orderNibblesavx512,
		scales: scalesToFloatavx512,
		factor: 1,
	},
	vec: vectors{lanes: 16, kernels: vecKernels{
		axpy:         axpyavx512,
		scaleMul:     scaleMulavx512,
		widenBF16:    widenBF16avx512,
		widenE4M3:    widenE4M3avx512,
		scaleExact:   scaleExactavx512,
		narrowBF16:   narrowBF16avx512,
		siluMul:      siluMulavx512,
		expSum:       expSumavx512,
		maximum:      maximumavx512,
		reluAdd:      reluAddavx512,
		rotatePairs:  rotatePairsavx512,
		rotateHalves: rotateHalvesavx512,
		softmax:      softmaxavx512,
	}},
	selects:     selectKernels{count: countAboveavx512, counted: collectCountedavx512, placed: collectPlacedavx512},
	quant:       rotateQuantavx512,
	indexLines:  indexLinesavx512,
	indexHeads:  indexHeadsavx512,
	indexFP4:    indexFP4Linesavx512,
	newIndexFP4: newFP4Columns,
}
