/* Read before the C++ that Verilator writes: sign extension in a form that compilers know.
 * Verilator's own, -(x & sign) | x, takes four instructions where this takes one. As there, the
 * bits of `x` above its own are 0. */
#ifndef LORA_VERILATED_SIGNS_HPP
#define LORA_VERILATED_SIGNS_HPP

#include "verilated.h"

template <int BITS> inline IData signed_word(IData x) {
    constexpr IData sign = IData{1} << (BITS - 1);
    return (x ^ sign) - sign;
}

template <int BITS> inline QData signed_pair(QData x) {
    constexpr QData sign = QData{1} << (BITS - 1);
    return (x ^ sign) - sign;
}

#define VL_EXTENDS_II(obits, lbits, x) signed_word<lbits>(x)
#define VL_EXTENDS_QI(obits, lbits, x) signed_pair<lbits>(x)
#define VL_EXTENDS_QQ(obits, lbits, x) signed_pair<lbits>(x)

#endif
