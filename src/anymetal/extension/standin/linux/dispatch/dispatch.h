// libdispatch as far as extensions use it: serial queues whose blocks run in the caller's thread,
// or, for dispatch_async, in one of the queue's own.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dispatch_queue_s* dispatch_queue_t;
typedef struct dispatch_queue_attr_s* dispatch_queue_attr_t;
typedef struct dispatch_semaphore_s* dispatch_semaphore_t;
typedef uint64_t dispatch_time_t;
typedef long dispatch_once_t;
#ifdef __OBJC__
@class NSData;
typedef NSData* dispatch_data_t;
#else
typedef void* dispatch_data_t;
#endif
#define DISPATCH_QUEUE_SERIAL ((dispatch_queue_attr_t)0)
#define DISPATCH_TIME_NOW 0ull
#define DISPATCH_TIME_FOREVER (~0ull)
#define DISPATCH_DATA_DESTRUCTOR_DEFAULT ((dispatch_block_t)0)

dispatch_queue_t dispatch_queue_create(const char* label, dispatch_queue_attr_t attributes);
dispatch_queue_t dispatch_get_main_queue(void);
void dispatch_release(dispatch_queue_t queue);
void dispatch_retain(dispatch_queue_t queue);
dispatch_semaphore_t dispatch_semaphore_create(long value);
long dispatch_semaphore_wait(dispatch_semaphore_t semaphore, dispatch_time_t timeout);
long dispatch_semaphore_signal(dispatch_semaphore_t semaphore);

#ifdef __BLOCKS__
typedef void (^dispatch_block_t)(void);
void dispatch_sync(dispatch_queue_t queue, dispatch_block_t block);
void dispatch_async(dispatch_queue_t queue, dispatch_block_t block);
void dispatch_once(dispatch_once_t* flag, dispatch_block_t block);
dispatch_data_t dispatch_data_create(const void* bytes, size_t length, dispatch_queue_t queue,
                                     dispatch_block_t destructor);
#endif

#ifdef __cplusplus
}
#endif
