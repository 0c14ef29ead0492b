// Strings, of which UTF-8 is the one encoding here.
#pragma once

#import <Foundation/NSObject.h>

typedef NSUInteger NSStringEncoding;
enum : NSStringEncoding { NSASCIIStringEncoding = 1, NSUTF8StringEncoding = 4 };

@class NSArray<ObjectType>;
@class NSError;

@interface NSString : NSObject <NSCopying>
+ (instancetype)string;
+ (instancetype)stringWithUTF8String:(const char*)text;
+ (instancetype)stringWithCString:(const char*)text encoding:(NSStringEncoding)encoding;
+ (instancetype)stringWithString:(NSString*)other;
+ (instancetype)stringWithFormat:(NSString*)format, ...;
+ (instancetype)stringWithContentsOfFile:(NSString*)path
                                encoding:(NSStringEncoding)encoding
                                   error:(NSError**)error;
- (instancetype)initWithUTF8String:(const char*)text;
- (instancetype)initWithCString:(const char*)text encoding:(NSStringEncoding)encoding;
- (instancetype)initWithBytes:(const void*)bytes
                       length:(NSUInteger)length
                     encoding:(NSStringEncoding)encoding;
@property(readonly) const char* UTF8String;
@property(readonly) NSUInteger length;
- (const char*)cStringUsingEncoding:(NSStringEncoding)encoding;
- (BOOL)isEqualToString:(NSString*)other;
- (BOOL)hasPrefix:(NSString*)prefix;
- (BOOL)hasSuffix:(NSString*)suffix;
- (BOOL)containsString:(NSString*)part;
- (NSString*)stringByAppendingString:(NSString*)more;
- (NSString*)stringByAppendingPathComponent:(NSString*)name;
- (NSString*)stringByDeletingLastPathComponent;
@end

#ifndef __APPLE__
// clang lays literals out like this: the class, the text, its length.
@interface NSConstantString : NSString {
  const char* _text;
  unsigned _length;
}
@end
#endif

#ifdef __cplusplus
extern "C" {
#endif
void NSLog(NSString* format, ...);
#ifdef __cplusplus
}
#endif
