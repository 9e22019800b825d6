// Fibers: one per CUDA thread of the running block, pooled, with a guard page below each stack.
#include "simt_rt.hpp"

#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace simt {

constexpr size_t STACK = 65536, GUARD = 4096;

struct Fiber {
  char* stack;
  size_t colour;  // offset of the first frame: equal offsets would put all frames in one set of the L1 cache
#if defined(__x86_64__)
  void* sp;
#else
  ucontext_t context;
#endif
};

static std::vector<Fiber*> pool;

static Fiber* take_fiber() {
  if (!pool.empty()) {
    Fiber* f = pool.back();
    pool.pop_back();
    return f;
  }
  static unsigned made = 0;
  char* m = (char*)mmap(nullptr, STACK + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (m == MAP_FAILED || mprotect(m, GUARD, PROT_NONE) != 0) {
    perror("simt: stack of a fiber");
    abort();
  }
  Fiber* f = new Fiber;
  f->stack = m + GUARD;
  f->colour = (made++ * 5 % 64) * 64;
  return f;
}

bool on_stack(const Fiber* f, const char* p) { return p >= f->stack && p < f->stack + STACK; }

static void entry() {
  machine.body(machine.closure);
  machine.current->state = State::done;
  leave();
  __builtin_unreachable();
}

#if defined(__x86_64__)
extern "C" void simt_switch(void** save, void* to);
// callee-saved registers go to the old stack, the new stack's come back; `ret` continues there
asm(R"(
.text
.globl simt_switch
.hidden simt_switch
.type simt_switch,@function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch,.-simt_switch
)");

static void* scheduler_sp;

static void prepare(Fiber* f) {
  void** sp = (void**)(f->stack + STACK - f->colour);
  *--sp = nullptr;  // keeps the frame aligned as after a call
  *--sp = (void*)entry;
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
  f->sp = sp;
}
static void enter(Fiber* f) { simt_switch(&scheduler_sp, f->sp); }
void leave() { simt_switch(&machine.current->fiber->sp, scheduler_sp); }
#else
static ucontext_t scheduler_context;

static void prepare(Fiber* f) {
  getcontext(&f->context);
  f->context.uc_stack.ss_sp = f->stack;
  f->context.uc_stack.ss_size = STACK;
  f->context.uc_link = nullptr;
  makecontext(&f->context, entry, 0);
}
static void enter(Fiber* f) { swapcontext(&scheduler_context, &f->context); }
void leave() { swapcontext(&machine.current->fiber->context, &scheduler_context); }
#endif

void resume(Lane* lane) {
  if (lane->state == State::fresh) {
    lane->fiber = take_fiber();
    prepare(lane->fiber);
  }
  lane->state = State::ready;
  machine.current = lane;
  enter(lane->fiber);
  machine.current = nullptr;
  if (lane->state == State::done) {
    pool.push_back(lane->fiber);
    lane->fiber = nullptr;
  }
}

}  // namespace simt
