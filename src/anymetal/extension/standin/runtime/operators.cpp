// Watches the calls of extensions' operators, through torch's observers.
#include "operators.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>

#include <memory>

#include "order.h"
#include "services.h"

namespace anymetal {

namespace {

thread_local std::vector<OperatorCall> running;
std::atomic<uint64_t> last_serial{0};

bool is_extension(const std::string& name) {
  for (const char* own : {"aten::", "prim::", "prims::", "anymetal_device::", "anymetal::"}) {
    if (name.starts_with(own)) return false;
  }
  return name.find("::") != name.npos;
}

constexpr c10::DispatchKeySet kTraced({c10::DispatchKey::Python, c10::DispatchKey::Functionalize,
                                       c10::DispatchKey::FuncTorchBatched,
                                       c10::DispatchKey::FuncTorchGradWrapper});

void add(OperatorCall& call, const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_mps() || !tensor.has_storage()) return;
  // Tensors of a trace have no memory.
  if (tensor.key_set().has_any(kTraced) || tensor.numel() == 0) return;
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const size_t element = tensor.element_size();
  const size_t begin = size_t(tensor.storage_offset()) * element;
  call.tensors.push_back(
      {name, tensor.storage().data(), begin, begin + (size_t(last) + 1) * element});
}

struct Entered : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  const std::string name = function.name();
  if (!is_extension(name)) return nullptr;
  OperatorCall call{++last_serial, name, {}};
  const auto schema = function.operator_schema();
  const auto inputs = function.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool named = schema && i < schema->arguments().size();
    const std::string argument =
        named ? schema->arguments()[i].name() : "argument " + std::to_string(i);
    if (inputs[i].isTensor()) {
      add(call, argument, inputs[i].toTensor());
    } else if (inputs[i].isTensorList()) {
      for (const at::Tensor& tensor : inputs[i].toTensorVector()) add(call, argument, tensor);
    }
  }
  // What the stream has still to do may be what makes these.
  for (const TensorRange& tensor : call.tensors) {
    order.touch(kStream, tensor.storage, true, "torch's stream");
  }
  running.push_back(std::move(call));
  return std::make_unique<Entered>();
}

void leave(const at::RecordFunction&, at::ObserverContext* entered) {
  if (entered == nullptr || running.empty()) return;
  for (const std::string& what : order.unseen_by_stream()) {
    warn("unordered_buffers", "error", running.back().name.c_str(),
         what + " is still running when the operator returns, and torch's stream does not wait");
  }
  running.pop_back();
}

}  // namespace

OperatorCall* current_operator() { return running.empty() ? nullptr : &running.back(); }

uint64_t current_serial() { return running.empty() ? 0 : running.back().serial; }

}  // namespace anymetal

extern "C" void anymetal_extension_watch_operators() {
  static const auto handle =
      at::addGlobalCallback(at::RecordFunctionCallback(&anymetal::enter, &anymetal::leave)
                                .needsInputs(true)
                                .scopes({at::RecordScope::FUNCTION}));
  (void)handle;
}
