// One thread changes a field of the settings, which every other thread still reads.
// expect: read_only error line 14 buffer settings
// launch: apply float32[2]=2,0 float32[1]=zeros threads=1
#include <metal_stdlib>
using namespace metal;

struct Settings {
  float scale;
  float offset;
};

kernel void apply(device const Settings& settings, device float* y) {
  device Settings& mine = (device Settings&)settings;
  mine.offset = 1.0f;
  y[0] = mine.scale + mine.offset;
}
