// NSObject with its counts and pools, and the two places where gcc's runtime needs help.
#include "objects.h"

#include <dlfcn.h>
#include <unwind.h>

#include <cstdio>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "services.h"

using anymetal::services;

namespace {

std::mutex counts_mutex;
// Never destroyed: objects outlive the end of the program's main function.
auto& counts = *new std::unordered_map<const void*, long>;
thread_local std::vector<std::vector<id>*> pools;

// gcc's runtime leaves C++ members of objects alone.
void call_for_members(Class type, id object, const char* name, bool from_root) {
  if (type == Nil) return;
  const Class parent = class_getSuperclass(type);
  if (from_root) call_for_members(parent, object, name, from_root);
  const SEL selector = sel_registerName(name);
  const Method method = class_getInstanceMethod(type, selector);
  const bool own = method && (!parent || class_getInstanceMethod(parent, selector) != method);
  if (own) ((void (*)(id, SEL))method_getImplementation(method))(object, selector);
  if (!from_root) call_for_members(parent, object, name, from_root);
}

}  // namespace

bool anymetal::is_object(const void* address) {
  std::lock_guard<std::mutex> lock(counts_mutex);
  return counts.count(address) != 0;
}

extern "C" {

_Unwind_Reason_Code __gxx_personality_v0(int, _Unwind_Action, _Unwind_Exception_Class,
                                         _Unwind_Exception*, _Unwind_Context*);

// clang gives functions of Objective-C++ the personality of C's exceptions, which knows no catch of
// C++: let C++'s do it.
_Unwind_Reason_Code __gnu_objc_personality_v0(int version, _Unwind_Action actions,
                                              _Unwind_Exception_Class type,
                                              _Unwind_Exception* object, _Unwind_Context* context) {
  return __gxx_personality_v0(version, actions, type, object, context);
}

// Finds the method for a message. A tensor's storage points to an MTLBuffer on a Mac, and here to
// plain memory of the virtual device: messages to that go to the class that answers for it.
IMP objc_msg_lookup(id receiver, SEL selector) {
  using Lookup = IMP (*)(id, SEL);
  static const auto real = (Lookup)dlsym(dlopen("libobjc.so.4", RTLD_LAZY), "objc_msg_lookup");
  const int known = receiver && services.known ? services.known((const void*)receiver) : 0;
  if (known == 2) {
    anymetal::refuse("freed_buffer", sel_getName(selector),
                     "a message to the buffer of a tensor that has been freed");
  }
  if (known == 1) return class_getMethodImplementation(anymetal::storage_class(), selector);
  return real(receiver, selector);
}

}  // extern "C"

@implementation NSObject
+ (id)alloc {
  id object = class_createInstance(self, 0);
  call_for_members(self, object, ".cxx_construct", true);
  std::lock_guard<std::mutex> lock(counts_mutex);
  counts[(const void*)object] = 1;
  return object;
}
+ (id)new {
  return [[self alloc] init];
}
+ (Class)class {
  return self;
}
+ (BOOL)instancesRespondToSelector:(SEL)selector {
  return class_respondsToSelector(self, selector);
}
- (id)init {
  return self;
}
- (void)dealloc {
  call_for_members(object_getClass(self), self, ".cxx_destruct", false);
  object_dispose(self);
}
- (id)copy {
  return [self retain];
}
- (BOOL)isEqual:(id)object {
  return self == object;
}
- (NSUInteger)hash {
  return (NSUInteger)self;
}
- (Class)class {
  return object_getClass(self);
}
- (id)self {
  return self;
}
- (id)retain {
  std::lock_guard<std::mutex> lock(counts_mutex);
  const auto found = counts.find((const void*)self);
  if (found == counts.end()) anymetal::fail("retain of an object that is gone");
  ++found->second;
  return self;
}
- (oneway void)release {
  {
    std::lock_guard<std::mutex> lock(counts_mutex);
    const auto found = counts.find((const void*)self);
    if (found == counts.end()) anymetal::fail("release of an object that is gone");
    if (--found->second != 0) return;
    counts.erase(found);
  }
  [self dealloc];
}
- (id)autorelease {
  if (!pools.empty()) pools.back()->push_back(self);  // without a pool it leaks, as on a Mac
  return self;
}
- (NSUInteger)retainCount {
  std::lock_guard<std::mutex> lock(counts_mutex);
  return (NSUInteger)counts[(const void*)self];
}
- (BOOL)isKindOfClass:(Class)wanted {
  for (Class type = object_getClass(self); type; type = class_getSuperclass(type)) {
    if (type == wanted) return YES;
  }
  return NO;
}
- (BOOL)respondsToSelector:(SEL)selector {
  return class_respondsToSelector(object_getClass(self), selector);
}
- (BOOL)conformsToProtocol:(Protocol*)protocol {
  for (Class type = object_getClass(self); type; type = class_getSuperclass(type)) {
    if (class_conformsToProtocol(type, protocol)) return YES;
  }
  return NO;
}
@end

@implementation NSAutoreleasePool
- (id)init {
  auto* objects = new std::vector<id>;
  _am = objects;
  pools.push_back(objects);
  return self;
}
- (void)addObject:(id)object {
  static_cast<std::vector<id>*>(_am)->push_back(object);
}
- (void)drain {
  auto* objects = static_cast<std::vector<id>*>(_am);
  while (!objects->empty()) {
    id object = objects->back();
    objects->pop_back();
    [object release];
  }
  // An exception may have left pools inside of this one behind.
  while (!pools.empty()) {
    auto* top = pools.back();
    pools.pop_back();
    if (top == objects) break;
  }
  delete objects;
  [self release];
}
@end
