// Copies rows from and to given positions. Pick reads embeddings by token, or rows of a batch by number; put writes
// rows to the ring buffers of their sequences. Picking a row outside the table raises a fault and gives zeros. Putting
// a row outside the output raises a fault and writes nothing.
//
// In:    [., columns] f32, bf16 or f16; positions i32 [rows].
// Out:   [., columns] f32 or bf16, rounded once; if the types are equal, values keep their bits.
// Block: 256 threads, one row. If the types are equal and rows are aligned to 16 bytes, 16 bytes are copied at a time.
// Bytes: a row is read and a row is written.
#pragma once
#include "smxx/floats.cuh"
#include "smxx/pick/args.h"

// A tensor of rows: base address, element type, and the distance between rows in elements.
struct Rows {
    u8* base;
    i64 stride;
    i32 type;

    DEVICE u8* at(i64 row) const { return base + row * stride * element_bytes(type); }
    DEVICE bool aligned() const { return aligned_16(base, stride * element_bytes(type)); }
};

// Copies a row, with all threads of a block. If `from` is negative, writes zeros.
DEVICE void copy_row(const Rows& out, i64 to, const Rows& in, i64 from, i32 columns) {
    const bool given = from >= 0;
    const i32 bytes = element_bytes(out.type);
    u8* target = out.at(to);
    const u8* source = in.at(given ? from : 0);
    if (in.type == out.type && in.aligned() && out.aligned() && columns * bytes % 16 == 0) {
        for (i32 i = threadIdx.x; i < columns * bytes / 16; i += kThreads) {
            reinterpret_cast<uint4*>(target)[i] =
                given ? reinterpret_cast<const uint4*>(source)[i] : make_uint4(0, 0, 0, 0);
        }
        return;
    }
    if (in.type == out.type) { // copies the bits, also of values that are not floats
        for (i32 i = threadIdx.x; i < columns; i += kThreads) {
            if (bytes == 4)
                reinterpret_cast<u32*>(target)[i] = given ? reinterpret_cast<const u32*>(source)[i] : 0;
            else
                reinterpret_cast<u16*>(target)[i] = given ? reinterpret_cast<const u16*>(source)[i] : 0;
        }
        return;
    }
    for (i32 i = threadIdx.x; i < columns; i += kThreads) {
        write_float(target, i, out.type, given ? read_float(source, i, in.type) : 0.0f);
    }
}

DEVICE void pick_body(const PickArgs& a, i64 row) {
    begin_after_previous();
    i64 id = a.ids[row * a.id_stride];
    if (id < 0 || id >= a.table_rows) {
        if (threadIdx.x == 0 && !(id < 0 && a.optional)) raise_fault(a.faults, kFaultRow);
        id = -1;
    }
    copy_row(Rows{static_cast<u8*>(a.out), a.out_stride, a.out_type}, row,
             Rows{static_cast<u8*>(const_cast<void*>(a.table)), a.table_stride, a.table_type}, id, a.columns);
}

DEVICE void put_body(const PutArgs& a, i64 row) {
    begin_after_previous();
    const i64 place = a.places[row * a.place_stride];
    if (place < 0) return;
    if (place >= a.out_rows) {
        if (threadIdx.x == 0) raise_fault(a.faults, kFaultRow);
        return;
    }
    copy_row(Rows{static_cast<u8*>(a.out), a.out_stride, a.out_type}, place,
             Rows{static_cast<u8*>(const_cast<void*>(a.x)), a.x_stride, a.x_type}, row, a.columns);
}
