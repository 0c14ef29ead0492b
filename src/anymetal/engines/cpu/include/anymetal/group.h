// The threads of a threadgroup one after the other: how a kernel without barriers and collectives
// runs.
//
// Included at the end of a kernel's translation unit, after am_thread_main. The engine inlines the
// thread into the loop, so that LLVM can vectorise over threads; kernels that stop never come here.
// A unit of several kernels includes it for each of them, under other names.

extern "C" void am_group_main(void* const* buffers, am_group* group) {
  unsigned index = 0;
  for (unsigned z = 0; z < group->size[2]; ++z)
    for (unsigned y = 0; y < group->size[1]; ++y)
      for (unsigned x = 0; x < group->size[0]; ++x) {
        am_thread self;
        self.site = AM_FINISHED;
        self.lane = index % AM_SIMD_WIDTH;
        self.position[0] = x;
        self.position[1] = y;
        self.position[2] = z;
        self.index = index++;
        self.simd = nullptr;
        self.group = group;
        am_thread_main(buffers, &self);
      }
}
