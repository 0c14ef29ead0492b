// Metal Performance Shaders: the command buffer that torch's stream is made of. The matrix classes
// are there for the type checker; an extension that uses them does not link on Linux.
#pragma once

#import <Metal/Metal.h>

typedef NS_ENUM(uint32_t, MPSDataType) {
  MPSDataTypeInvalid = 0,
  MPSDataTypeFloatBit = 0x10000000,
  MPSDataTypeFloat32 = MPSDataTypeFloatBit | 32,
  MPSDataTypeFloat16 = MPSDataTypeFloatBit | 16,
  MPSDataTypeSignedBit = 0x20000000,
  MPSDataTypeInt8 = MPSDataTypeSignedBit | 8,
  MPSDataTypeInt16 = MPSDataTypeSignedBit | 16,
  MPSDataTypeInt32 = MPSDataTypeSignedBit | 32,
  MPSDataTypeInt64 = MPSDataTypeSignedBit | 64,
};
typedef NSArray<NSNumber*> MPSShape;

@interface MPSCommandBuffer : NSObject <MTLCommandBuffer>
AM_STORAGE
+ (instancetype)commandBufferFromCommandQueue:(id<MTLCommandQueue>)queue;
+ (instancetype)commandBufferWithCommandBuffer:(id<MTLCommandBuffer>)buffer;
@property(readonly) id<MTLCommandBuffer> commandBuffer;
@property(readonly) id<MTLCommandBuffer> rootCommandBuffer;
- (void)commitAndContinue;
@end

@interface MPSKernel : NSObject
AM_STORAGE
- (instancetype)initWithDevice:(id<MTLDevice>)device;
@end
@class MPSNDArray;
@class MPSNDArrayDescriptor;

@interface MPSMatrixDescriptor : NSObject
AM_STORAGE
+ (instancetype)matrixDescriptorWithRows:(NSUInteger)rows
                                 columns:(NSUInteger)columns
                                rowBytes:(NSUInteger)rowBytes
                                dataType:(MPSDataType)dataType;
@end

@interface MPSMatrix : NSObject
AM_STORAGE
- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer descriptor:(MPSMatrixDescriptor*)descriptor;
- (instancetype)initWithBuffer:(id<MTLBuffer>)buffer
                        offset:(NSUInteger)offset
                    descriptor:(MPSMatrixDescriptor*)descriptor;
@end

@interface MPSMatrixMultiplication : MPSKernel
- (instancetype)initWithDevice:(id<MTLDevice>)device
                 transposeLeft:(BOOL)transposeLeft
                transposeRight:(BOOL)transposeRight
                    resultRows:(NSUInteger)resultRows
                 resultColumns:(NSUInteger)resultColumns
               interiorColumns:(NSUInteger)interiorColumns
                         alpha:(double)alpha
                          beta:(double)beta;
- (void)encodeToCommandBuffer:(id<MTLCommandBuffer>)buffer
                   leftMatrix:(MPSMatrix*)left
                  rightMatrix:(MPSMatrix*)right
                 resultMatrix:(MPSMatrix*)result;
@end
