// The serial queues of libdispatch.
#pragma once

#include <dispatch/dispatch.h>

namespace anymetal {

// Whether this thread is inside a block on the queue.
bool is_on(dispatch_queue_t queue);

// The queue of torch's stream: what happens on it is judged more closely.
void set_stream_queue(dispatch_queue_t queue);

// As dispatch_sync, for a caller that lets exceptions through.
void run_on(dispatch_queue_t queue, dispatch_block_t block);

}  // namespace anymetal
