// Kernels are compiled by Python; here are the objects that stand for them.
#include "libraries.h"

#include <cmath>
#include <cstring>
#include <map>
#include <sstream>

#include "objects.h"

using anymetal::services;

namespace {

struct Options {
  NSDictionary* macros = nil;
  bool fast = true;  // Metal's default
  MTLMathMode mode = MTLMathModeFast;
  MTLMathFloatingPointFunctions functions = MTLMathFloatingPointFunctionsFast;
  MTLLanguageVersion version = MTLLanguageVersion3_2;
};

struct PipelineWishes {
  NSString* label = nil;
  id function = nil;
  bool whole_simdgroups = false;
  NSUInteger most_threads = 0;
  bool indirect = false;
};

// Constants as members of a JSON object, by index or name.
using Constants = std::map<std::string, std::string>;

template <typename T>
T read(const void* value) {
  T result;
  memcpy(&result, value, sizeof result);
  return result;
}

std::string real(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  char text[40];
  snprintf(text, sizeof text, "%.17g", value);
  // Python reads a number without a point as an int.
  return strpbrk(text, ".e") ? text : std::string(text) + ".0";
}

float from_bfloat(uint16_t bits) {
  const uint32_t wide = uint32_t(bits) << 16;
  return read<float>(&wide);
}

// A vector's data type follows that of its elements: one more for each element.
struct Shape {
  MTLDataType element;
  unsigned count;
};

Shape shape_of(MTLDataType type) {
  constexpr MTLDataType elements[] = {MTLDataTypeFloat, MTLDataTypeHalf,  MTLDataTypeInt,
                                      MTLDataTypeUInt,  MTLDataTypeShort, MTLDataTypeUShort,
                                      MTLDataTypeChar,  MTLDataTypeUChar, MTLDataTypeBool,
                                      MTLDataTypeLong,  MTLDataTypeULong, MTLDataTypeBFloat};
  for (MTLDataType element : elements)
    if (type >= element && type < element + 4) return {element, unsigned(type - element + 1)};
  anymetal::refuse("limits", "setConstantValue",
                   "function constants of data type " + std::to_string(type) +
                       " are not supported here: numbers, bool and their vectors are");
}

size_t size_of_element(MTLDataType type) {
  switch (type) {
    case MTLDataTypeBool:
    case MTLDataTypeChar:
    case MTLDataTypeUChar:
      return 1;
    case MTLDataTypeShort:
    case MTLDataTypeUShort:
    case MTLDataTypeHalf:
    case MTLDataTypeBFloat:
      return 2;
    case MTLDataTypeLong:
    case MTLDataTypeULong:
      return 8;
    default:
      return 4;
  }
}

// Vectors of three take as much room as those of four.
size_t size_of(MTLDataType type) {
  const Shape shape = shape_of(type);
  return size_of_element(shape.element) * (shape.count == 3 ? 4 : shape.count);
}

std::string json_of_element(const void* value, MTLDataType type) {
  switch (type) {
    case MTLDataTypeBool:
      return read<uint8_t>(value) ? "true" : "false";
    case MTLDataTypeChar:
      return std::to_string(read<int8_t>(value));
    case MTLDataTypeUChar:
      return std::to_string(read<uint8_t>(value));
    case MTLDataTypeShort:
      return std::to_string(read<int16_t>(value));
    case MTLDataTypeUShort:
      return std::to_string(read<uint16_t>(value));
    case MTLDataTypeInt:
      return std::to_string(read<int32_t>(value));
    case MTLDataTypeUInt:
      return std::to_string(read<uint32_t>(value));
    case MTLDataTypeLong:
      return std::to_string(read<int64_t>(value));
    case MTLDataTypeULong:
      return std::to_string(read<uint64_t>(value));
    case MTLDataTypeHalf:
      return real(double(read<_Float16>(value)));
    case MTLDataTypeBFloat:
      return real(from_bfloat(read<uint16_t>(value)));
    default:
      return real(read<float>(value));
  }
}

std::string json(const void* value, MTLDataType type) {
  const Shape shape = shape_of(type);
  std::string listed;
  for (unsigned i = 0; i < shape.count; ++i) {
    const char* element = static_cast<const char*>(value) + i * size_of_element(shape.element);
    listed += (i ? ", " : "") + json_of_element(element, shape.element);
  }
  return shape.count == 1 ? listed : "[" + listed + "]";
}

// Metal's functions are fast unless math is safe.
bool is_fast(MTLCompileOptions* options) {
  if (options == nil) return true;
  const Options& chosen = *static_cast<Options*>(options->_am);
  return chosen.fast && chosen.mode == MTLMathModeFast;
}

std::string macros_of(MTLCompileOptions* options) {
  std::ostringstream lines;
  NSDictionary* macros = options ? [options preprocessorMacros] : nil;
  NSArray* names = [macros allKeys];
  for (NSUInteger i = 0; i < [names count]; ++i) {
    id key = [names objectAtIndex:i];
    id value = [macros objectForKey:key];
    const bool number = [value isKindOfClass:[NSNumber class]];
    lines << [(NSString*)key UTF8String] << "="
          << [(number ? [(NSNumber*)value stringValue] : (NSString*)value) UTF8String] << "\n";
  }
  return lines.str();
}

}  // namespace

