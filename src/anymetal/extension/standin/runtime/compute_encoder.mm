// The compute encoder: what is bound, and every check that Metal's validation makes of a dispatch.
#include <array>
#include <cstring>
#include <map>

#include "encoders.h"
#include "operators.h"

using anymetal::kBuffers;
using anymetal::LaunchRecord;
using anymetal::Memory;
using anymetal::memory_of;
using anymetal::refuse;
using anymetal::services;
using anymetal::warn;

namespace {

constexpr size_t kMostBytes = 4096;
constexpr size_t kThreadgroupMemory = 32 * 1024;

struct Binding {
  bool set = false;
  Memory memory;
  size_t offset = 0;
  uint64_t serial = 0;  // of the operator that bound it
};

struct Length {
  size_t bytes = 0;
  uint64_t serial = 0;
};

std::string number(size_t value) { return std::to_string(value); }

// Bytes from a binding's offset to the end of the tensor that it is in.
size_t extent_of(const Binding& binding) {
  const anymetal::OperatorCall* current = anymetal::current_operator();
  if (current) {
    for (const auto& tensor : current->tensors) {
      if (tensor.storage == binding.memory.data && tensor.begin <= binding.offset &&
          binding.offset < tensor.end) {
        return tensor.end - binding.offset;
      }
    }
  }
  return binding.memory.length - binding.offset;
}

size_t threads_in(MTLSize size) { return size.width * size.height * size.depth; }

// Copied bytes as memory.
Memory copy_of(const void* bytes, size_t length) {
  // Past the end there are zeros: a kernel may read the type it declares.
  std::shared_ptr<char[]> copy(new char[length + 64]());
  memcpy(copy.get(), bytes, length);
  Memory memory;
  memory.data = copy.get();
  memory.length = length;
  memory.keep = copy;
  return memory;
}

}  // namespace

@interface AMComputeEncoder : AMEncoder <MTLComputeCommandEncoder> {
 @public
  MTLDispatchType type;
  AMPipeline* pipeline;
  std::array<Binding, kBuffers> bindings;
  std::array<Length, kBuffers> lengths;
  std::map<const void*, Memory> resources;
}
@end

@implementation AMComputeEncoder
- (MTLDispatchType)dispatchType {
  return type;
}
- (void)setComputePipelineState:(id<MTLComputePipelineState>)state {
  [self check:"setComputePipelineState"];
  if (state == nil) refuse("argument_size", "setComputePipelineState", "the pipeline is nil");
  [(id)state retain];
  [pipeline release];
  pipeline = (AMPipeline*)state;
}
- (Binding&)at:(NSUInteger)index call:(const char*)call {
  [self check:call];
  if (index >= kBuffers) {
    refuse("limits", call, "index " + number(index) + ": buffers are 0 to 30");
  }
  return bindings[index];
}
- (void)setBytes:(const void*)bytes length:(NSUInteger)length atIndex:(NSUInteger)index {
  Binding& binding = [self at:index call:"setBytes"];
  if (length == 0 || length > kMostBytes) {
    refuse("limits", "setBytes",
           number(length) + " bytes: 1 to 4096 can be passed without a buffer");
  }
  binding = {true, copy_of(bytes, length), 0, anymetal::current_serial()};
}
- (void)setBuffer:(id<MTLBuffer>)target offset:(NSUInteger)offset atIndex:(NSUInteger)index {
  Binding& binding = [self at:index call:"setBuffer"];
  const Memory memory = memory_of(target, "setBuffer");
  if (memory.data && offset >= memory.length) {
    refuse("argument_size", "setBuffer",
           "offset " + number(offset) + " of a buffer of " + number(memory.length) + " bytes");
  }
  binding = {true, memory, offset, anymetal::current_serial()};
}
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index {
  Binding& binding = [self at:index call:"setBufferOffset"];
  if (!binding.memory.data) {
    refuse("argument_size", "setBufferOffset", "no buffer is bound at index " + number(index));
  }
  binding.offset = offset;
  binding.serial = anymetal::current_serial();
}
- (void)setBuffers:(const id<MTLBuffer>[])buffers
           offsets:(const NSUInteger[])offsets
         withRange:(NSRange)range {
  for (NSUInteger i = 0; i < range.length; ++i) {
    [self setBuffer:buffers[i] offset:offsets[i] atIndex:range.location + i];
  }
}
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index {
  [self at:index call:"setThreadgroupMemoryLength"];
  if (length % 16) {
    refuse("threadgroup_length", "setThreadgroupMemoryLength",
           number(length) + " bytes: Metal takes multiples of 16");
  }
  lengths[index] = {length, anymetal::current_serial()};
}

