// Device memory and its shadow: bounds, initialisation, races. The hooks at the end are what instrumented code calls.
//
// Each 4-byte word of global and shared memory has a cell with the stamps of its last write, its last two reads by different threads and a read by
// another block. Two accesses race iff they come from different threads, one writes, not both are atomic, and neither a block barrier (same
// block) nor a warp synchronisation (same warp) lies between. This does not depend on the order in which the lanes happened to run.
#include "simt_rt.hpp"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <sys/mman.h>

extern "C" {  // bounds of the section that holds __shared__ variables; absent when there are none
extern char __start_simt_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_simt_shared[] __attribute__((weak, visibility("hidden")));
}

namespace simt {

constexpr size_t ARENA = size_t(1) << 30, GAP = 65536;  // addresses are reserved, pages are touched when used
constexpr size_t DYNAMIC = 256 * 1024, STATIC = 256 * 1024;
enum : uint8_t { ALLOCATED = 1, INITIALISED = 2 };

struct Cell {
  uint64_t write, read1, read2, foreign;
  uint8_t write_bytes, read1_bytes, read2_bytes, foreign_bytes;  // which of the word's bytes
  uint32_t launch;                                              // launches are ordered, so a cell of an earlier one counts as empty
};

static char* arena;
static size_t used;
static uint8_t* state;                    // per byte of the arena
static Cell *global_cells, *static_cells, *dynamic_cells;
static uint32_t* sector_launch[2];        // [read, written]: the launch that last touched a sector
static uint64_t sector_count[2];
static std::map<size_t, size_t> live;     // offset -> bytes
alignas(256) static char dynamic_shared[DYNAMIC];

static void* reserve(size_t n) {
  void* p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    perror("simt: address space");
    abort();
  }
  return p;
}

static void set_up() {
  if (arena) return;
  arena = (char*)reserve(ARENA);
  state = (uint8_t*)reserve(ARENA);
  global_cells = (Cell*)reserve(ARENA / 4 * sizeof(Cell));
  static_cells = (Cell*)reserve(STATIC / 4 * sizeof(Cell));
  dynamic_cells = (Cell*)reserve(DYNAMIC / 4 * sizeof(Cell));
  for (auto& s : sector_launch) s = (uint32_t*)reserve(ARENA / 32 * sizeof(uint32_t));
  if (__start_simt_shared && size_t(__stop_simt_shared - __start_simt_shared) > STATIC) {
    fputs("simt: too much static shared memory\n", stderr);
    abort();
  }
}

void begin_memory() {
  set_up();
  sector_count[0] = sector_count[1] = 0;
}
uint64_t distinct_sectors(int kind) { return sector_count[kind]; }

static void touch(uint64_t offset, int size, int kind) {
  for (uint64_t s = offset / 32; s <= (offset + size - 1) / 32; ++s)
    for (int w = kind == SIMT_STORE; w <= (kind != SIMT_LOAD); ++w)
      if (sector_launch[w][s] != machine.launch) {
        sector_launch[w][s] = machine.launch;
        ++sector_count[w];
      }
}

// --- stamps: block 24 bits | thread 10 | block epoch 16 | warp epoch 12 | atomic 1 | present 1 -------------------------------------
static inline uint64_t stamp(bool atomic) {
  const Lane& l = *machine.current;
  return machine.block_number << 40 | uint64_t(l.linear) << 30 | uint64_t(machine.epoch & 0xffff) << 14 | uint64_t(l.warp_epoch & 0xfff) << 2 |
         uint64_t(atomic) << 1 | 1;
}
static inline bool unordered(uint64_t before, uint64_t now, bool shared) {
  if (!(before & 1)) return false;
  const uint64_t d = before ^ now;
  if (d >> 40) return !shared;                            // another block: other shared memory, but global is never ordered within a launch
  if (!(d >> 30 & 1023)) return false;                    // the same thread
  if (d >> 14 & 0xffff) return false;                     // a block barrier between
  return (d >> 35 & 31) || !(d >> 2 & 0xfff);             // the same warp: a warp synchronisation between
}