@interface AMFunction : NSObject <MTLFunction> {
 @public
  int64_t library;
  std::string title, constants;
}
@end

@interface AMLibrary : NSObject <MTLLibrary> {
 @public
  int64_t handle;
}
@end

@implementation MTLCompileOptions
- (id)init {
  _am = new Options;
  return self;
}
- (NSDictionary*)preprocessorMacros {
  return static_cast<Options*>(_am)->macros;
}
- (void)setPreprocessorMacros:(NSDictionary*)macros {
  static_cast<Options*>(_am)->macros = [macros retain];
}
- (BOOL)fastMathEnabled {
  return static_cast<Options*>(_am)->fast;
}
- (void)setFastMathEnabled:(BOOL)fast {
  static_cast<Options*>(_am)->fast = fast;
}
- (MTLMathMode)mathMode {
  return static_cast<Options*>(_am)->mode;
}
- (void)setMathMode:(MTLMathMode)mode {
  static_cast<Options*>(_am)->mode = mode;
}
- (MTLMathFloatingPointFunctions)mathFloatingPointFunctions {
  return static_cast<Options*>(_am)->functions;
}
- (void)setMathFloatingPointFunctions:(MTLMathFloatingPointFunctions)functions {
  static_cast<Options*>(_am)->functions = functions;
}
- (MTLLanguageVersion)languageVersion {
  return static_cast<Options*>(_am)->version;
}
- (void)setLanguageVersion:(MTLLanguageVersion)version {
  static_cast<Options*>(_am)->version = version;
}
- (void)dealloc {
  auto* options = static_cast<Options*>(_am);
  [options->macros release];
  delete options;
  [super dealloc];
}
@end

@implementation MTLFunctionConstantValues
- (id)init {
  _am = new Constants;
  return self;
}
- (void)setConstantValue:(const void*)value type:(MTLDataType)type atIndex:(NSUInteger)index {
  (*static_cast<Constants*>(_am))[std::to_string(index)] = json(value, type);
}
- (void)setConstantValues:(const void*)values type:(MTLDataType)type withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) {
    [self setConstantValue:(const char*)values + i * size_of(type)
                      type:type
                   atIndex:range.location + i];
  }
}
- (void)setConstantValue:(const void*)value type:(MTLDataType)type withName:(NSString*)name {
  (*static_cast<Constants*>(_am))[[name UTF8String]] = json(value, type);
}
- (void)reset {
  static_cast<Constants*>(_am)->clear();
}
- (void)dealloc {
  delete static_cast<Constants*>(_am);
  [super dealloc];
}
@end

@implementation MTLComputePipelineDescriptor
- (id)init {
  _am = new PipelineWishes;
  return self;
}
- (NSString*)label {
  return static_cast<PipelineWishes*>(_am)->label;
}
- (void)setLabel:(NSString*)label {
  static_cast<PipelineWishes*>(_am)->label = [label retain];
}
- (id<MTLFunction>)computeFunction {
  return static_cast<PipelineWishes*>(_am)->function;
}
- (void)setComputeFunction:(id<MTLFunction>)function {
  static_cast<PipelineWishes*>(_am)->function = [(id)function retain];
}
- (BOOL)threadGroupSizeIsMultipleOfThreadExecutionWidth {
  return static_cast<PipelineWishes*>(_am)->whole_simdgroups;
}
- (void)setThreadGroupSizeIsMultipleOfThreadExecutionWidth:(BOOL)whole {
  static_cast<PipelineWishes*>(_am)->whole_simdgroups = whole;
}
- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return static_cast<PipelineWishes*>(_am)->most_threads;
}
- (void)setMaxTotalThreadsPerThreadgroup:(NSUInteger)threads {
  static_cast<PipelineWishes*>(_am)->most_threads = threads;
}
- (BOOL)supportIndirectCommandBuffers {
  return static_cast<PipelineWishes*>(_am)->indirect;
}
- (void)setSupportIndirectCommandBuffers:(BOOL)supported {
  static_cast<PipelineWishes*>(_am)->indirect = supported;
}
- (void)dealloc {
  auto* wishes = static_cast<PipelineWishes*>(_am);
  [wishes->label release];
  [wishes->function release];
  delete wishes;
  [super dealloc];
}
@end

