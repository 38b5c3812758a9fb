// SPDX-License-Identifier: Apache-2.0
// What flops and memories see of another clock in simulation: metastable.hpp.
package crossing_model;
  import "DPI-C" function int crossing_new();
  import "DPI-C" function int crossing_note(input int id, input longint value);
  import "DPI-C" function longint crossing_take(input int id, input int noted);
  import "DPI-C" function void crossing_written(input int id);
  import "DPI-C" function int crossing_age(input int id);
endpackage
