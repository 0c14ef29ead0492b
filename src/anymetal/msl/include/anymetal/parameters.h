// From the machine to a kernel's parameters: what the generated entry function is made of.
//
// The generated text (msl/entry.py) names a role for each parameter; the templates here turn it
// into the type the kernel declares, and describe that type for the launcher.
#pragma once
#include <anymetal/machine.h>

#include <metal_types>

// ---- Signatures ---------------------------------------------------------------------------------

template <class... Parameters>
struct am_signature {
  template <unsigned I>
  using parameter = __type_pack_element<I, Parameters...>;
};

template <class... Parameters>
am_signature<Parameters...> am_signature_of(void (*)(Parameters...));

template <class T>
struct am_parameter {  // a value
  using element = T;
  static constexpr bool is_pointer = false, is_reference = false;
  static AM_INLINE T from(void* address) { return *static_cast<T*>(address); }
};
template <class T>
struct am_parameter<T*> {
  using element = T;
  static constexpr bool is_pointer = true, is_reference = false;
  static AM_INLINE T* from(void* address) { return static_cast<T*>(address); }
};
template <class T>
struct am_parameter<T&> {
  using element = T;
  static constexpr bool is_pointer = false, is_reference = true;
  static AM_INLINE T& from(void* address) { return *static_cast<T*>(address); }
};

// Takes a pointer to no address space of clang's: what `thread` stands for in a text that is only
// checked (msl/check_spaces.py).
constexpr void am_thread_pointer(const volatile void*) {}

// ---- Built-in values ----------------------------------------------------------------------------

struct am_triple {
  unsigned x, y, z;
};

// Gives a triple the type a parameter asks for. Types no built-in value has are refused later, by
// name, from the description below; here they only must not stop the compiler.
template <class T>
struct am_builtin {
  static AM_INLINE T from(am_triple value) {
    if constexpr (__is_integral(T))
      return static_cast<T>(value.x);
    else
      return *static_cast<__remove_reference_t(T)*>(nullptr);
  }
};
template <class T>
struct am_builtin<metal::vec<T, 2>> {
  static AM_INLINE metal::vec<T, 2> from(am_triple value) {
    return metal::vec<T, 2>(static_cast<T>(value.x), static_cast<T>(value.y));
  }
};
template <class T>
struct am_builtin<metal::vec<T, 3>> {
  static AM_INLINE metal::vec<T, 3> from(am_triple value) {
    return metal::vec<T, 3>(static_cast<T>(value.x), static_cast<T>(value.y),
                            static_cast<T>(value.z));
  }
};

// ---- Threadgroup variables ----------------------------------------------------------------------

template <class T, unsigned Slot, unsigned long Align>
AM_INLINE T& am_aligned_threadgroup_variable() {
  constexpr unsigned long align = Align > alignof(T) ? Align : alignof(T);
  return am_threadgroup_variable<T, Slot, align>();
}

// `threadgroup T x = value;` is static: no thread of the author's stores the value. Each target has
// am_store_initial(variable, value) for it.

// ---- Descriptions -------------------------------------------------------------------------------

template <unsigned long Length>
struct am_description {
  unsigned element_size;
  unsigned element_align;
  unsigned flags;     // am_description_flags
  char type[Length];  // __PRETTY_FUNCTION__: the reader cuts the type out
};

// void, and classes that are only declared, have no size of their own.
template <class T>
struct am_extent {
  static constexpr unsigned size = 1, align = 1;
};
template <class T>
  requires(!__is_void(T) && sizeof(T) > 0)
struct am_extent<T> {
  static constexpr unsigned size = sizeof(T), align = alignof(T);
};

template <class Element>
consteval auto am_describe_element(unsigned flags) {
  am_description<sizeof(__PRETTY_FUNCTION__)> result = {
      am_extent<Element>::size, am_extent<Element>::align, flags, {}};
  for (unsigned long i = 0; i < sizeof(__PRETTY_FUNCTION__); ++i)
    result.type[i] = __PRETTY_FUNCTION__[i];
  return result;
}

// What the launcher must know of a parameter. The compiler writes it into the IR as a constant.
template <class Parameter>
consteval auto am_describe() {
  using traits = am_parameter<Parameter>;
  using element = typename traits::element;
  return am_describe_element<__remove_cv(element)>((traits::is_pointer ? AM_IS_POINTER : 0) |
                                                   (traits::is_reference ? AM_IS_REFERENCE : 0) |
                                                   (__is_const(element) ? AM_IS_CONST : 0));
}

// A field of a struct, described like a parameter; the flags are its offset. The tokens name the
// path, so it may not exist: then nothing is described.
template <class T>
struct am_type {};
template <class T>
T& am_object();

template <class T>
struct am_stored {
  using type = T;
};
template <class T>
  requires(__is_enum(T))
struct am_stored<T> {
  using type = __underlying_type(T);
};

#define AM_FIELD(struct_type, path)                                              \
  []<class T>(am_type<T>) consteval {                                            \
    if constexpr (requires { am_object<T>().path; })                             \
      return am_describe_element<                                                \
          typename am_stored<__remove_cv(decltype(am_object<T>().path))>::type>( \
          __builtin_offsetof(T, path));                                          \
    else                                                                         \
      return 0;                                                                  \
  }(am_type<__remove_cv(typename am_parameter<struct_type>::element)>{})
