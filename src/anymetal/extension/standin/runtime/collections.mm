// Numbers, arrays, dictionaries, data, errors, URLs, and what is asked of the system.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "objects.h"

namespace {

struct Number {
  double real;
  long long whole;
};

struct Bytes {
  std::vector<char> own;
  const void* data;
  size_t length;
};

struct Failure {
  NSString* domain;
  NSInteger code;
  NSDictionary* information;
};

using Objects = std::vector<id>;
using Pairs = std::vector<std::pair<id, id>>;

template <typename T>
T& of(void* storage) {
  return *static_cast<T*>(storage);
}

NSNumber* number(double real, long long whole) {
  NSNumber* made = [[NSNumber alloc] init];
  made->_am = new Number{real, whole};
  return [made autorelease];
}

template <typename T>
NSNumber* number(T value) {
  return number(double(value), (long long)value);
}

id* find(Pairs& pairs, id key) {
  for (auto& [own, value] : pairs) {
    if ([own isEqual:key]) return &value;
  }
  return nullptr;
}

void put(Pairs& pairs, id key, id value) {
  [value retain];
  if (id* there = find(pairs, key)) {
    [*there release];
    *there = value;
  } else {
    pairs.emplace_back([key copy], value);
  }
}

}  // namespace

@implementation NSNumber
+ (NSNumber*)numberWithBool:(BOOL)value {
  return number(value);
}
+ (NSNumber*)numberWithInt:(int)value {
  return number(value);
}
+ (NSNumber*)numberWithUnsignedInt:(unsigned)value {
  return number(value);
}
+ (NSNumber*)numberWithLong:(long)value {
  return number(value);
}
+ (NSNumber*)numberWithUnsignedLong:(unsigned long)value {
  return number(value);
}
+ (NSNumber*)numberWithLongLong:(long long)value {
  return number(value);
}
+ (NSNumber*)numberWithUnsignedLongLong:(unsigned long long)value {
  return number(value);
}
+ (NSNumber*)numberWithInteger:(NSInteger)value {
  return number(value);
}
+ (NSNumber*)numberWithUnsignedInteger:(NSUInteger)value {
  return number(value);
}
+ (NSNumber*)numberWithFloat:(float)value {
  return number(value);
}
+ (NSNumber*)numberWithDouble:(double)value {
  return number(value);
}
- (BOOL)boolValue {
  return of<Number>(_am).whole != 0 || of<Number>(_am).real != 0;
}
- (int)intValue {
  return int(of<Number>(_am).whole);
}
- (long long)longLongValue {
  return of<Number>(_am).whole;
}
- (NSInteger)integerValue {
  return NSInteger(of<Number>(_am).whole);
}
- (NSUInteger)unsignedIntegerValue {
  return NSUInteger(of<Number>(_am).whole);
}
- (float)floatValue {
  return float(of<Number>(_am).real);
}
- (double)doubleValue {
  return of<Number>(_am).real;
}
- (NSString*)stringValue {
  const Number& value = of<Number>(_am);
  const bool whole = value.real == double(value.whole);
  return whole ? [NSString stringWithFormat:@"%lld", value.whole]
               : [NSString stringWithFormat:@"%.17g", value.real];
}
- (BOOL)isEqual:(id)object {
  if (![object isKindOfClass:[NSNumber class]]) return NO;
  const Number& mine = of<Number>(_am);
  const Number& other = of<Number>(((NSNumber*)object)->_am);
  return mine.real == other.real && mine.whole == other.whole;
}
- (NSUInteger)hash {
  return (NSUInteger)of<Number>(_am).whole;
}
- (void)dealloc {
  delete &of<Number>(_am);
  [super dealloc];
}
@end

@implementation NSArray
- (id)init {
  _am = new Objects;
  return self;
}
+ (instancetype)array {
  return [[[self alloc] init] autorelease];
}
+ (instancetype)arrayWithObject:(id)object {
  return [self arrayWithObjects:&object count:1];
}
+ (instancetype)arrayWithObjects:(const id[])objects count:(NSUInteger)count {
  NSArray* made = [[self alloc] init];
  for (NSUInteger i = 0; i < count; ++i) of<Objects>(made->_am).push_back([objects[i] retain]);
  return [made autorelease];
}
- (NSUInteger)count {
  return of<Objects>(_am).size();
}
- (id)objectAtIndex:(NSUInteger)index {
  return of<Objects>(_am).at(index);
}
- (id)objectAtIndexedSubscript:(NSUInteger)index {
  return of<Objects>(_am).at(index);
}
- (id)firstObject {
  return of<Objects>(_am).empty() ? nil : of<Objects>(_am).front();
}
- (id)lastObject {
  return of<Objects>(_am).empty() ? nil : of<Objects>(_am).back();
}
- (void)dealloc {
  for (id object : of<Objects>(_am)) [object release];
  delete &of<Objects>(_am);
  [super dealloc];
}
@end

@implementation NSMutableArray
- (void)addObject:(id)object {
  of<Objects>(_am).push_back([object retain]);
}
@end

