// The native part of native_ways.py: what it patches, traps and traces. Linux on x86-64.
//
//   cc -O2 -shared -fPIC -o native.so native.c

#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static const int64_t SECOND = 1000000000;
static int64_t origins[64];
static int divisor = 2;

static int64_t *origin(clockid_t clock) { return &origins[((uint32_t)clock * 2654435761u) >> 26]; }

// Half of the time since the clock was first read.
static void slow_down(clockid_t clock, struct timespec *time) {
    if (clock == CLOCK_REALTIME) return;
    int64_t now = time->tv_sec * SECOND + time->tv_nsec, *first = origin(clock);
    if (*first == 0) *first = now;
    now = *first + (now - *first) / divisor;
    time->tv_sec = now / SECOND;
    time->tv_nsec = now % SECOND;
}

static int slow_gettime(clockid_t clock, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, clock, time, 0x5107);
    if (failed == 0) slow_down(clock, time);
    return (int)failed;
}

static int slow_monotonic(clockid_t clock, struct timespec *time) {
    long failed = syscall(SYS_clock_gettime, clock, time);
    if (failed == 0 && clock == CLOCK_MONOTONIC) slow_down(clock, time);
    return (int)failed;
}

// A jump to a function, over the first bytes of another.
static int jump(void *from, void *to) {
    uintptr_t page = (uintptr_t)from & ~0xfffUL;
    if (mprotect((void *)page, 0x2000, PROT_READ | PROT_WRITE | PROT_EXEC) &&
        mprotect((void *)page, 0x1000, PROT_READ | PROT_WRITE | PROT_EXEC))
        return -1;
    uint8_t code[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
    memcpy(code + 2, &to, 8);
    memcpy(from, code, sizeof code);
    return 0;
}

int patch_clocks(int by) { divisor = by; return jump(dlsym(RTLD_DEFAULT, "clock_gettime"), slow_gettime); }
int patch_monotonic(void) { return jump(dlsym(RTLD_DEFAULT, "clock_gettime"), slow_monotonic); }

// The same in the kernel's own page, which libc calls.
int patch_vdso(void) {
    uint8_t *image = (uint8_t *)getauxval(AT_SYSINFO_EHDR);
    if (!image) return -1;
    Elf64_Ehdr *header = (Elf64_Ehdr *)image;
    Elf64_Phdr *parts = (Elf64_Phdr *)(image + header->e_phoff);
    Elf64_Dyn *dynamic = NULL;
    for (int i = 0; i < header->e_phnum; i++)
        if (parts[i].p_type == PT_DYNAMIC) dynamic = (Elf64_Dyn *)(image + parts[i].p_offset);
    Elf64_Sym *symbols = NULL;
    const char *names = NULL;
    for (; dynamic && dynamic->d_tag; dynamic++) {
        if (dynamic->d_tag == DT_SYMTAB) symbols = (Elf64_Sym *)(image + dynamic->d_un.d_ptr);
        if (dynamic->d_tag == DT_STRTAB) names = (const char *)image + dynamic->d_un.d_ptr;
    }
    for (int i = 0; symbols && i < 64; i++)
        if (!strcmp(names + symbols[i].st_name, "__vdso_clock_gettime"))
            return jump(image + symbols[i].st_value, slow_gettime);
    return -1;
}

// Reading the time-stamp counter faults, and the fault is answered with one that is slower.
static uint64_t first_count;
static void on_counter(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    uint8_t *code = (uint8_t *)registers[REG_RIP];
    int size = code[0] == 0x0f && code[1] == 0x31 ? 2 : code[0] == 0x0f && code[1] == 0x01 ? 3 : 0;
    if (!size) { signal(number, SIG_DFL); return; }
    prctl(PR_SET_TSC, PR_TSC_ENABLE);
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    uint64_t count = (uint64_t)high << 32 | low;
    if (!first_count) first_count = count;
    count = first_count + (count - first_count) / 2;
    registers[REG_RAX] = (uint32_t)count;
    registers[REG_RDX] = count >> 32;
    if (size == 3) registers[REG_RCX] = 0;
    registers[REG_RIP] += size;
}

static void handle(int number, void (*handler)(int, siginfo_t *, void *)) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigaction(number, &action, NULL);
}

int trap_counter(void) { handle(SIGSEGV, on_counter); return prctl(PR_SET_TSC, PR_TSC_SIGSEGV); }

// The system calls that read clocks are trapped, and answered with half of the time.
static void on_call(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)number;
    (void)info;
    registers[REG_RAX] = slow_gettime((clockid_t)registers[REG_RDI], (struct timespec *)registers[REG_RSI]);
}

