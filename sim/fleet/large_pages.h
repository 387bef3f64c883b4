#pragma once

// Large pages: a simulated fleet is a few megabytes a node, read at random, and half of its time may go to
// address translation, above all in a virtual machine.

namespace troupe::sim {

// From now on malloc() takes memory from one stretch for which the kernel was asked for pages of 2 MB; false:
// none available. Call it once, before there are threads.
bool prefer_large_pages();

}  // namespace troupe::sim