@implementation NSDictionary
- (id)init {
  _am = new Pairs;
  return self;
}
+ (instancetype)dictionary {
  return [[[self alloc] init] autorelease];
}
+ (instancetype)dictionaryWithObject:(id)object forKey:(id)key {
  return [self dictionaryWithObjects:&object forKeys:&key count:1];
}
+ (instancetype)dictionaryWithObjects:(const id[])objects
                              forKeys:(const id[])keys
                                count:(NSUInteger)count {
  NSDictionary* made = [[self alloc] init];
  for (NSUInteger i = 0; i < count; ++i) put(of<Pairs>(made->_am), keys[i], objects[i]);
  return [made autorelease];
}
- (NSUInteger)count {
  return of<Pairs>(_am).size();
}
- (NSArray*)allKeys {
  Objects keys;
  for (auto& [key, value] : of<Pairs>(_am)) keys.push_back(key);
  return [NSArray arrayWithObjects:keys.data() count:keys.size()];
}
- (id)objectForKey:(id)key {
  id* found = find(of<Pairs>(_am), key);
  return found ? *found : nil;
}
- (id)objectForKeyedSubscript:(id)key {
  return [self objectForKey:key];
}
- (void)dealloc {
  for (auto& [key, value] : of<Pairs>(_am)) {
    [key release];
    [value release];
  }
  delete &of<Pairs>(_am);
  [super dealloc];
}
@end

@implementation NSMutableDictionary
- (void)setObject:(id)object forKey:(id)key {
  put(of<Pairs>(_am), key, object);
}
- (void)setObject:(id)object forKeyedSubscript:(id)key {
  put(of<Pairs>(_am), key, object);
}
- (void)removeObjectForKey:(id)key {
  auto& pairs = of<Pairs>(_am);
  for (auto place = pairs.begin(); place != pairs.end(); ++place) {
    if (![place->first isEqual:key]) continue;
    [place->first release];
    [place->second release];
    pairs.erase(place);
    return;
  }
}
@end

@implementation NSData
+ (instancetype)dataWithBytes:(const void*)bytes length:(NSUInteger)length {
  const char* first = (const char*)bytes;
  auto* copy = new Bytes{{first, first + length}, nullptr, length};
  copy->data = copy->own.data();
  NSData* made = [[self alloc] init];
  made->_am = copy;
  return [made autorelease];
}
+ (instancetype)dataWithBytesNoCopy:(void*)bytes
                             length:(NSUInteger)length
                       freeWhenDone:(BOOL)frees {
  NSData* made = [NSData dataWithBytes:bytes length:length];
  if (frees) free(bytes);
  return made;
}
+ (instancetype)dataWithContentsOfFile:(NSString*)path {
  std::ifstream file([path UTF8String], std::ios::binary);
  if (!file) return nil;
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  return [NSData dataWithBytes:bytes.data() length:bytes.size()];
}
- (const void*)bytes {
  return of<Bytes>(_am).data;
}
- (NSUInteger)length {
  return of<Bytes>(_am).length;
}
- (void)dealloc {
  delete &of<Bytes>(_am);
  [super dealloc];
}
@end

NSString* const NSLocalizedDescriptionKey = @"NSLocalizedDescription";

@implementation NSError
+ (instancetype)errorWithDomain:(NSString*)domain
                           code:(NSInteger)code
                       userInfo:(NSDictionary*)information {
  NSError* made = [[self alloc] init];
  made->_am = new Failure{[domain retain], code, [information retain]};
  return [made autorelease];
}
- (NSString*)domain {
  return of<Failure>(_am).domain;
}
- (NSInteger)code {
  return of<Failure>(_am).code;
}
- (NSDictionary*)userInfo {
  return of<Failure>(_am).information;
}
- (NSString*)localizedDescription {
  NSString* text = [of<Failure>(_am).information objectForKey:NSLocalizedDescriptionKey];
  return text ? text : of<Failure>(_am).domain;
}
- (void)dealloc {
  [of<Failure>(_am).domain release];
  [of<Failure>(_am).information release];
  delete &of<Failure>(_am);
  [super dealloc];
}
@end

@implementation NSURL
+ (instancetype)fileURLWithPath:(NSString*)path {
  NSURL* made = [[self alloc] init];
  made->_am = (void*)[path retain];
  return [made autorelease];
}
- (NSString*)path {
  return (NSString*)_am;
}
- (BOOL)checkResourceIsReachableAndReturnError:(NSError**)error {
  const BOOL there = access([[self path] UTF8String], R_OK) == 0;
  if (!there && error) *error = anymetal::error_of(260, "there is no such file");
  return there;
}
- (void)dealloc {
  [(NSString*)_am release];
  [super dealloc];
}
@end

@implementation NSProcessInfo
+ (NSProcessInfo*)processInfo {
  static NSProcessInfo* only = [[NSProcessInfo alloc] init];
  return only;
}
- (NSOperatingSystemVersion)operatingSystemVersion {
  return {15, 6, 0};  // as the virtual device says
}
- (BOOL)isOperatingSystemAtLeastVersion:(NSOperatingSystemVersion)wanted {
  return std::make_pair(wanted.majorVersion, wanted.minorVersion) <=
         std::make_pair(NSInteger(15), NSInteger(6));
}
- (NSDictionary<NSString*, NSString*>*)environment {
  NSMutableDictionary* variables = [NSMutableDictionary dictionary];
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals == text.npos) continue;
    [variables setObject:anymetal::text_of(text.c_str() + equals + 1)
                  forKey:anymetal::text_of(text.substr(0, equals).c_str())];
  }
  return variables;
}
@end

@implementation NSFileManager
+ (NSFileManager*)defaultManager {
  static NSFileManager* only = [[NSFileManager alloc] init];
  return only;
}
- (BOOL)fileExistsAtPath:(NSString*)path {
  return access([path UTF8String], F_OK) == 0;
}
@end
