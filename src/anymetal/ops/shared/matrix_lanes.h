// Where a lane's elements of an 8x8 matrix are.
#pragma once

// A lane holds two neighbouring elements of a row.
struct Lane {
  uint row;
  uint column;
};

inline Lane lane_of(uint lane) {
  return {(lane / 4 & 4) + lane / 2 % 4, (lane / 4 & 2) * 2 + lane % 2 * 2};
}
