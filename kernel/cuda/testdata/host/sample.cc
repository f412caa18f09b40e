// Runs the kernel that samples tokens on the host. Standard input is a list of rows; a row is the number of columns and
// the best column (i32), the draw (10 words), and the logits (f32). Standard output is the sampled column of each row
// (i32). With the arguments "weights" and a number, it prints a hash of the buckets and weights of that many distances
// instead.
#include "smxx/sample/sample.cuh"

static SampleArgs args;

static void hash_weights(u64 n) {
    static SampleShared s;
    block.run(32, [] {
        Sampling<32> r{s, nullptr, 0, 0, 0, false};
        r.make_scales();
    });
    u64 hash = 14695981039346656037ull, x = 1;
    for (u64 i = 0; i < n; i++) {
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        f64 d = f64(x >> 11) * 0x1p-53 * kReach;
        i32 b = sample_bucket(d);
        hash = (hash ^ sample_weight(s.scales[b], b, d) ^ u64(b) << 50) * 1099511628211ull;
    }
    printf("%llu\n", hash);
}

int main(int n, char** arg) {
    if (n == 3 && !strcmp(arg[1], "weights")) {
        hash_weights(strtoull(arg[2], nullptr, 10));
        return 0;
    }
    std::vector<f32> logits;
    i32 head[2 + kDrawWords], id;
    for (int row = 0; fread(head, 4, 2 + kDrawWords, stdin) == 2 + kDrawWords; row++) {
        logits.resize(head[0]);
        if (fread(logits.data(), 4, head[0], stdin) != size_t(head[0])) return 1;
        alignas(8) i32 draw[kDrawWords];
        memcpy(draw, head + 2, sizeof draw);
        id = head[1];
        args = SampleArgs{logits.data(), draw, &id, &id, head[0], 1, 1, head[0]};
        if (row % 40 == 0)
            block.run(256, [] { sample_row<256>(args); });
        else
            block.run(32, [] { sample_row<32>(args); });
        fwrite(&id, 4, 1, stdout);
    }
    return 0;
}
