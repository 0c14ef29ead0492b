// Strings, literals, and text that is printed.
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "objects.h"

@interface AMString : NSString {
 @public
  std::string text;
}
@end

namespace {

id made(std::string text) {
  AMString* string = [[AMString alloc] init];
  string->text = std::move(text);
  return string;
}

// %@ is the text of an object; all else is printf's.
std::string formatted(const char* format, va_list arguments) {
  std::string result;
  while (*format) {
    if (format[0] != '%') {
      result += *format++;
      continue;
    }
    if (format[1] == '@') {
      id object = va_arg(arguments, id);
      if (object == nil) {
        result += "(null)";
      } else if ([object isKindOfClass:[NSNumber class]]) {
        result += [[(NSNumber*)object stringValue] UTF8String];
      } else if ([object isKindOfClass:[NSError class]]) {
        result += [[(NSError*)object localizedDescription] UTF8String];
      } else {
        result += [(NSString*)object UTF8String];
      }
      format += 2;
      continue;
    }
    std::string directive(1, *format++);
    while (*format && !strchr("diouxXeEfFgGcsp%", *format)) directive += *format++;
    if (*format) directive += *format++;
    char piece[512];
    va_list rest;
    va_copy(rest, arguments);
    vsnprintf(piece, sizeof piece, directive.c_str(), rest);
    va_end(rest);
    result += piece;
    const char kind = directive.back();
    if (kind == '%') continue;
    if (strchr("eEfFgG", kind)) {
      (void)va_arg(arguments, double);
    } else if (kind == 's' || kind == 'p' || directive.find_first_of("lzjt") != directive.npos) {
      (void)va_arg(arguments, long);
    } else {
      (void)va_arg(arguments, int);
    }
  }
  return result;
}

}  // namespace

NSError* anymetal::error_of(NSInteger code, const char* message) {
  return [NSError errorWithDomain:@"MTLLibraryErrorDomain"
                             code:code
                         userInfo:[NSDictionary dictionaryWithObject:text_of(message)
                                                              forKey:NSLocalizedDescriptionKey]];
}

extern "C" void NSLog(NSString* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const std::string text = formatted([format UTF8String], arguments);
  va_end(arguments);
  fprintf(stderr, "[%d] %s\n", getpid(), text.c_str());
}

@implementation NSString
+ (instancetype)string {
  return [made("") autorelease];
}
+ (instancetype)stringWithUTF8String:(const char*)text {
  return [made(text) autorelease];
}
+ (instancetype)stringWithCString:(const char*)text encoding:(NSStringEncoding)encoding {
  return [[[NSString alloc] initWithCString:text encoding:encoding] autorelease];
}
+ (instancetype)stringWithString:(NSString*)other {
  return [made([other UTF8String]) autorelease];
}
+ (instancetype)stringWithFormat:(NSString*)format, ... {
  va_list arguments;
  va_start(arguments, format);
  id string = made(formatted([format UTF8String], arguments));
  va_end(arguments);
  return [string autorelease];
}
+ (instancetype)stringWithContentsOfFile:(NSString*)path
                                encoding:(NSStringEncoding)encoding
                                   error:(NSError**)error {
  std::ifstream file([path UTF8String]);
  if (!file) {
    if (error) *error = anymetal::error_of(260, "the file could not be opened");
    return nil;
  }
  std::stringstream text;
  text << file.rdbuf();
  return [made(text.str()) autorelease];
}
- (instancetype)initWithUTF8String:(const char*)text {
  [self release];
  return made(text);
}
- (instancetype)initWithCString:(const char*)text encoding:(NSStringEncoding)encoding {
  return [self initWithBytes:text length:strlen(text) encoding:encoding];
}
- (instancetype)initWithBytes:(const void*)bytes
                       length:(NSUInteger)length
                     encoding:(NSStringEncoding)encoding {
  [self release];
  std::string text((const char*)bytes, length);
  if (encoding == NSASCIIStringEncoding) {
    for (const char letter : text) {
      if (letter & 0x80) return nil;  // as on a Mac: text that is no ASCII gives no string
    }
  }
  return made(std::move(text));
}
- (const char*)UTF8String {
  return "";
}
- (NSUInteger)length {
  return strlen([self UTF8String]);
}
- (const char*)cStringUsingEncoding:(NSStringEncoding)encoding {
  return [self UTF8String];
}
- (BOOL)isEqualToString:(NSString*)other {
  return strcmp([self UTF8String], [other UTF8String]) == 0;
}
- (BOOL)isEqual:(id)object {
  return [object isKindOfClass:[NSString class]] && [self isEqualToString:object];
}
- (NSUInteger)hash {
  return std::hash<std::string>()([self UTF8String]);
}
- (BOOL)hasPrefix:(NSString*)prefix {
  return std::string([self UTF8String]).starts_with([prefix UTF8String]);
}
- (BOOL)hasSuffix:(NSString*)suffix {
  return std::string([self UTF8String]).ends_with([suffix UTF8String]);
}
- (BOOL)containsString:(NSString*)part {
  return strstr([self UTF8String], [part UTF8String]) != nullptr;
}
- (NSString*)stringByAppendingString:(NSString*)more {
  return [made(std::string([self UTF8String]) + [more UTF8String]) autorelease];
}
- (NSString*)stringByAppendingPathComponent:(NSString*)name {
  return [made(std::string([self UTF8String]) + "/" + [name UTF8String]) autorelease];
}
- (NSString*)stringByDeletingLastPathComponent {
  const std::string path = [self UTF8String];
  const size_t slash = path.rfind('/');
  return [made(slash == path.npos ? "" : path.substr(0, slash)) autorelease];
}
- (id)copyWithZone:(NSZone*)zone {
  return [self retain];
}
@end

@implementation AMString
- (const char*)UTF8String {
  return text.c_str();
}
@end

@implementation NSConstantString
- (const char*)UTF8String {
  return _text;
}
- (id)retain {
  return self;
}
- (oneway void)release {
}
- (id)autorelease {
  return self;
}
@end
