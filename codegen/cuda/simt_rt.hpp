// What the parts of the emulator share: lanes, the state of the running block, reporting. Never compiled with instrumentation.
#pragma once
#include "simt.hpp"

#include <string>
#include <vector>
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace simt {

enum class State : uint8_t { fresh, ready, at_barrier, in_warp_op, done };

struct Access {  // one lane's access, kept until its warp is accounted for
  const void* site;
  uint64_t address;
  uint32_t size;
  uint8_t kind, space;
};

struct Fiber;
struct Lane {  // one CUDA thread of the running block
  uint3 index;
  unsigned linear;
  State state;
  Fiber* fiber;
  int line;                // of the barrier or warp operation it waits at
  int op, arg, width;      // that operation
  unsigned mask;
  int predicate;
  uint64_t value, result;
  uint32_t warp_epoch;     // warp synchronisations passed
  std::vector<Access> log;
};

struct Machine {
  Lane* lanes = nullptr;
  unsigned threads = 0, warps = 0, capacity = 0;
  Lane* current = nullptr;  // null outside kernels
  dim3 grid, block;
  uint3 block_index;
  uint64_t block_number = 0;
  uint32_t epoch = 0;       // block barriers passed
  uint32_t launch = 0;      // number of the launch, from 1
  size_t shared = 0;        // bytes of dynamic shared memory of this launch
  const char *closure_low = nullptr, *closure_high = nullptr;  // the kernel's arguments
  void (*body)(void*) = nullptr;
  void* closure = nullptr;
  unsigned seed = 0;        // 0: lanes run in order; else warps and lanes are permuted
};

extern Machine machine;
extern SimtStats stats;

constexpr int WARP = 32;

// fibers
void resume(Lane* lane);                    // runs it until it waits or is done
void leave();                               // back to the scheduler, from a lane
bool on_stack(const Fiber* f, const char* p);

// memory and counting
void begin_memory();                        // of a launch
void account_warp(unsigned w);
void record(Lane* lane, const Access& a);
uint64_t distinct_sectors(int kind);

// reporting; only the first messages of a counter are kept as text
void complain(uint64_t& counter, const char* what, const void* site, const void* address, const char* detail = "");

}  // namespace simt
