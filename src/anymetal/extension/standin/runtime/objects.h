// Objects that are alive, and messages to memory of tensors.
#pragma once

#import <Foundation/Foundation.h>

namespace anymetal {

bool is_object(const void* address);

// The class whose methods answer for memory of a tensor: torch hands its address out as a buffer.
Class storage_class();

inline NSString* text_of(const char* text) { return [NSString stringWithUTF8String:text]; }

NSError* error_of(NSInteger code, const char* message);

}  // namespace anymetal
