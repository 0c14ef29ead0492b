"""From what a kernel means on a GPU to what this processor runs: the machine's structures under it,
arithmetic without undefined results, threads as coroutines or as a loop."""
