// Chosen rows of a table: embeddings by token, rows of a batch by number. A row outside the table raises a fault and
// becomes zeros.
//
// In       table [table_rows, columns] f32, bf16 or f16; ids i32 [rows].
// Out      [rows, columns] f32 or bf16, rounded once; rows of the same type keep their bits.
// Block    256 threads, one row. Rows of the same type that are aligned to 16 bytes move as 16-byte pieces.
// Bytes    a row read and a row written.
#pragma once
#include "smxx/floats.cuh"
#include "smxx/pick/args.h"

DEVICE void pick_body(const PickArgs& a) {
    begin_after_previous();
    i64 row = blockIdx.x;
    i64 id = a.ids[row * a.id_stride];
    bool inside = id >= 0 && id < a.table_rows;
    if (!inside && threadIdx.x == 0) raise_fault(a.faults, kFaultRow);
    i32 bytes = element_bytes(a.out_type);
    u8* out = static_cast<u8*>(a.out) + row * a.out_stride * bytes;
    const u8* table =
        static_cast<const u8*>(a.table) + (inside ? id : 0) * a.table_stride * element_bytes(a.table_type);
    if (a.table_type == a.out_type && aligned_16(a.table, a.table_stride * bytes) &&
        aligned_16(a.out, a.out_stride * bytes) && a.columns * bytes % 16 == 0) {
        for (i32 i = threadIdx.x; i < a.columns * bytes / 16; i += kThreads) {
            reinterpret_cast<uint4*>(out)[i] =
                inside ? reinterpret_cast<const uint4*>(table)[i] : make_uint4(0, 0, 0, 0);
        }
        return;
    }
    if (a.table_type == a.out_type) { // bits as they are, of numbers that are no floats too
        for (i32 i = threadIdx.x; i < a.columns; i += kThreads) {
            if (bytes == 4)
                reinterpret_cast<u32*>(out)[i] = inside ? reinterpret_cast<const u32*>(table)[i] : 0;
            else
                reinterpret_cast<u16*>(out)[i] = inside ? reinterpret_cast<const u16*>(table)[i] : 0;
        }
        return;
    }
    for (i32 i = threadIdx.x; i < a.columns; i += kThreads) {
        write_float(out, i, a.out_type, inside ? read_float(table, i, a.table_type) : 0.0f);
    }
}
