// mpp::tensor_ops::matmul2d: the product of two matrices, by one thread or by simdgroups.
//
// Each operand is a tensor in memory or a cooperative tensor. All threads of the scope must come to
// `run`. A product is computed in float (integers in int), one fused multiply-add after the other
// along k, and rounded once; what relaxed_precision would allow is not used. `multiply` does not
// read the destination.
#pragma once
#include <anymetal/macros.h>
#if !defined(ANYMETAL_MACROS_ONLY) && __METAL_VERSION__ >= 400
#include <metal_cooperative_tensor>

namespace mpp {
namespace tensor_ops {

struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };

  constexpr matmul2d_descriptor(int m, int n, int k = static_cast<int>(metal::dynamic_extent),
                                bool transpose_left = false, bool transpose_right = false,
                                bool relaxed_precision = false, mode matmul_mode = mode::multiply)
      : m(m),
        n(n),
        k(k),
        transpose_left(transpose_left),
        transpose_right(transpose_right),
        relaxed_precision(relaxed_precision),
        matmul_mode(matmul_mode) {}

  int m, n, k;
  bool transpose_left, transpose_right, relaxed_precision;
  mode matmul_mode;
};

template <matmul2d_descriptor Descriptor, class Scope, class... Args>
class matmul2d {
 public:
  static constexpr matmul2d_descriptor descriptor = Descriptor;
  typedef Scope scope;

 private:
  static constexpr int M = Descriptor.m, N = Descriptor.n, K = Descriptor.k;
  static constexpr bool am_has_k = K > 0 && K != metal::dynamic_length_v<int>;
  typedef metal::am_spread<Scope::am_simdgroups> am_layout;
  template <class T, class Coordinate, int Rows, int Columns>
  using am_tile =
      metal::cooperative_tensor<T, metal::extents<Coordinate, Columns, Rows>, am_layout>;
  template <class T, class Coordinate>
  using am_left =
      am_tile<T, Coordinate, Descriptor.transpose_left ? K : M, Descriptor.transpose_left ? M : K>;
  template <class T, class Coordinate>
  using am_right = am_tile<T, Coordinate, Descriptor.transpose_right ? N : K,
                           Descriptor.transpose_right ? K : N>;

 public:
  // Operands in registers. Only one simdgroup can have its inputs there.
  template <class Left, class Right, class Destination, class Coordinate = int>
  AM_INLINE auto get_left_input_cooperative_tensor() const {
    am_refuse_inputs();
    return am_left<Left, Coordinate>();
  }
  template <class Left, class Right, class Destination, class Coordinate = int>
  AM_INLINE auto get_right_input_cooperative_tensor() const {
    am_refuse_inputs();
    return am_right<Right, Coordinate>();
  }
  template <class Left, class Right, class Element, class Coordinate = int>
  AM_INLINE auto get_destination_cooperative_tensor() const {
    return am_tile<Element, Coordinate, M, N>();
  }
  // A destination as an input of the next product: the elements lie as they did.
  template <class Source>
  AM_INLINE auto get_left_input_cooperative_tensor(const Source& source) const {
    return am_taken_over<am_left<typename Source::element_type, typename Source::index_type>>(
        source);
  }
  template <class Source>
  AM_INLINE auto get_right_input_cooperative_tensor(const Source& source) const {
    return am_taken_over<am_right<typename Source::element_type, typename Source::index_type>>(
        source);
  }

  // d = left * right, or d += left * right.
  template <class Left, class Right, class Destination>
  AM_INLINE void run(Left& left, Right& right, Destination& destination) const {
    typedef typename Left::value_type L;
    typedef typename Right::value_type R;
    typedef typename Destination::value_type D;
    static_assert(am_takes<L, R, D>(), "matmul2d: no product of these element types");
    typedef am_tile<D, int, M, N> Tile;
    Tile tile;
    constexpr bool adds = Descriptor.matmul_mode == matmul2d_descriptor::mode::multiply_accumulate;
    if constexpr (adds) am_take(tile, destination);
    typedef typename am_number<metal::is_integral_v<D>>::type Sum;
    Sum sums[Tile::am_capacity];
    for (int i = 0; i < Tile::am_capacity; ++i) sums[i] = adds ? Sum(tile[i]) : Sum(0);
    int length = am_length(left, right);
    for (int k = 0; k < length; ++k) am_add<Sum, Tile>(left, right, k, sums);
    for (int i = 0; i < Tile::am_capacity; ++i) tile[i] = D(sums[i]);
    am_give(tile, destination);
  }

 private:
  template <bool Integer, class = void>
  struct am_number {
    typedef float type;
  };
  template <class Unused>
  struct am_number<true, Unused> {
    typedef int type;
  };

  static constexpr void am_refuse_inputs() {
    static_assert(Scope::am_simdgroups == 1,
                  "matmul2d: inputs are cooperative tensors only with execution_simdgroup");
    static_assert(am_has_k, "matmul2d: a cooperative tensor as an input needs a k that is known");
  }

