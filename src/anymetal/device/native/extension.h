// What an Objective-C++ extension's runtime is told of, and asked for. Empty until one is loaded.
#pragma once

namespace anymetal {

struct ExtensionHooks {
  void (*before_operator)() = nullptr;
  void (*allocating)() = nullptr;
  void (*synchronizing)() = nullptr;
  void* (*command_buffer)() = nullptr;
  void* (*dispatch_queue)() = nullptr;
  void (*commit)() = nullptr;
};

inline ExtensionHooks extension;

}  // namespace anymetal
