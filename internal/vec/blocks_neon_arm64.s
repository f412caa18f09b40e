//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// SMULL, SMULL2 and SADALP: products of signed bytes are added in pairs, so that no int16 overflows.
#define DOT16(m, n, d) \
	WORD $(0x0E20C000 | (m)<<16 | (n)<<5 | 26); \
	WORD $(0x4E20C000 | (m)<<16 | (n)<<5 | 27); \
	WORD $(0x4E606800 | 26<<5 | (d)); \
	WORD $(0x4E606800 | 27<<5 | (d))

#define NAMEQ80 ·blockQ80neon
#define NAMEQ40 ·blockQ40neon
#define NAMEMXFP4 ·blockMXFP4neon
#define NAMEQ4K ·blockQ4Kneon
#define NAMEQ6K ·blockQ6Kneon

#include "blocks_neon_arm64.h"
