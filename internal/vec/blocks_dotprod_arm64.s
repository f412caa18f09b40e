//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// SDOT of the extension FEAT_DotProd.
#define DOT16(m, n, d) WORD $(0x4E809400 | (m)<<16 | (n)<<5 | (d))

#define NAMEQ80 ·blockQ80dotprod
#define NAMEQ40 ·blockQ40dotprod
#define NAMEMXFP4 ·blockMXFP4dotprod
#define NAMEQ4K ·blockQ4Kdotprod
#define NAMEQ6K ·blockQ6Kdotprod

#include "blocks_neon_arm64.h"