static void check_race(Cell& c, int kind, bool shared, uint8_t bytes, const void* site, const void* p) {
  const uint64_t now = stamp(kind == SIMT_ATOMIC);
  uint64_t other = 0;
  if ((c.write_bytes & bytes) && unordered(c.write, now, shared) && !(kind == SIMT_ATOMIC && (c.write & 2))) other = c.write;
  if (kind != SIMT_LOAD && !other) {
    if ((c.read1_bytes & bytes) && unordered(c.read1, now, shared)) other = c.read1;
    else if ((c.read2_bytes & bytes) && unordered(c.read2, now, shared)) other = c.read2;
    else if ((c.foreign_bytes & bytes) && unordered(c.foreign, now, shared)) other = c.foreign;
  }
  if (other) {
    char text[64];
    snprintf(text, sizeof text, "with block %llu thread %llu", (unsigned long long)(other >> 40), (unsigned long long)(other >> 30 & 1023));
    complain(stats.races, kind == SIMT_LOAD ? "race, read" : "race, write", site, p, text);
  }
  if (kind == SIMT_LOAD) {
    const uint64_t d = c.read1 ^ now;
    if (d >> 30) {  // another thread than the last reader
      if ((c.read1 & 1) && d >> 40) c.foreign = c.read1, c.foreign_bytes = c.read1_bytes;
      c.read2 = c.read1, c.read2_bytes = c.read1_bytes;
      c.read1_bytes = 0;
    } else if (d) {
      c.read1_bytes = 0;
    }
    c.read1 = now, c.read1_bytes |= bytes;
  } else {
    if (c.write != now) c.write_bytes = 0;
    c.write = now, c.write_bytes |= bytes;
  }
}

static inline uint8_t bytes_of_word(size_t offset, size_t size, size_t word) {
  uint8_t m = 0;
  for (size_t b = std::max(offset, word * 4); b < std::min(offset + size, word * 4 + 4); ++b) m |= uint8_t(1 << (b & 3));
  return m;
}
static inline Cell& fresh(Cell& c) {
  if (c.launch != machine.launch) c = Cell{}, c.launch = machine.launch;
  return c;
}

static void check_global(size_t o, size_t size, int kind, const void* site, const void* p) {
  for (size_t b = o; b < o + size; ++b)
    if (!(state[b] & ALLOCATED)) return complain(stats.out_of_bounds, kind == SIMT_LOAD ? "global read out of bounds" : "global write out of bounds", site, p);
  if (kind != SIMT_STORE)
    for (size_t b = o; b < o + size; ++b)
      if (!(state[b] & INITIALISED)) {
        complain(stats.uninitialised, "global read of uninitialised memory", site, p);
        break;
      }
  if (kind != SIMT_LOAD) memset(state + o, ALLOCATED | INITIALISED, size);
  for (size_t w = o / 4; w <= (o + size - 1) / 4; ++w) check_race(fresh(global_cells[w]), kind, false, bytes_of_word(o, size, w), site, p);
  touch(o, (int)size, kind);
}

static void check_shared(Cell* cells, size_t o, size_t size, int kind, const void* site, const void* p) {
  for (size_t w = o / 4; w <= (o + size - 1) / 4; ++w) {
    Cell& c = fresh(cells[w]);
    if (kind != SIMT_STORE && (!(c.write & 1) || c.write >> 40 != machine.block_number))
      complain(stats.uninitialised, "shared read of uninitialised memory", site, p);
    check_race(c, kind, true, bytes_of_word(o, size, w), site, p);
  }
}