  template <class L, class R, class D>
  static constexpr bool am_takes() {
    if constexpr (metal::is_integral_v<D>)
      return sizeof(L) == 1 && __is_same(L, R) && __is_same(D, int);
    else
      return !(metal::is_integral_v<L> && metal::is_integral_v<R>);
  }

  template <class Operand, class Source>
  AM_INLINE static Operand am_taken_over(const Source& source) {
    am_refuse_inputs();
    static_assert(Operand::am_rows == Source::am_rows && Operand::am_columns == Source::am_columns,
                  "matmul2d: the source has another shape than this operand");
    Operand operand;
    for (int i = 0; i < Operand::am_capacity; ++i) operand[i] = source[i];
    return operand;
  }

  template <class Tile, class Destination>
  AM_INLINE static void am_take(Tile& tile, Destination& destination) {
    if constexpr (metal::am_is_cooperative<Destination>)
      for (int i = 0; i < Tile::am_capacity; ++i) tile[i] = destination[i];
    else
      tile.load(destination);
  }
  template <class Tile, class Destination>
  AM_INLINE static void am_give(Tile& tile, Destination& destination) {
    if constexpr (metal::am_is_cooperative<Destination>)
      for (int i = 0; i < Tile::am_capacity; ++i) destination[i] = tile[i];
    else
      tile.store(destination);
  }

  // How far k runs: what the descriptor says, or what the operands in memory have.
  template <class Left, class Right>
  AM_INLINE static int am_length(const Left& left, const Right& right) {
    if constexpr (am_has_k) {
      return K;
    } else {
      int of_left = left.get_extent(Descriptor.transpose_left ? 1 : 0);
      int of_right = right.get_extent(Descriptor.transpose_right ? 0 : 1);
      return of_left < of_right ? of_left : of_right;
    }
  }

  // One step along k. Rows of a tile repeat every four elements, its columns every four as well: a
  // value is fetched once for all elements that need it.
  template <class Sum, class Tile, class Left, class Right>
  AM_INLINE static void am_add(const Left& left, const Right& right, int k,
                               Sum (&sums)[Tile::am_capacity]) {
    if constexpr (Tile::am_alone) {
      for (int i = 0; i < Tile::am_capacity; ++i)
        sums[i] = am_sum(
            am_at<Sum, true, Descriptor.transpose_left>(left, Tile::am_row(i), k),
            am_at<Sum, false, !Descriptor.transpose_right>(right, Tile::am_column(i), k), sums[i]);
    } else {
      for (int first = 0; first < Tile::am_capacity; first += 8) {
        Sum rows[2], columns[4];
        for (int i = 0; i < 2; ++i)
          rows[i] =
              am_at<Sum, true, Descriptor.transpose_left>(left, Tile::am_row(first + 4 * i), k);
        for (int i = 0; i < 4; ++i)
          columns[i] =
              am_at<Sum, false, !Descriptor.transpose_right>(right, Tile::am_column(first + i), k);
        for (int i = 0; i < 8; ++i)
          sums[first + i] = am_sum(rows[i / 4], columns[i % 4], sums[first + i]);
      }
    }
  }

  AM_INLINE static float am_sum(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  AM_INLINE static int am_sum(int a, int b, int c) { return a * b + c; }

  // The element of an operand that belongs to `k` and to one row or column of the result. `Down`:
  // k counts its rows.
  template <class Sum, bool IsLeft, bool Down, class Operand>
  AM_INLINE static Sum am_at(const Operand& operand, int other, int k) {
    int row = Down ? k : other, column = Down ? other : k;
    if constexpr (!metal::am_is_cooperative<Operand>) {
      bool inside = row < operand.get_extent(1) && column < operand.get_extent(0);
      return inside ? Sum(operand[{column, row}]) : Sum(0);
    } else if constexpr (Operand::am_alone) {
      return Sum(operand[row * Operand::am_columns + column]);
    } else {
      return am_from_lane<Sum, IsLeft, Down>(operand, row, column);
    }
  }

  // From the lane that holds it. Lanes ask for different rows or columns, but for the same fragment
  // and k; which of its elements a lane gives away must be the same for all that ask, so all that
  // may be meant are asked for. Rows of the left and columns of the right operand are
  // those of the result, of which lanes hold the same elements.
  template <class Sum, bool IsLeft, bool Down, class Operand>
  AM_INLINE static Sum am_from_lane(const Operand& operand, int row, int column) {
    int fragment = row / 16 * Operand::am_across + column / 16;
    ushort lane = metal::am_fragment_lane(row & 7, column & 15);
    int wanted = (row & 8) / 2 + (column & 3);
    if constexpr (IsLeft != Down)
      return am_read_lane<32>(Sum(operand[8 * fragment + wanted]), lane);
    Sum found = 0;
    for (int i = 0; i < (Down ? 4 : 2); ++i) {
      int element = Down ? (row & 8) / 2 + i : i * 4 + (column & 3);
      Sum value = am_read_lane<32>(Sum(operand[8 * fragment + element]), lane);
      found = element == wanted ? value : found;
    }
    return found;
  }
};

}  // namespace tensor_ops
}  // namespace mpp

#endif
