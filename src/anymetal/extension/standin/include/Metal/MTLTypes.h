// Sizes, data types and the protocols by name.
#pragma once

#import <Foundation/Foundation.h>

typedef struct {
  NSUInteger x, y, z;
} MTLOrigin;
typedef struct {
  NSUInteger width, height, depth;
} MTLSize;
static inline MTLOrigin MTLOriginMake(NSUInteger x, NSUInteger y, NSUInteger z) {
  MTLOrigin origin = {x, y, z};
  return origin;
}
static inline MTLSize MTLSizeMake(NSUInteger width, NSUInteger height, NSUInteger depth) {
  MTLSize size = {width, height, depth};
  return size;
}

typedef NS_ENUM(NSUInteger, MTLDataType) {
  MTLDataTypeNone = 0,
  MTLDataTypeStruct = 1,
  MTLDataTypeArray = 2,
  MTLDataTypeFloat = 3,
  MTLDataTypeFloat2 = 4,
  MTLDataTypeFloat3 = 5,
  MTLDataTypeFloat4 = 6,
  MTLDataTypeHalf = 16,
  MTLDataTypeHalf2 = 17,
  MTLDataTypeHalf3 = 18,
  MTLDataTypeHalf4 = 19,
  MTLDataTypeInt = 29,
  MTLDataTypeInt2 = 30,
  MTLDataTypeInt3 = 31,
  MTLDataTypeInt4 = 32,
  MTLDataTypeUInt = 33,
  MTLDataTypeUInt2 = 34,
  MTLDataTypeUInt3 = 35,
  MTLDataTypeUInt4 = 36,
  MTLDataTypeShort = 37,
  MTLDataTypeUShort = 41,
  MTLDataTypeChar = 45,
  MTLDataTypeUChar = 49,
  MTLDataTypeBool = 53,
  MTLDataTypePointer = 60,
  MTLDataTypeLong = 81,
  MTLDataTypeULong = 85,
  MTLDataTypeBFloat = 121,
};

@protocol MTLArgumentEncoder;
@protocol MTLBlitCommandEncoder;
@protocol MTLBuffer;
@protocol MTLCaptureScope;
@protocol MTLCommandBuffer;
@protocol MTLCommandQueue;
@protocol MTLComputeCommandEncoder;
@protocol MTLComputePipelineState;
@protocol MTLDevice;
@protocol MTLEvent;
@protocol MTLFence;
@protocol MTLFunction;
@protocol MTLHeap;
@protocol MTLIndirectCommandBuffer;
@protocol MTLIndirectComputeCommand;
@protocol MTLLibrary;
@protocol MTLResource;
@protocol MTLSharedEvent;
