// settings_changed, corrected: the changed value is a local one.
// expect: nothing
// launch: apply float32[2]=2,0 float32[1]=zeros threads=1
#include <metal_stdlib>
using namespace metal;

struct Settings {
  float scale;
  float offset;
};

kernel void apply(device const Settings& settings, device float* y) {
  Settings mine = settings;
  mine.offset = 1.0f;
  y[0] = mine.scale + mine.offset;
}
