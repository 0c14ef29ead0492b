// Operators that a Mac has no MPS kernel for: they raise, or run with a warning, or just run.
#pragma once

#include <c10/util/Exception.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "fallback.h"

namespace anymetal {

enum class Missing { kRun = 0, kWarn = 1, kError = 2 };

inline Missing missing_policy = Missing::kWarn;

struct MissingOperator {
  std::string reported;     // what a Mac names in its message: often the out= form
  bool falls_back = false;  // a Mac runs it on the CPU without being asked to
};

using MissingOperators = std::unordered_map<std::string, MissingOperator>;

inline MissingOperators& missing_operators = *new MissingOperators;

inline MissingOperator described(const c10::OperatorHandle& op) {
  const std::string name = c10::toString(op.operator_name());
  const auto found = missing_operators.find(name);
  return found == missing_operators.end() ? MissingOperator{name} : found->second;
}

inline void warn_once(const MissingOperator& missing) {
  static std::mutex mutex;
  static auto& warned = *new std::unordered_set<std::string>;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!warned.insert(missing.reported).second) return;
  }
  const char* on_a_mac = missing.falls_back
                             ? "it falls back to the CPU."
                             : "it raises NotImplementedError, or falls back to the CPU with "
                               "PYTORCH_ENABLE_MPS_FALLBACK=1.";
  TORCH_WARN("The operator '", missing.reported,
             "' is not implemented for the MPS device in this version of torch. It runs here; on "
             "a Mac ",
             on_a_mac);
}

// torchvision has MPS kernels on a Mac, which its Linux builds leave out.
inline bool has_kernels_on_a_mac(const c10::OperatorHandle& op) {
  return op.operator_name().name.rfind("torchvision::", 0) == 0;
}

inline void run_missing(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        torch::jit::Stack* stack) {
  if (missing_policy != Missing::kRun && !has_kernels_on_a_mac(op)) {
    const MissingOperator missing = described(op);
    TORCH_CHECK_NOT_IMPLEMENTED(
        missing_policy != Missing::kError || missing.falls_back, "The operator '", missing.reported,
        "' is not currently implemented for the MPS device. As a temporary fix, you can set the "
        "environment variable `PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a fallback for "
        "this op. WARNING: this will be slower than running natively on MPS.");
    warn_once(missing);
  }
  run_on_host(op, keys, stack);
}

}  // namespace anymetal
