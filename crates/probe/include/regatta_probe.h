/* regatta's GPU clock and launch census, for callers in C and C++.
 *
 * Link with libregatta_probe.so, which `cargo rustc -p regatta-probe --release
 * --crate-type cdylib` makes; it loads the CUDA driver by itself and is linked with nothing
 * of CUDA's.
 *
 * Every function that gives an int gives REGATTA_PROBE_OK or one of the codes below, and
 * regatta_probe_last_error() has the words. Every out-pointer but `probe` may be null. A NaN
 * is a figure that is not known; in a state it is UINT32_MAX or UINT64_MAX. Times are
 * nanoseconds. One thread at a time may use a clock, with the context that was current when
 * it was opened.
 *
 * Between regatta_probe_sample_begin and regatta_probe_sample_end the caller makes the call
 * once, on the clock's stream, and nothing else on the device; if it fails it calls
 * regatta_probe_sample_cancel. The gate is closed in between, and opens by itself after
 * 50 ms. docs/TIMING.md says what a sample is.
 */
#ifndef REGATTA_PROBE_H
#define REGATTA_PROBE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
  REGATTA_PROBE_OK = 0,
  REGATTA_PROBE_UNAVAILABLE = 1,    /* no driver, no device; for CUPTI's part, no CUPTI or permission */
  REGATTA_PROBE_CUDA_FAILED = 2,    /* the driver failed, or the timed call's work did */
  REGATTA_PROBE_BAD_ARGUMENT = 3,   /* null, or out of range */
  REGATTA_PROBE_WRONG_ORDER = 4,    /* an end without a begin */
  REGATTA_PROBE_CALL_FAILED = 5,    /* the callback said so */
  REGATTA_PROBE_PANICKED = 7        /* a bug in the clock */
};

/* A flag of a sample: the call waited for the device itself, and opened its gate. */
#define REGATTA_PROBE_SYNCHRONISED 1u

/* One clock: one stream of one device. */
typedef struct regatta_probe regatta_probe;

typedef struct {
  uint64_t throttle_reasons; /* nvmlClocksThrottleReason* bits */
  uint32_t sm_mhz, memory_mhz, power_mw, temperature_c, other_processes;
} regatta_probe_state_t;

/* Version of the clock's method, to be kept beside each reading: "0.2". */
const char *regatta_probe_version(void);
/* Words of this thread's last failure; valid until its next one. */
const char *regatta_probe_last_error(void);

/* A clock on a stream (null: the legacy default stream), calibrated. The stream lives until
 * the clock is closed. */
int regatta_probe_open(int ordinal, void *stream, regatta_probe **probe);
void regatta_probe_close(regatta_probe *probe);

int regatta_probe_sample_begin(regatta_probe *probe, int cold);
int regatta_probe_sample_end(regatta_probe *probe, double *device_ns, double *host_ns,
                             double *clock_mhz, uint32_t *flags);
int regatta_probe_sample_cancel(regatta_probe *probe);

/* Queues a kernel that does nothing, for a caller who checks the clock. */
int regatta_probe_null_kernel(regatta_probe *probe);
int regatta_probe_state(regatta_probe *probe, regatta_probe_state_t *state);

/* XLA's stream is its own: a computation ends with a marker, regatta_probe_xla_mark, which is
 * a typed FFI handler (XLA_FFI_Handler). The sample's stop event is recorded by the last of
 * `calls` markers, for which regatta_probe_xla_end waits: for late_ns. */
void *regatta_probe_xla_mark(void *call_frame);
int regatta_probe_xla_stream(void **stream);
int regatta_probe_xla_begin(regatta_probe *probe, int cold, uint32_t calls);
int regatta_probe_xla_end(regatta_probe *probe, double *device_ns, double *late_ns,
                          double *clock_mhz, uint32_t *flags);

/* The launch census of one call, through CUPTI: what is launched between begin and end.
 * `called` and `returned`, both optional, mark where the host began the call and was done. `json` is valid until the next end. */
int regatta_probe_census_begin(void);
int regatta_probe_census_called(void);
int regatta_probe_census_returned(void);
int regatta_probe_census_end(const char **json);

/* Hardware counters of each kernel between begin and end, through CUPTI's range profiler, by
 * the names of its metrics. CUPTI runs each kernel once a pass: the call is made once.
 * `kernels` is how many will be launched, or 0 where that is not known; more take longer to
 * begin. No census may be open. `json` is valid until the next end:
 * {"passes", "dropped", "metrics": [name], "unavailable": [name], "kernels": [[value]]},
 * kernels in the order of their launches, values in that of "metrics". */
int regatta_probe_counters_begin(const char *const *metrics, uint32_t count, uint32_t kernels);
int regatta_probe_counters_end(const char **json);

#ifdef __cplusplus
}
#endif

#endif
