// The classes by name: torch's headers mention them.
#pragma once

#import <MetalPerformanceShaders/MetalPerformanceShaders.h>

@interface MPSGraph : NSObject
@end
@interface MPSGraphTensor : NSObject
@end
@interface MPSGraphTensorData : NSObject
@end
@interface MPSGraphExecutionDescriptor : NSObject
@end
@interface MPSGraphCompilationDescriptor : NSObject
@end
