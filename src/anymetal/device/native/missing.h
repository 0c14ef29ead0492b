// Operators that a Mac has no MPS kernel for: they raise, or run with a warning, or just run.
#pragma once

#include <c10/util/Exception.h>

#include <mutex>
#include <string>
#include <unordered_set>

#include "fallback.h"

namespace anymetal {

enum class Missing { kRun = 0, kWarn = 1, kError = 2 };

inline Missing missing_policy = Missing::kWarn;

inline void warn_once(const std::string& name) {
  static std::mutex mutex;
  static std::unordered_set<std::string> warned;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!warned.insert(name).second) return;
  }
  TORCH_WARN("The operator '", name, "' is not implemented for the MPS device in "
             "this version of torch. It runs here; on a Mac it raises NotImplementedError, or falls back ",
             "to the CPU with PYTORCH_ENABLE_MPS_FALLBACK=1.");
}

inline void run_missing(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                        torch::jit::Stack* stack) {
  if (missing_policy != Missing::kRun) {
    const std::string name = c10::toString(op.operator_name());
    TORCH_CHECK_NOT_IMPLEMENTED(
        missing_policy != Missing::kError, "The operator '", name,
        "' is not currently implemented for the MPS device. As a temporary fix, you can set the "
        "environment variable `PYTORCH_ENABLE_MPS_FALLBACK=1` to use the CPU as a fallback for "
        "this op. WARNING: this will be slower than running natively on MPS.");
    warn_once(name);
  }
  run_on_host(op, keys, stack);
}

}  // namespace anymetal
