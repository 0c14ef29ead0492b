// Captures for Xcode: asked for, they are not made, and a message says so.
#pragma once

#import <Metal/MTLDevice.h>

typedef NS_ENUM(NSInteger, MTLCaptureDestination) {
  MTLCaptureDestinationDeveloperTools = 1,
  MTLCaptureDestinationGPUTraceDocument = 2,
};

@protocol MTLCaptureScope <NSObject>
@property(copy) NSString* label;
- (void)beginScope;
- (void)endScope;
@end

@interface MTLCaptureDescriptor : NSObject
AM_STORAGE
@property(nonatomic, retain) id captureObject;
@property(nonatomic) MTLCaptureDestination destination;
@property(nonatomic, copy) NSURL* outputURL;
@end

@interface MTLCaptureManager : NSObject
+ (MTLCaptureManager*)sharedCaptureManager;
@property(readonly) BOOL isCapturing;
- (BOOL)supportsDestination:(MTLCaptureDestination)destination;
- (BOOL)startCaptureWithDescriptor:(MTLCaptureDescriptor*)descriptor error:(NSError**)error;
- (void)stopCapture;
- (id<MTLCaptureScope>)newCaptureScopeWithDevice:(id<MTLDevice>)device;
- (id<MTLCaptureScope>)newCaptureScopeWithCommandQueue:(id<MTLCommandQueue>)queue;
@end
