// Metal 4's performance primitives: products of matrices. (Convolutions are not here.)
#pragma once
#include <MetalPerformancePrimitives/MPPTensorOpsMatMul2d.h>
