// Metal for compute, spelled as in Apple's public reference.
#pragma once

#import <Metal/MTLCaptureManager.h>
#import <Metal/MTLCommandBuffer.h>
#import <Metal/MTLCommandEncoder.h>
#import <Metal/MTLDevice.h>
#import <Metal/MTLLibrary.h>
#import <Metal/MTLResource.h>
#import <Metal/MTLTypes.h>
