// What torch's C++ interface has of the same names; only for reading our pages.
#pragma once
#import <Foundation/Foundation.h>

namespace at {
struct Device {
  bool is_mps() const;
};
struct Tensor {
  int64_t numel() const;
  int64_t element_size() const;
  int64_t storage_offset() const;
  int64_t size(int64_t dimension) const;
  bool is_mps() const;
  bool is_contiguous() const;
  Tensor contiguous() const;
};
Tensor empty_like(const Tensor &like);
}  // namespace at

#define TORCH_CHECK(condition, ...) \
  if (!(condition)) __builtin_trap()
namespace torch {
struct Library {
  template <typename F>
  void impl(const char *name, F function);
  void def(const char *schema);
};
}  // namespace torch
#define TORCH_LIBRARY(name, m) void register_##name(torch::Library &m)
#define TORCH_LIBRARY_IMPL(name, key, m) void register_##name##_##key(torch::Library &m)
