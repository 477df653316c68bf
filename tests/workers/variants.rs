//! The behaviours that the fake worker has.

/// Each by its name, and in a line.
pub const VARIANTS: [(&str, &str); 22] = [
    ("steady", "the same time within a few parts in a thousand"),
    ("other", "as steady"),
    (
        "gpu",
        "as steady, with launches; `fault` says what goes wrong",
    ),
    ("slow", "twice the time of steady"),
    ("noisy", "invocations differ by a fifth"),
    ("wrong", "its result is off and it says so"),
    ("lying", "its result is off and it says it is right"),
    ("nan", "its result is not finite"),
    ("silent", "never answers prepare"),
    ("forking", "starts a child that outlives it, and hangs"),
    ("dead", "dies when it should measure"),
    (
        "loses-device",
        "loses its device when it should measure; with --state, for good",
    ),
    ("garbage", "writes something else on its channel"),
    ("unsupported", "does not do this"),
    ("impossible", "its clock does not move"),
    ("eager", "takes twice the samples that were asked for"),
    ("stale", "gives its first result for ever, and says so"),
    (
        "stale-lying",
        "gives its first result for ever, and says it is right",
    ),
    ("older", "knows one set of inputs, and checks before timing"),
    (
        "tuned",
        "as steady, with a tuner whose choice sets its time; `--tuner` says what it chooses",
    ),
    (
        "tuned-fixed",
        "the same, and no parameter for what its tuner chooses",
    ),
    ("clings", "dies when it should release its case"),
];