// A binding that the kernel uses.
- (void)checkBinding:(size_t)index call:(const char*)call {
  const Binding& binding = bindings[index];
  const std::string place = "buffer " + number(index) + " of kernel '" + pipeline->name + "'";
  if (!binding.set) refuse("argument_size", call, place + " is not bound");
  if (!binding.memory.data) refuse("argument_size", call, place + " is bound to nil");
  const size_t left = binding.memory.length - binding.offset;
  const size_t least = pipeline->facts.least_bytes[index];
  if (binding.offset > binding.memory.length || left < least) {
    refuse("argument_size", call,
           place + " has " + number(left) + " bytes from its offset on; the kernel reads " +
               number(least));
  }
  if (binding.serial != anymetal::current_serial()) {
    warn("argument_size", "error", call,
         place + " was bound by an earlier operator: torch's encoder keeps bindings");
  }
  [self checkOffset:index call:call place:place];
  const bool writes = pipeline->facts.written >> index & 1;
  [self touch:binding.memory writes:writes call:call what:place];
}

// An offset outside of every tensor that the operator was called with, on the same memory.
- (void)checkOffset:(size_t)index call:(const char*)call place:(const std::string&)place {
  const Binding& binding = bindings[index];
  const anymetal::OperatorCall* current = anymetal::current_operator();
  if (!current || !binding.memory.block) return;
  const anymetal::TensorRange* nearest = nullptr;
  for (const auto& tensor : current->tensors) {
    if (tensor.storage != binding.memory.data) continue;
    if (tensor.begin <= binding.offset && binding.offset < tensor.end) return;
    if (!nearest) nearest = &tensor;
  }
  if (!nearest) return;
  warn("view_offset", "error", call,
       place + " is bound at byte " + number(binding.offset) + ", but argument '" + nearest->name +
           "' of " + current->name + " begins at byte " + number(nearest->begin) +
           " of its storage");
}

- (void)checkLengths:(const char*)call {
  size_t total = pipeline->facts.static_memory;
  for (size_t i = 0; i < kBuffers; ++i) {
    if (!(pipeline->facts.threadgroup >> i & 1)) continue;
    const std::string place = "[[threadgroup(" + number(i) + ")]] of '" + pipeline->name + "'";
    if (lengths[i].bytes == 0) refuse("threadgroup_length", call, place + " has no length");
    if (lengths[i].serial != anymetal::current_serial()) {
      warn("threadgroup_length", "error", call,
           place + " has the length that an earlier operator set");
    }
    total += lengths[i].bytes;
  }
  if (total > kThreadgroupMemory) {
    refuse(
        "limits", call,
        number(total) + " bytes of threadgroup memory: the limit is " + number(kThreadgroupMemory));
  }
}

- (void)checkGroup:(MTLSize)group call:(const char*)call {
  if (!pipeline) refuse("argument_size", call, "no pipeline state is set");
  const size_t most = pipeline->facts.max_threads;
  const size_t threads = threads_in(group);
  if (threads == 0 || threads > most) {
    refuse("limits", call,
           "a threadgroup of " + number(group.width) + " x " + number(group.height) + " x " +
               number(group.depth) + " threads; '" + pipeline->name + "' takes 1 to " +
               number(most) + " (maxTotalThreadsPerThreadgroup)");
  }
  for (size_t i = 0; i < kBuffers; ++i) {
    if (pipeline->facts.used >> i & 1) [self checkBinding:i call:call];
  }
  [self checkLengths:call];
}

