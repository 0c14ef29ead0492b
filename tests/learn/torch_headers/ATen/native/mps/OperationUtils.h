// The way from a tensor to its buffer, as torch 2.13 declares it, in part.
#pragma once
#import <Metal/Metal.h>
#include <torch/extension.h>

namespace at::native::mps {
id<MTLBuffer> getMTLBufferStorage(const at::Tensor &tensor);
}
