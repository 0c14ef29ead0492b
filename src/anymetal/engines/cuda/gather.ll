; What barriers.py puts into kernels with barriers to which a part of a simdgroup's lanes may come.
; Two words for each simdgroup: the lanes that have come to a barrier, and those that have ended.
@am_gathered = internal addrspace(3) global [64 x i32] undef, align 4

define internal ptr addrspace(3) @am_gather_place(i32 %which) alwaysinline {
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %simdgroup = lshr i32 %thread, 5
  %pair = shl i32 %simdgroup, 1
  %word = or i32 %pair, %which
  %place = getelementptr i32, ptr addrspace(3) @am_gathered, i32 %word
  ret ptr addrspace(3) %place
}

define internal i32 @am_gather_bit() alwaysinline {
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %lane = and i32 %thread, 31
  %bit = shl i32 1, %lane
  ret i32 %bit
}

; All lanes, when a kernel begins.
define internal void @am_gather_begin() alwaysinline convergent {
  %come = call ptr addrspace(3) @am_gather_place(i32 0)
  %ended = call ptr addrspace(3) @am_gather_place(i32 1)
  store i32 0, ptr addrspace(3) %come, align 4
  store i32 0, ptr addrspace(3) %ended, align 4
  call void @llvm.nvvm.bar.warp.sync(i32 -1)
  ret void
}

; A lane that ends.
define internal void @am_gather_end() alwaysinline {
  %ended = call ptr addrspace(3) @am_gather_place(i32 1)
  %bit = call i32 @am_gather_bit()
  %old = atomicrmw or ptr addrspace(3) %ended, i32 %bit monotonic
  ret void
}

; A barrier. Lanes that come alone wait for the rest of their simdgroup first, up to the time limit.
define internal void @am_gather() alwaysinline convergent {
  %here = call i32 @llvm.nvvm.activemask()
  %whole = icmp eq i32 %here, -1
  br i1 %whole, label %together, label %apart
together:
  call void @llvm.nvvm.barrier.cta.sync.all(i32 0)
  ret void
apart:
  %come = call ptr addrspace(3) @am_gather_place(i32 0)
  %ended = call ptr addrspace(3) @am_gather_place(i32 1)
  %bit = call i32 @am_gather_bit()
  %old = atomicrmw or ptr addrspace(3) %come, i32 %bit monotonic
  %since = call i64 @llvm.nvvm.read.ptx.sreg.globaltimer()
  br label %look
look:
  %lanes = load volatile i32, ptr addrspace(3) %come, align 4
  %gone = load volatile i32, ptr addrspace(3) %ended, align 4
  %both = or i32 %lanes, %gone
  %all = icmp eq i32 %both, -1
  br i1 %all, label %gathered, label %wait
wait:
  %now = call i64 @llvm.nvvm.read.ptx.sreg.globaltimer()
  %spent = sub i64 %now, %since
  %limit = load i64, ptr addrspace(1) @am_time_limit, align 8
  %late = icmp ugt i64 %spent, %limit
  br i1 %late, label %stop, label %look
stop:
  call void @__assertfail(ptr addrspacecast (ptr addrspace(1) @am_gather_text to ptr), ptr addrspacecast (ptr addrspace(1) @am_watch_file to ptr), i32 0, ptr addrspacecast (ptr addrspace(1) @am_watch_kernel to ptr), i64 1)
  unreachable
gathered:
  call void @llvm.nvvm.barrier.cta.sync.all(i32 0)
  ; For the next barrier.
  %others = xor i32 %bit, -1
  %before = atomicrmw and ptr addrspace(3) %come, i32 %others monotonic
  ret void
}
