// Matrix products in fp8, portable kernels: for up to 8 and up to 16 rows, each for long and for short k; for more
// rows, with small and with large tiles.
#include "sm80/product/product.cuh"
#include "sm80/product/stream.cuh"

PORTABLE_STREAM(portable_product_fp8_few8, 4, portable::Codes, 8, 1, 1)
PORTABLE_STREAM(portable_product_fp8_few16, 2, portable::Codes, 4, 2, 1)
PORTABLE_STREAM(portable_product_fp8_short8, 4, portable::Codes, 2, 1, 1)
PORTABLE_STREAM(portable_product_fp8_short16, 3, portable::Codes, 2, 2, 1)
PORTABLE_PRODUCT(portable_product_fp8_some, 1, portable::Codes, 64, 64, 2, 2, 4)
PORTABLE_PRODUCT(portable_product_fp8_many, 1, portable::Codes, 128, 128, 2, 4, 3)
