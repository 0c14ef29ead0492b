// C = A B, A m x k and B k x n; a piece is eight rows of C.
#include "product.h"

void simdgroup_matmul(void* const* arguments, long begin, long end) {
  const long n = *(const unsigned*)arguments[4], k = *(const unsigned*)arguments[5];
  multiply(arguments[0], arguments[1], arguments[2], n, k, begin, end);
}