static void access(const void* p, int size, int kind, const void* site) {
  Lane* l = machine.current;
  if (!l) return;  // host code of the launcher
  const char* a = (const char*)p;
  uint8_t space;
  if (on_stack(l->fiber, a) || (a >= machine.closure_low && a < machine.closure_high)) {
    ++stats.local;
    return;
  }
  if (size <= 16 && (uintptr_t(a) & uintptr_t(size - 1))) complain(stats.misaligned, "misaligned access", site, p);
  if (a >= arena && a + size <= arena + ARENA) {
    check_global(a - arena, size, kind, site, p);
    space = SIMT_GLOBAL;
  } else if (a >= dynamic_shared && a < dynamic_shared + DYNAMIC) {
    if (a + size > dynamic_shared + machine.shared) return complain(stats.out_of_bounds, "dynamic shared access out of bounds", site, p);
    check_shared(dynamic_cells, a - dynamic_shared, size, kind, site, p);
    space = SIMT_SHARED;
  } else if (__start_simt_shared && a >= __start_simt_shared && a < __stop_simt_shared) {
    check_shared(static_cells, a - __start_simt_shared, size, kind, site, p);
    space = SIMT_SHARED;
  } else {  // no memory of the device: performing it could end the process, so the thread ends instead
    complain(stats.out_of_bounds, "wild access", site, p);
    l->state = State::done;
    leave();
    __builtin_unreachable();
  }
  record(l, {site, space == SIMT_GLOBAL ? uint64_t(a - arena) : uint64_t(uintptr_t(a)), (uint32_t)size, (uint8_t)kind, space});
}

}  // namespace simt

using namespace simt;

// --- host side ----------------------------------------------------------------------------------------------------------------------
extern "C" {
cudaError_t simt_malloc(void** p, size_t n) {
  set_up();
  const size_t start = (used + GAP + 255) & ~size_t(255);
  if (start + n + GAP > ARENA) return cudaErrorMemoryAllocation;
  memset(state + start, ALLOCATED, n);
  memset(arena + start, 0xff, n);  // NaN in floats
  live[start] = n;
  used = start + n;
  *p = arena + start;
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  if (!p) return cudaSuccess;
  const auto at = live.find((char*)p - arena);
  if (at == live.end()) return cudaErrorInvalidValue;
  memset(state + at->first, 0, at->second);
  live.erase(at);
  return cudaSuccess;
}
void simt_upload(void* d, const void* h, size_t n) {
  memcpy(d, h, n);
  memset(state + ((char*)d - arena), ALLOCATED | INITIALISED, n);
}
// copies back and returns how many of the bytes were never written
size_t simt_download(void* h, const void* d, size_t n) {
  memcpy(h, d, n);
  const uint8_t* s = state + ((const char*)d - arena);
  return n - std::count_if(s, s + n, [](uint8_t b) { return b & INITIALISED; });
}
size_t simt_live() { return live.size(); }
void simt_free_all() {
  for (auto& [start, n] : live) memset(state + start, 0, n);
  live.clear();
  used = 0;
}
void* simt_dynamic_shared() { return dynamic_shared; }
void simt_access(const void* p, int size, int kind, const void* site) { access(p, size, kind, site); }

#define SIMT_HOOK(prefix, n)                                                                                            \
  void __tsan_##prefix##read##n(void* p) { access(p, n, SIMT_LOAD, __builtin_return_address(0)); }                      \
  void __tsan_##prefix##write##n(void* p) { access(p, n, SIMT_STORE, __builtin_return_address(0)); }
#define SIMT_HOOKS(n) SIMT_HOOK(, n) SIMT_HOOK(unaligned_, n) SIMT_HOOK(volatile_, n)
SIMT_HOOKS(1)
SIMT_HOOKS(2)
SIMT_HOOKS(4)
SIMT_HOOKS(8)
SIMT_HOOKS(16)
void __tsan_read_range(void* p, unsigned long n) { access(p, (int)n, SIMT_LOAD, __builtin_return_address(0)); }
void __tsan_write_range(void* p, unsigned long n) { access(p, (int)n, SIMT_STORE, __builtin_return_address(0)); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