// `count` gives the threads when the launch runs.
- (void)add:(std::function<MTLSize()>)count group:(MTLSize)group {
  LaunchRecord record{};
  std::vector<std::shared_ptr<void>> keep;
  for (size_t i = 0; i < kBuffers; ++i) {
    if (!bindings[i].memory.data) continue;
    record.addresses[i] = (uint64_t)(bindings[i].memory.data + bindings[i].offset);
    record.sizes[i] = bindings[i].memory.length - bindings[i].offset;
    record.extents[i] = extent_of(bindings[i]);
    keep.push_back(bindings[i].memory.keep);
  }
  for (size_t i = 0; i < kBuffers; ++i) {
    if (pipeline->facts.threadgroup >> i & 1) record.lengths[i] = lengths[i].bytes;
  }
  std::vector<uint64_t> reachable;
  for (const auto& [address, memory] : resources) {
    reachable.push_back((uint64_t)memory.data);
    reachable.push_back(memory.length);
    keep.push_back(memory.keep);
  }
  const int64_t handle = pipeline->handle;
  const uint64_t sizes[3] = {group.width, group.height, group.depth};
  memcpy(record.group, sizes, sizeof sizes);
  [buffer add:{[=, keep = std::move(keep)]() mutable {
            const MTLSize threads = count();
            const uint64_t grid[3] = {threads.width, threads.height, threads.depth};
            if (threads_in(threads) == 0) return;
            memcpy(record.grid, grid, sizeof grid);
            record.reachable = reachable.data();
            record.reachable_count = reachable.size() / 2;
            std::string answer;
            if (!services.launch(handle, &record, &answer)) anymetal::fail(answer);
          }}];
}
- (void)dispatchThreads:(MTLSize)threads threadsPerThreadgroup:(MTLSize)group {
  [self check:"dispatchThreads"];
  [self checkGroup:group call:"dispatchThreads"];
  if (threads_in(threads) == 0) {
    warn("limits", "error", "dispatchThreads", "a grid without threads, which Metal refuses");
  }
  [self add:[threads] { return threads; } group:group];
}
- (void)dispatchThreadgroups:(MTLSize)groups threadsPerThreadgroup:(MTLSize)group {
  [self check:"dispatchThreadgroups"];
  [self checkGroup:group call:"dispatchThreadgroups"];
  if (threads_in(groups) == 0) {
    warn("limits", "error", "dispatchThreadgroups", "a grid without threadgroups");
  }
  const MTLSize threads = MTLSizeMake(groups.width * group.width, groups.height * group.height,
                                      groups.depth * group.depth);
  [self add:[threads] { return threads; } group:group];
}
- (void)dispatchThreadgroupsWithIndirectBuffer:(id<MTLBuffer>)target
                          indirectBufferOffset:(NSUInteger)offset
                         threadsPerThreadgroup:(MTLSize)group {
  const char* call = "dispatchThreadgroupsWithIndirectBuffer";
  [self check:call];
  [self checkGroup:group call:call];
  const Memory memory = memory_of(target, call);
  if (!memory.data || offset + sizeof(MTLDispatchThreadgroupsIndirectArguments) > memory.length) {
    refuse("argument_size", call, "the buffer has no three counts at offset " + number(offset));
  }
  if (offset % 4) refuse("limits", call, "the offset is no multiple of 4");
  [self touch:memory writes:false call:call what:"the buffer of counts"];
  const auto count = [memory, offset, group] {
    MTLDispatchThreadgroupsIndirectArguments groups;
    memcpy(&groups, memory.data + offset, sizeof groups);
    return MTLSizeMake(groups.threadgroupsPerGrid[0] * group.width,
                       groups.threadgroupsPerGrid[1] * group.height,
                       groups.threadgroupsPerGrid[2] * group.depth);
  };
  [self add:count group:group];
}
- (void)updateFence:(id<MTLFence>)fence {
  [self check:"updateFence"];
}
- (void)waitForFence:(id<MTLFence>)fence {
  [self check:"waitForFence"];
}
- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage {
  [self check:"useResource"];
  const Memory memory = memory_of((id<MTLBuffer>)resource, "useResource");
  if (!memory.data) return;
  resources[memory.data] = memory;
  [self touch:memory
       writes:(usage & MTLResourceUsageWrite) != 0
         call:"useResource"
         what:"the resource"];
}
- (void)useResources:(const id<MTLResource>[])list
               count:(NSUInteger)count
               usage:(MTLResourceUsage)usage {
  for (NSUInteger i = 0; i < count; ++i) [self useResource:list[i] usage:usage];
}
// Dispatches run one after the other here, whatever the encoder's type.
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope {
  [self check:"memoryBarrierWithScope"];
}
- (void)memoryBarrierWithResources:(const id<MTLResource>[])list count:(NSUInteger)count {
  [self check:"memoryBarrierWithResources"];
}
- (void)finish {
  bindings = {};
  resources.clear();
  [super finish];
}
- (void)dealloc {
  [pipeline release];
  [super dealloc];
}
@end

namespace anymetal {

id<MTLComputeCommandEncoder> new_compute_encoder(AMCommandBuffer* buffer, MTLDispatchType type) {
  AMComputeEncoder* encoder = [[AMComputeEncoder alloc] init];
  encoder->buffer = [buffer retain];
  encoder->type = type;
  buffer->open = encoder;
  buffer->open_is_torchs = false;
  return [encoder autorelease];
}

}  // namespace anymetal