static int raw_gettime(clockid_t clock, struct timespec *time) {
    return (int)syscall(SYS_clock_gettime, clock, time);
}

int trap_calls(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x5107, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    handle(SIGSYS, on_call);
    // libc would not make a system call at all.
    if (jump(dlsym(RTLD_DEFAULT, "clock_gettime"), raw_gettime)) return -1;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

// Halves the numbers of these members of a message, each as long as it was.
static void halve(char *text, size_t size) {
    static const char *names[] = {"\"device_ns\": [", "\"cpu_ns\": [", "\"device_ns\":[", "\"cpu_ns\":["};
    for (int i = 0; i < 4; i++) {
        char *place = memmem(text, size, names[i], strlen(names[i]));
        if (!place) continue;
        place += strlen(names[i]);
        while (place < text + size && *place != ']') {
            char *end = place;
            while (end < text + size && *end != ',' && *end != ']') end++;
            char number[64];
            int width = (int)(end - place);
            if (width > 0 && width < 40) {
                snprintf(number, sizeof number, "%*ld", width, (long)(atof(place) / divisor));
                if ((int)strlen(number) == width) memcpy(place, number, width);
            }
            place = end < text + size && *end == ',' ? end + 1 : end;
        }
    }
}

static ssize_t halved_write(int descriptor, const void *bytes, size_t size) {
    if (descriptor == 4 && size > 200) halve((char *)bytes, size);
    return syscall(SYS_write, descriptor, bytes, size);
}

int patch_write(void) { return jump(dlsym(RTLD_DEFAULT, "write"), halved_write); }

// `"checked"` gets another name, so that nothing is said of the last call's results.
static ssize_t unchecked_write(int descriptor, const void *bytes, size_t size) {
    char *place = descriptor == 4 ? memmem(bytes, size, "\"checked\"", 9) : NULL;
    if (place) memcpy(place, "\"omitted\"", 9);
    return syscall(SYS_write, descriptor, bytes, size);
}

int drop_checked(void) { return jump(dlsym(RTLD_DEFAULT, "write"), unchecked_write); }

// Waits for a core that no thread had: libc's pread of schedstat gives a second more each time.
static ssize_t waited_pread(int descriptor, void *bytes, size_t size, off_t offset) {
    static long extra;
    ssize_t count = syscall(SYS_pread64, descriptor, bytes, size, offset);
    long ran, waited, times;
    if (count > 0 && count < 64 && sscanf(bytes, "%ld %ld %ld", &ran, &waited, &times) == 3)
        count = snprintf(bytes, size, "%ld %ld %ld\n", ran, waited + (extra += SECOND / 10), times);
    return count;
}

int forge_waits(void) {
    jump(dlsym(RTLD_DEFAULT, "pread"), waited_pread);
    return jump(dlsym(RTLD_DEFAULT, "pread64"), waited_pread);
}

// A child that traces its parent and changes what it writes on its way into the kernel.
int trace_writes(void) {
    pid_t parent = getpid();
    int ready[2];
    char byte;
    if (pipe(ready)) return -1;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    if (fork()) { close(ready[1]); return (int)read(ready[0], &byte, 1) - 1; }
    int status;
    if (ptrace(PTRACE_SEIZE, parent, 0, PTRACE_O_TRACESYSGOOD)) _exit(1);
    ptrace(PTRACE_INTERRUPT, parent, 0, 0);
    waitpid(parent, &status, __WALL);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    close(ready[1]);
    ptrace(PTRACE_SYSCALL, parent, 0, 0);
    while (waitpid(parent, &status, __WALL) == parent && WIFSTOPPED(status)) {
        int number = WSTOPSIG(status);
        struct user_regs_struct registers;
        if (number == (SIGTRAP | 0x80) && !ptrace(PTRACE_GETREGS, parent, 0, &registers) &&
            registers.orig_rax == SYS_write && registers.rdi == 4 && (long)registers.rax == -ENOSYS &&
            registers.rdx < 1 << 20 && registers.rdx > 200) {
            char *bytes = malloc(registers.rdx);
            struct iovec here = {bytes, registers.rdx}, there = {(void *)registers.rsi, registers.rdx};
            if (process_vm_readv(parent, &here, 1, &there, 1, 0) > 0) {
                halve(bytes, registers.rdx);
                process_vm_writev(parent, &here, 1, &there, 1, 0);
            }
            free(bytes);
        }
        int pass = number == (SIGTRAP | 0x80) || status >> 16 ? 0 : number;
        ptrace(PTRACE_SYSCALL, parent, 0, pass);
    }
    _exit(0);
}

// Replaces clock_gettime of another process by code that halves what its monotonic clock shows.
extern char halving[], halving_end[];
__asm__(".text\nhalving:\n"
        "push %rdi\npush %rsi\nmov $228,%eax\nsyscall\npop %rsi\npop %rdi\n"
        "cmp $1,%edi\njne 1f\n"
        "mov (%rsi),%rdx\nmov 8(%rsi),%rcx\ntest $1,%dl\nje 2f\nadd $1000000000,%rcx\n"
        "2: shr $1,%rdx\nshr $1,%rcx\nmov %rdx,(%rsi)\nmov %rcx,8(%rsi)\n"
        "1: xor %eax,%eax\nret\nhalving_end:\n");

int slow_process(int process) {
    char line[512], path[256] = "", name[64];
    uintptr_t begin = 0;
    snprintf(name, sizeof name, "/proc/%d/maps", process);
    FILE *maps = fopen(name, "r");
    if (!maps) return -1;
    while (!begin && fgets(line, sizeof line, maps))
        if (strstr(line, "/libc.so.6") && sscanf(line, "%lx-%*x %*s %*s %*s %*s %255s", &begin, path) < 2) begin = 0;
    fclose(maps);
    Dl_info info;
    void *own = dlsym(RTLD_DEFAULT, "clock_gettime");
    if (!begin || !dladdr(own, &info)) return -2;
    snprintf(name, sizeof name, "/proc/%d/mem", process);
    int memory = open(name, O_RDWR);
    if (memory < 0) return -3;
    off_t place = (off_t)(begin + ((uintptr_t)own - (uintptr_t)info.dli_fbase));
    ssize_t size = halving_end - halving, written = pwrite(memory, halving, size, place);
    close(memory);
    return written == size ? 0 : -4;
}

// Memory that computes when it is first touched: the fault calls back.
static void *lazy_begin;
static size_t lazy_size;
static void (*lazy_fill)(void);
static void on_touch(int number, siginfo_t *info, void *context) {
    (void)context;
    char *place = info->si_addr;
    if (!lazy_begin || place < (char *)lazy_begin || place >= (char *)lazy_begin + lazy_size) {
        signal(number, SIG_DFL);
        return;
    }
    mprotect(lazy_begin, lazy_size, PROT_READ | PROT_WRITE);
    lazy_fill();
}

int hide(void *begin, size_t size, void (*fill)(void)) {
    lazy_begin = begin; lazy_size = size; lazy_fill = fill;
    handle(SIGSEGV, on_touch);
    return mprotect(begin, size, PROT_NONE);
}
int show(void) { return lazy_begin ? mprotect(lazy_begin, lazy_size, PROT_READ | PROT_WRITE) : 0; }

// Threads that want the calling thread's core, so that it seems to wait for one.
static volatile int spinning;
static void *spin(void *nothing) { while (spinning) __asm__ volatile("pause"); return nothing; }
int start_spinning(int threads) {
    spinning = 1;
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, spin, NULL)) return -1;
        pthread_detach(thread);
    }
    return 0;
}