@implementation AMFunction
- (NSString*)label {
  return nil;
}
- (void)setLabel:(NSString*)label {
}
- (id<MTLDevice>)device {
  return MTLCreateSystemDefaultDevice();
}
- (MTLFunctionType)functionType {
  return MTLFunctionTypeKernel;
}
- (NSString*)name {
  return anymetal::text_of(title.c_str());
}
@end

@implementation AMLibrary
- (NSString*)label {
  return nil;
}
- (void)setLabel:(NSString*)label {
}
- (id<MTLDevice>)device {
  return MTLCreateSystemDefaultDevice();
}
- (NSArray<NSString*>*)functionNames {
  std::string lines;
  services.function_names(handle, &lines);
  NSMutableArray* names = [NSMutableArray array];
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);)
    [names addObject:anymetal::text_of(line.c_str())];
  return names;
}
- (id<MTLFunction>)newFunctionWithName:(NSString*)name {
  return [self newFunctionWithName:name constantValues:nil error:nil];
}
- (id<MTLFunction>)newFunctionWithName:(NSString*)name
                        constantValues:(MTLFunctionConstantValues*)values
                                 error:(NSError**)error {
  std::string lines;
  services.function_names(handle, &lines);
  const std::string title = [name UTF8String];
  if (("\n" + lines + "\n").find("\n" + title + "\n") == std::string::npos) {
    const std::string message = "the library has no function " + title + "; it has: " + lines;
    if (error) *error = anymetal::error_of(MTLLibraryErrorFunctionNotFound, message.c_str());
    return nil;
  }
  AMFunction* function = [[AMFunction alloc] init];
  function->library = handle;
  function->title = title;
  function->constants = "{";
  if (values) {
    for (const auto& [key, value] : *static_cast<Constants*>(values->_am)) {
      if (function->constants.size() > 1) function->constants += ",";
      function->constants += "\"" + key + "\":" + value;
    }
  }
  function->constants += "}";
  return function;
}
@end

@implementation AMPipeline
- (NSString*)label {
  return anymetal::text_of(name.c_str());
}
- (id<MTLDevice>)device {
  return MTLCreateSystemDefaultDevice();
}
- (NSUInteger)maxTotalThreadsPerThreadgroup {
  return facts.max_threads;
}
- (NSUInteger)threadExecutionWidth {
  return facts.width;
}
- (NSUInteger)staticThreadgroupMemoryLength {
  return facts.static_memory;
}
@end

namespace anymetal {

id<MTLLibrary> new_library(const char* text, size_t length, MTLCompileOptions* options,
                           bool is_data, NSError** error) {
  std::string answer;
  const int64_t handle = services.compile(text, length, macros_of(options).c_str(),
                                          is_fast(options), is_data, &answer);
  if (handle == 0) {
    if (error) *error = error_of(MTLLibraryErrorCompileFailure, answer.c_str());
    return nil;
  }
  AMLibrary* library = [[AMLibrary alloc] init];
  library->handle = handle;
  return library;
}

id<MTLComputePipelineState> new_pipeline(id<MTLFunction> function, NSUInteger most_threads,
                                         NSError** error) {
  AMFunction* kernel = (AMFunction*)function;
  if (kernel == nil) {
    refuse("argument_size", "newComputePipelineStateWithFunction", "the function is nil");
  }
  AMPipeline* pipeline = [[AMPipeline alloc] init];
  std::string answer;
  pipeline->name = kernel->title;
  pipeline->handle = services.pipeline(kernel->library, kernel->title.c_str(),
                                       kernel->constants.c_str(), &pipeline->facts, &answer);
  if (pipeline->handle == 0) {
    [pipeline release];
    if (error) *error = error_of(MTLLibraryErrorInternal, answer.c_str());
    return nil;
  }
  if (most_threads && most_threads < pipeline->facts.max_threads) {
    pipeline->facts.max_threads = most_threads;
  }
  return pipeline;
}

}  // namespace anymetal
