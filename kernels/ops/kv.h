#pragma once

// The KV memory that ops read and write: its layout, and its checks. Plain data; a violated check is a bug of
// the caller and ends the process.

#include <cstdint>

namespace troupe {

struct KvLayout {
  int layers = 0;       // L
  int kv_heads = 0;     // G
  int head_dim = 0;     // C
  int block_size = 16;  // B, tokens
  int64_t block_elements() const { return int64_t{2} * layers * kv_heads * head_dim * block_size; }
};

// The KV memory a backend was bound to (Backend::bind_kv).
struct BoundKv {
  KvLayout layout;
  // (block_count, L, G, 2 (k, v), B, C) of the activation type, in device memory. Owned by the caller of
  // bind_kv(), which keeps it while ops run.
  void* data = nullptr;
  int64_t block_count = 0;
};

void check_kv(const BoundKv& kv);
// That bind_kv was called, and the layer is one of its layout.
void expect_bound(const char* op, const BoundKv& kv, int layer);

}  // namespace troupe
