// Products of bf16 of the portable tier: up to 16 rows, small ones, large ones.
#include "sm80/product/product.cuh"

PORTABLE_PRODUCT(portable_product_bf16_few, portable::Bf16, 16, 32, 1, 4, 8)
PORTABLE_PRODUCT(portable_product_bf16_some, portable::Bf16, 64, 64, 2, 2, 4)
PORTABLE_PRODUCT(portable_product_bf16_many, portable::Bf16, 128, 128, 2, 4, 3)
