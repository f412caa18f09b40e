// Matrix products in bf16, portable kernels: for up to 8 and up to 16 rows, each for long and for short k; for more
// rows, with small and with large tiles.
#include "sm80/product/product.cuh"
#include "sm80/product/stream.cuh"

PORTABLE_STREAM(portable_product_bf16_few8, 4, portable::Bf16, 8, 1, 1)
PORTABLE_STREAM(portable_product_bf16_few16, 4, portable::Bf16, 8, 2, 1)
PORTABLE_STREAM(portable_product_bf16_short8, 4, portable::Bf16, 2, 1, 1)
PORTABLE_STREAM(portable_product_bf16_short16, 3, portable::Bf16, 2, 2, 1)
PORTABLE_PRODUCT(portable_product_bf16_some, 1, portable::Bf16, 64, 64, 2, 2, 4)
PORTABLE_PRODUCT(portable_product_bf16_many, 1, portable::Bf16, 128, 128, 2, 4, 3)
