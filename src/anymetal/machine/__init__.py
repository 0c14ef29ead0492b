"""What C++ and Python share: each structure, enumeration and constant is one table, from which the
C++ header and the ctypes structure are both made."""
