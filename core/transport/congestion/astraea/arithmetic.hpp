// Functions that a policy's inputs and output go through, made of sums and products alone: a library's own
// logarithm and tanh may differ in the last digit from one machine to the next, and with it a whole run.
#pragma once

namespace loomnet::astraea {

// Within 1e-14 of the exact values, relative; `x` > 0 and finite for log2().
double log2(double x);
double exp2(double x);  // |x| < 1000
double tanh(double x);
// Whether this build rounds a product before it is added, as it must: tests ask.
bool rounds_products();

}  // namespace loomnet::astraea
