/* SPDX-License-Identifier: MIT */
/* The little that a Cortex-M without an operating system needs before main(): a table of two vectors,
   the floating-point unit, .data and .bss, constructors. For qemu's mps2 boards (an385, an386, an500).
   Output goes through semihosting (newlib's librdimon). */
#include <stdint.h>

extern uint32_t __stack_top[], __stack_bottom[], __data_from[], __data_start[], __data_end[], __bss_start[],
    __bss_end[];
extern void __libc_init_array(void), initialise_monitor_handles(void), exit(int);
extern int main(void);

void reset(void) {
#if defined(__ARM_FP)
  *(volatile uint32_t *)0xE000ED88 |= 0xFU << 20; /* CPACR: coprocessors 10 and 11 */
  __asm volatile("dsb\nisb");
#endif
  for (uint32_t *to = __data_start, *from = __data_from; to < __data_end;) *to++ = *from++;
  for (uint32_t *to = __bss_start; to < __bss_end;) *to++ = 0;
  /* Painted, to see later how deep it was. */
  uint32_t *here;
  __asm volatile("mov %0, sp" : "=r"(here));
  for (uint32_t *to = __stack_bottom; to < here - 16;) *to++ = 0xA5A5A5A5U;
  /* SysTick: 24 bits down, the processor's clock. */
  *(volatile uint32_t *)0xE000E014 = 0xFFFFFF;
  *(volatile uint32_t *)0xE000E018 = 0;
  *(volatile uint32_t *)0xE000E010 = 5;
  initialise_monitor_handles();
  __libc_init_array();
  exit(main());
}
void fault(void) {
  exit(99);
}

__attribute__((section(".vectors"), used)) static void *const vectors[16] = {
    __stack_top, (void *)reset, (void *)fault, (void *)fault, (void *)fault, (void *)fault, (void *)fault};

void *__dso_handle = 0;
void _init(void) {}
void _fini(void) {}

uint32_t stack_used(void) {
  uint32_t *at = __stack_bottom;
  while (*at == 0xA5A5A5A5U) ++at;
  return (uint32_t)((char *)__stack_top - (char *)at);
}
uint32_t ticks_left(void) { return *(volatile uint32_t *)0xE000E018; }
