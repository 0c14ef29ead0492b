// Kernels: their source or compiled library, their constants, and what is run.
#pragma once

#import <Metal/MTLResource.h>

typedef NS_ENUM(NSUInteger, MTLLanguageVersion) {
  MTLLanguageVersion2_0 = (2 << 16),
  MTLLanguageVersion2_1 = (2 << 16) + 1,
  MTLLanguageVersion2_2 = (2 << 16) + 2,
  MTLLanguageVersion2_3 = (2 << 16) + 3,
  MTLLanguageVersion2_4 = (2 << 16) + 4,
  MTLLanguageVersion3_0 = (3 << 16) + 0,
  MTLLanguageVersion3_1 = (3 << 16) + 1,
  MTLLanguageVersion3_2 = (3 << 16) + 2,
  MTLLanguageVersion4_0 = (4 << 16) + 0,
};
typedef NS_ENUM(NSInteger, MTLMathMode) {
  MTLMathModeSafe = 0,
  MTLMathModeRelaxed = 1,
  MTLMathModeFast = 2,
};
typedef NS_ENUM(NSInteger, MTLMathFloatingPointFunctions) {
  MTLMathFloatingPointFunctionsFast = 0,
  MTLMathFloatingPointFunctionsPrecise = 1,
};
typedef NS_ENUM(NSUInteger, MTLFunctionType) {
  MTLFunctionTypeVertex = 1,
  MTLFunctionTypeFragment = 2,
  MTLFunctionTypeKernel = 3,
};
typedef NS_OPTIONS(NSUInteger, MTLPipelineOption) {
  MTLPipelineOptionNone = 0,
  MTLPipelineOptionArgumentInfo = 1 << 0,
  MTLPipelineOptionBufferTypeInfo = 1 << 1,
};
typedef NS_ENUM(NSUInteger, MTLLibraryError) {
  MTLLibraryErrorUnsupported = 1,
  MTLLibraryErrorInternal = 2,
  MTLLibraryErrorCompileFailure = 3,
  MTLLibraryErrorCompileWarning = 4,
  MTLLibraryErrorFunctionNotFound = 5,
  MTLLibraryErrorFileNotFound = 6,
};

@interface MTLCompileOptions : NSObject
AM_STORAGE
@property(nonatomic, copy) NSDictionary<NSString*, NSObject*>* preprocessorMacros;
@property(nonatomic) BOOL fastMathEnabled;
@property(nonatomic) MTLMathMode mathMode;
@property(nonatomic) MTLMathFloatingPointFunctions mathFloatingPointFunctions;
@property(nonatomic) MTLLanguageVersion languageVersion;
@end

@interface MTLFunctionConstantValues : NSObject
AM_STORAGE
- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index;
- (void)setConstantValues:(const void*)values type:(MTLDataType)type withRange:(NSRange)range;
- (void)setConstantValue:(const void*)value type:(MTLDataType)type withName:(NSString*)name;
- (void)reset;
@end

@protocol MTLFunction <NSObject>
@property(copy) NSString* label;
@property(readonly) id<MTLDevice> device;
@property(readonly) MTLFunctionType functionType;
@property(readonly) NSString* name;
@end

@protocol MTLLibrary <NSObject>
@property(copy) NSString* label;
@property(readonly) id<MTLDevice> device;
@property(readonly) NSArray<NSString*>* functionNames;
- (id<MTLFunction>)newFunctionWithName:(NSString*)name;
- (id<MTLFunction>)newFunctionWithName:(NSString*)name
                        constantValues:(MTLFunctionConstantValues*)values
                                 error:(NSError**)error;
@end

@class MTLComputePipelineReflection;

@interface MTLComputePipelineDescriptor : NSObject
AM_STORAGE
@property(copy, nonatomic) NSString* label;
@property(retain, nonatomic) id<MTLFunction> computeFunction;
@property(nonatomic) BOOL threadGroupSizeIsMultipleOfThreadExecutionWidth;
@property(nonatomic) NSUInteger maxTotalThreadsPerThreadgroup;
@property(nonatomic) BOOL supportIndirectCommandBuffers;
@end

@protocol MTLComputePipelineState <NSObject>
@property(readonly) NSString* label;
@property(readonly) id<MTLDevice> device;
@property(readonly) NSUInteger maxTotalThreadsPerThreadgroup;
@property(readonly) NSUInteger threadExecutionWidth;
@property(readonly) NSUInteger staticThreadgroupMemoryLength;
@end