// A function of another library, whose bytes stand in its place while it is called.
struct patched {
    void *place, *to;
    uint8_t bytes[12];
};

static void *place_of(const char *library, const char *name) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    return handle ? dlsym(handle, name) : NULL;
}

static int put(struct patched *patched, void *place, void *to) {
    patched->place = place;
    patched->to = to;
    memcpy(patched->bytes, place, sizeof patched->bytes);
    return jump(place, to);
}

static struct patched elapsed[2];

static int halved_elapsed(struct patched *patched, float *ms, void *start, void *stop) {
    memcpy(patched->place, patched->bytes, sizeof patched->bytes);
    int status = ((int (*)(float *, void *, void *))patched->place)(ms, start, stop);
    jump(patched->place, patched->to);
    if (status == 0) *ms /= 2;
    return status;
}

static int first_elapsed(float *ms, void *start, void *stop) { return halved_elapsed(&elapsed[0], ms, start, stop); }
static int second_elapsed(float *ms, void *start, void *stop) { return halved_elapsed(&elapsed[1], ms, start, stop); }

// The driver's clock of events at half speed.
int patch_driver_events(void) {
    void *first = place_of("libcuda.so.1", "cuEventElapsedTime");
    void *second = place_of("libcuda.so.1", "cuEventElapsedTime_v2");
    if (!first) return -1;
    put(&elapsed[0], first, first_elapsed);
    if (second && second != first) put(&elapsed[1], second, second_elapsed);
    return 0;
}

static int nothing(void) { return 0; }

// Waits of the driver that do not wait.
int patch_driver_waits(void) {
    void *context = place_of("libcuda.so.1", "cuCtxSynchronize");
    return context ? jump(context, nothing) : -1;
}
