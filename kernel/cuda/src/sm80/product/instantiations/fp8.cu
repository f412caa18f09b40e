// Products of fp8 of the portable tier: up to 16 rows, small ones, large ones.
#include "sm80/product/product.cuh"

PORTABLE_PRODUCT(portable_product_fp8_few, portable::Codes, 16, 32, 1, 4, 8)
PORTABLE_PRODUCT(portable_product_fp8_some, portable::Codes, 64, 64, 2, 2, 4)
PORTABLE_PRODUCT(portable_product_fp8_many, portable::Codes, 128, 128, 2, 4, 3)
