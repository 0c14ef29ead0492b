// Libraries, functions with their constants, and pipelines.
#pragma once

#import <Metal/Metal.h>

#include <string>

#include "services.h"

@interface AMPipeline : NSObject <MTLComputePipelineState> {
 @public
  int64_t handle;
  anymetal::PipelineFacts facts;
  std::string name;
}
@end

namespace anymetal {

id<MTLLibrary> new_library(const char* text, size_t length, MTLCompileOptions* options,
                           bool is_data, NSError** error);
id<MTLComputePipelineState> new_pipeline(id<MTLFunction> function, NSUInteger most_threads,
                                         NSError** error);

}  // namespace anymetal
