// Tensors of the device and of the host over the same memory, for the length of one operator call.
//
// A CPU kernel gets host twins of the device's tensors. What it returns is made the device's again:
// a twin becomes the tensor it stands for, memory it allocated is adopted, and sizes it changed are
// changed on the original.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/SmallVector.h>

#include "allocator.h"
#include "device.h"

namespace anymetal {

[[noreturn]] inline void refuse_double() {
  TORCH_CHECK_TYPE(false,
                   "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't "
                   "support float64. Please use float32 instead.");
  std::abort();  // TORCH_CHECK_TYPE has thrown
}

inline void check_dtype(c10::ScalarType type) {
  if (C10_UNLIKELY(type == at::kDouble || type == at::kComplexDouble)) refuse_double();
}

inline void release_storage(void* storage) {
  c10::intrusive_ptr<c10::StorageImpl>::reclaim(static_cast<c10::StorageImpl*>(storage));
}

// The memory of a storage under another device's name. It is kept alive without copying it.
inline c10::DataPtr shared_memory(const c10::Storage& storage, c10::Device device) {
  auto* impl = storage.unsafeGetStorageImpl();
  // Mutable, so that a lazy copy gets memory of its own before a twin can write to it.
  const c10::DataPtr& memory = impl->mutable_data_ptr();
  if (memory.get_deleter() == &release_block && memory.get_context() != nullptr) {
    auto* block = static_cast<Block*>(memory.get_context());
    block->retain();
    return {memory.get(), block, &release_block, device};
  }
  auto owner = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(impl);
  return {memory.get(), owner.release(), &release_storage, device};
}

inline c10::Storage make_storage(c10::DataPtr memory, size_t bytes, c10::Allocator* allocator) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                            bytes, std::move(memory), allocator,
                                                            /*resizable=*/true));
}

inline c10::Storage host_storage(const c10::Storage& storage) {
  return make_storage(shared_memory(storage, kHost), storage.nbytes(), c10::GetCPUAllocator());
}

// A tensor like another one, over a storage of another device.
inline at::Tensor tensor_like(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  static constexpr c10::DispatchKeySet kCarried(
      {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor});
  auto tensor = at::detail::make_tensor_base<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key) | (like.key_set() & kCarried), like.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return tensor;
}

inline at::Tensor host_alias(const at::Tensor& tensor) {
  return tensor_like(host_storage(tensor.storage()), c10::DispatchKey::CPU, tensor);
}

class Twins {
 public:
  bool any_on_device() const { return any_on_device_; }

  // The host twin of a tensor of the device; other tensors as they are.
  at::Tensor to_host(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.device().is_mps()) return tensor;
    any_on_device_ = true;
    for (const auto& pair : tensors_) {
      if (pair.device.is_same(tensor)) return pair.host;
    }
    check_dtype(tensor.scalar_type());
    TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided,
                                "the virtual mps device has dense tensors only, not ",
                                tensor.layout());
    auto host = tensor_like(host_storage_of(tensor.storage()), c10::DispatchKey::CPU, tensor);
    tensors_.push_back({tensor, host});
    return host;
  }

  // After the call: what it did to the twins happens to the tensors they stand for.
  void write_back() {
    for (auto& pair : storages_) {
      auto* device = pair.device.unsafeGetStorageImpl();
      auto* host = pair.host.unsafeGetStorageImpl();
      if (device->data() != host->data()) {
        device->set_data_ptr_noswap(adopt(host->set_data_ptr({nullptr, kHost}), host->nbytes()));
        host->set_data_ptr_noswap(shared_memory(pair.device, kHost));
      }
      if (device->nbytes() != host->nbytes()) device->set_nbytes(host->nbytes());
    }
    for (auto& pair : tensors_) {
      const at::Tensor& host = pair.host;
      const at::Tensor& device = pair.device;
      if (C10_UNLIKELY(host.sizes() != device.sizes() || host.strides() != device.strides() ||
                       host.storage_offset() != device.storage_offset())) {
        auto* impl = device.unsafeGetTensorImpl();
        impl->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
      }
    }
  }

  // The tensor of the device for one that the kernel returned.
  at::Tensor to_device(at::Tensor tensor) {
    if (!tensor.defined() || !tensor.device().is_cpu()) return tensor;
    for (const auto& pair : tensors_) {
      if (pair.host.is_same(tensor)) return pair.device;
    }
    check_dtype(tensor.scalar_type());
    TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided,
                                "the virtual mps device has dense tensors only; this operator "
                                "returns one with layout ",
                                tensor.layout());
    if (tensor.use_count() == 1 && tensor.storage().use_count() == 1) return relabel(tensor);
    return tensor_like(device_storage_of(tensor.storage()), c10::DispatchKey::MPS, tensor);
  }

 private:
  struct StoragePair {
    c10::Storage device, host;
  };
  struct TensorPair {
    at::Tensor device, host;
  };

  // Nobody else has seen this tensor yet, so it can become one of the device as it is.
  static at::Tensor relabel(at::Tensor& tensor) {
    c10::Storage storage = tensor.storage();
    auto* impl = storage.unsafeGetStorageImpl();
    const size_t bytes = impl->nbytes();
    impl->set_data_ptr_noswap(adopt(impl->set_data_ptr({nullptr, kHost}), bytes));
    impl->set_allocator(&allocator);
    tensor.unsafeGetTensorImpl()->_change_backend_component_keys(kDevice);
    tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(storage));
    return std::move(tensor);
  }

  const c10::Storage& host_storage_of(const c10::Storage& device) {
    for (const auto& pair : storages_) {
      if (pair.device.unsafeGetStorageImpl() == device.unsafeGetStorageImpl()) return pair.host;
    }
    storages_.push_back({device, host_storage(device)});
    return storages_.back().host;
  }

  // Several results may share memory: they share a storage of the device then.
  const c10::Storage& device_storage_of(const c10::Storage& host) {
    for (const auto& pair : storages_) {
      if (pair.host.unsafeGetStorageImpl() == host.unsafeGetStorageImpl()) return pair.device;
    }
    auto memory = adopt(shared_memory(host, kHost), host.nbytes());
    storages_.push_back({make_storage(std::move(memory), host.nbytes(), &allocator), host});
    return storages_.back().device;
  }

  c10::SmallVector<StoragePair, 6> storages_;
  c10::SmallVector<TensorPair, 6> tensors_;
  bool any_on_device_ = false;
};

}  // namespace anymetal
