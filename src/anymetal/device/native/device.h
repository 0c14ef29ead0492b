// The one device there is: mps:0, whose memory is the host's.
#pragma once

#include <c10/core/Device.h>

namespace anymetal {

inline const c10::Device kDevice(c10::DeviceType::MPS, 0);
inline const c10::Device kHost(c10::DeviceType::CPU);

}  // namespace anymetal
