// The operator that is running in this thread: which tensors it was called with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace anymetal {

struct TensorRange {
  std::string name;
  const void* storage;
  size_t begin, end;  // bytes from the storage's beginning
};

struct OperatorCall {
  uint64_t serial;
  std::string name;
  std::vector<TensorRange> tensors;
  bool holds_encoder = false;
};

// The innermost operator of an extension, or nullptr.
OperatorCall* current_operator();

// Numbers operators, 0 outside of one: what was bound in another operator is told by it.
uint64_t current_serial();

}  // namespace anymetal
