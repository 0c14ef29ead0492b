// A few declarations of Apple's, for reading the Objective-C++ of our pages without a Mac.
#pragma once
typedef unsigned int uint32_t;
typedef long int64_t;

typedef unsigned long NSUInteger;
typedef signed char BOOL;
#define YES ((BOOL)1)
#define NO ((BOOL)0)
#define nil nullptr

__attribute__((objc_root_class)) @interface NSObject
@end
@interface NSString : NSObject
+ (NSString *)stringWithUTF8String:(const char *)text;
- (const char *)UTF8String;
@end
@interface NSError : NSObject
- (NSString *)localizedDescription;
@end
