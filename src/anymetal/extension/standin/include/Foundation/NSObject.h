// The root class with its counts, and the pools that give objects up later.
#pragma once

#import <Foundation/NSObjCRuntime.h>

#ifndef __APPLE__
@protocol NSObject
- (BOOL)isEqual:(id)object;
- (NSUInteger)hash;
- (Class)class;
- (id)self;
- (id)retain;
- (oneway void)release;
- (id)autorelease;
- (NSUInteger)retainCount;
- (BOOL)isKindOfClass:(Class)aClass;
- (BOOL)respondsToSelector:(SEL)selector;
- (BOOL)conformsToProtocol:(Protocol*)protocol;
@end

__attribute__((objc_root_class))
@interface NSObject<NSObject> {
 @public
  Class isa;
}
+ (id)alloc;
+ (id)new;
+ (Class)class;
+ (BOOL)instancesRespondToSelector:(SEL)selector;
- (id)init;
- (void)dealloc;
- (id)copy;
@end
#endif

@protocol NSCopying
- (id)copyWithZone:(NSZone*)zone;
@end

@interface NSAutoreleasePool : NSObject
AM_STORAGE
- (void)addObject:(id)object;
- (void)drain;
@end
