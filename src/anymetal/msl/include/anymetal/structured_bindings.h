// The two templates of namespace std through which the compiler takes `auto [a, b] = value` apart.
#pragma once
#ifndef ANYMETAL_MACROS_ONLY

namespace std {
template <class T>
struct tuple_size;
template <unsigned long I, class T>
struct tuple_element;
}  // namespace std

#endif
