//! What of variables and command lines is written down.
//!
//! Runs and baselines are committed, and printed into pull requests. So a value is kept only of
//! variables on which speed depends and that hold no secret; of others a short checksum.

/// Variables whose values are kept: settings of threads, allocators, compilers and GPUs.
const KEPT: &str = "
    OMP_NUM_THREADS OMP_THREAD_LIMIT OMP_DYNAMIC OMP_SCHEDULE OMP_PROC_BIND OMP_PLACES OMP_NESTED
    OMP_WAIT_POLICY OMP_STACKSIZE OMP_MAX_ACTIVE_LEVELS OMP_DISPLAY_ENV OMP_CANCELLATION
    GOMP_CPU_AFFINITY GOMP_SPINCOUNT GOMP_STACKSIZE KMP_AFFINITY KMP_BLOCKTIME KMP_HW_SUBSET
    KMP_LIBRARY KMP_STACKSIZE KMP_SETTINGS KMP_DUPLICATE_LIB_OK
    MKL_NUM_THREADS MKL_DYNAMIC MKL_ENABLE_INSTRUCTIONS MKL_DEBUG_CPU_TYPE MKL_CBWR
    MKL_THREADING_LAYER MKL_INTERFACE_LAYER MKL_VERBOSE OPENBLAS_NUM_THREADS OPENBLAS_CORETYPE
    OPENBLAS_MAIN_FREE GOTO_NUM_THREADS BLIS_NUM_THREADS BLIS_ARCH_TYPE VECLIB_MAXIMUM_THREADS
    NUMEXPR_NUM_THREADS NUMEXPR_MAX_THREADS RAYON_NUM_THREADS
    MALLOC_ARENA_MAX MALLOC_MMAP_THRESHOLD_ MALLOC_TRIM_THRESHOLD_ MALLOC_TOP_PAD_ MALLOC_CONF
    MALLOC_PERTURB_ GLIBC_TUNABLES LD_PRELOAD LD_LIBRARY_PATH PYTHONPATH
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUDA_DEVICE_MAX_CONNECTIONS
    CUDA_MODULE_LOADING CUDA_MODULE_DATA_LOADING CUDA_CACHE_DISABLE CUDA_CACHE_MAXSIZE
    CUDA_CACHE_PATH CUDA_FORCE_PTX_JIT CUDA_DISABLE_PTX_JIT CUDA_AUTO_BOOST CUDA_SCALE_LAUNCH_QUEUES
    CUDA_MPS_ACTIVE_THREAD_PERCENTAGE CUDA_MPS_PIPE_DIRECTORY CUDA_INJECTION64_PATH CUDA_HOME
    CUDA_PATH CUDA_VERSION CUDA_ENABLE_COREDUMP_ON_EXCEPTION CUDNN_VERSION CUDNN_HOME
    CUBLAS_WORKSPACE_CONFIG CUBLASLT_WORKSPACE_SIZE NVIDIA_TF32_OVERRIDE NVIDIA_VISIBLE_DEVICES
    NVIDIA_DRIVER_CAPABILITIES NVIDIA_REQUIRE_CUDA
    NVTE_FLASH_ATTN NVTE_FUSED_ATTN NVTE_UNFUSED_ATTN NVTE_FUSED_ATTN_BACKEND NVTE_TORCH_COMPILE
    NVTE_ALLOW_NONDETERMINISTIC_ALGO NVTE_FUSED_ATTN_FORCE_WORKSPACE_OPT NVTE_FLASH_ATTN_V3
    NCCL_ALGO NCCL_PROTO NCCL_NTHREADS NCCL_MIN_NCHANNELS NCCL_MAX_NCHANNELS NCCL_P2P_DISABLE
    NCCL_P2P_LEVEL NCCL_SHM_DISABLE NCCL_IB_DISABLE NCCL_NET_GDR_LEVEL NCCL_NVLS_ENABLE
    NCCL_BUFFSIZE NCCL_CUMEM_ENABLE NCCL_LAUNCH_MODE NCCL_VERSION NCCL_DEBUG
    TORCH_ALLOW_TF32_CUBLAS_OVERRIDE TORCH_CUDNN_V8_API_DISABLED TORCH_CUDNN_V8_API_ENABLED
    TORCH_CUDNN_SDPA_ENABLED TORCH_CUDNN_DETERMINISTIC TORCH_BLAS_PREFER_CUBLASLT
    TORCH_CUDA_ARCH_LIST TORCH_COMPILE_DISABLE TORCH_NUM_THREADS TORCH_CUDA_SANITIZER
    TORCHDYNAMO_DISABLE TORCHINDUCTOR_MAX_AUTOTUNE TORCHINDUCTOR_FX_GRAPH_CACHE
    TORCHINDUCTOR_CUDAGRAPHS TORCHINDUCTOR_FREEZING TORCHINDUCTOR_CACHE_DIR
    TORCHINDUCTOR_FORCE_DISABLE_CACHES TORCHINDUCTOR_COORDINATE_DESCENT_TUNING
    PYTORCH_ALLOC_CONF PYTORCH_CUDA_ALLOC_CONF PYTORCH_NO_CUDA_MEMORY_CACHING PYTORCH_JIT
    PYTORCH_NVML_BASED_CUDA_CHECK PYTORCH_VERSION ATEN_CPU_CAPABILITY
    TRITON_CACHE_DIR TRITON_HOME TRITON_INTERPRET TRITON_PRINT_AUTOTUNING TRITON_DISABLE_LINE_INFO
    TRITON_ALWAYS_COMPILE TRITON_CACHE_AUTOTUNING TRITON_F32_DEFAULT TRITON_PTXAS_PATH
    XLA_FLAGS XLA_PYTHON_CLIENT_PREALLOCATE XLA_PYTHON_CLIENT_MEM_FRACTION
    XLA_PYTHON_CLIENT_ALLOCATOR XLA_CLIENT_MEM_FRACTION
    JAX_ENABLE_X64 JAX_DISABLE_JIT JAX_DEFAULT_MATMUL_PRECISION JAX_PLATFORMS JAX_PLATFORM_NAME
    JAX_COMPILATION_CACHE_DIR JAX_ENABLE_COMPILATION_CACHE JAX_DISABLE_MOST_OPTIMIZATIONS
    JAX_DEBUG_NANS JAX_ENABLE_PGLE JAX_DEFAULT_DTYPE_BITS
    TF_XLA_FLAGS TF_ENABLE_ONEDNN_OPTS TF_NUM_INTEROP_THREADS TF_NUM_INTRAOP_THREADS
    TF_CPP_MIN_LOG_LEVEL TF_GPU_ALLOCATOR TF_CUDNN_DETERMINISTIC
    XFORMERS_DISABLE_FLASH_ATTN XFORMERS_FORCE_DISABLE_TRITON XFORMERS_ENABLE_TRITON
    XFORMERS_MORE_DETAILS XFORMERS_IGNORE_FLASH_VERSION_CHECK
    FLASH_ATTENTION_DETERMINISTIC FLASH_ATTENTION_TRITON_AMD_ENABLE FLASH_ATTENTION_DISABLE_BACKWARD
    FLASHINFER_WORKSPACE_BASE FLASHINFER_JIT_VERBOSE FLASHINFER_CUDA_ARCH_LIST CUTE_DSL_ARCH
    DNNL_MAX_CPU_ISA ONEDNN_MAX_CPU_ISA DNNL_VERBOSE ONEDNN_VERBOSE ONEDNN_DEFAULT_FPMATH_MODE
    NUMBA_NUM_THREADS NUMBA_THREADING_LAYER NUMBA_DISABLE_JIT TBB_NUM_THREADS
    VLLM_ATTENTION_BACKEND VLLM_USE_V1 VLLM_FLASH_ATTN_VERSION PYTHONMALLOC PYTHONDEVMODE
    REGATTA_COMPILER";

/// Words in the names of variables and options whose values are secrets.
const SECRET: [&str; 13] = [
    "key",
    "token",
    "secret",
    "passw",
    "passphrase",
    "pwd",
    "credential",
    "auth",
    "cookie",
    "private",
    "bearer",
    "session",
    "signature",
];

/// How well-known tokens begin.
const TOKENS: [&str; 14] = [
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "hf_",
    "sk-",
    "nvapi-",
    "AKIA",
    "ASIA",
    "xoxb-",
    "xoxp-",
    "pypi-Ag",
    "eyJ",
];

/// What stands in the place of a secret.
pub const HIDDEN: &str = "***";

/// True for the name of a variable or an option whose value is a secret.
pub fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|word| name.contains(word))
}

/// True for a number as `--num-splits-key 4` has it.
fn small(value: &str) -> bool {
    value.len() <= 3 && value.bytes().all(|byte| byte.is_ascii_digit())
}

/// What is kept of a variable: its value where that is harmless, nothing of a secret, and of any
/// other a checksum of 16 bits. That tells nearly every change, and fits too many values for
/// one of them to be found by it.
pub fn variable(name: &str, value: &str) -> Option<String> {
    if KEPT.split_whitespace().any(|kept| kept == name) {
        return Some(word(value));
    }
    let sum = || crc32fast::hash(format!("{name}={value}").as_bytes()) & 0xffff;
    (!names_a_secret(name)).then(|| format!("hidden:{:04x}", sum()))
}

/// A command line without secrets: the values of options and variables that name one, tokens by
/// how they begin, and passwords in addresses.
pub fn command_line(words: &[String]) -> Vec<String> {
    let mut hide_next = false;
    let kept = words.iter().map(|text| {
        let is_option = text.starts_with('-');
        if std::mem::take(&mut hide_next) && !is_option && !small(text) {
            return HIDDEN.to_owned();
        }
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text.as_str(), None),
        };
        let plain = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let assigned = value.is_some() && name.chars().all(plain);
        if (is_option || assigned) && names_a_secret(name) {
            match value {
                Some(value) if !small(value) => return format!("{name}={HIDDEN}"),
                Some(_) => {}
                None => hide_next = true,
            }
        }
        word(text)
    });
    kept.collect()
}

/// A word without the token or the password in it; one with spaces is a command line again.
fn word(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    if lower.contains("authorization:") || lower.contains("bearer ") {
        return HIDDEN.to_owned();
    }
    if text.contains(' ') {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        return command_line(&words).join(" ");
    }
    let ends = |c: char| !(c.is_ascii_alphanumeric() || "_-.+/".contains(c));
    let mut found = String::new();
    for part in text.split_inclusive(ends) {
        let begins = |token: &str| part.starts_with(token) && part.len() > token.len() + 8;
        match TOKENS.into_iter().any(begins) {
            true => found.push_str(HIDDEN),
            false => found.push_str(part),
        }
    }
    // `https://user:password@host`.
    let Some((scheme, rest)) = found.split_once("://") else {
        return found;
    };
    let host = rest.find(['/', '?']).unwrap_or(rest.len());
    match rest[..host].rfind('@') {
        Some(at) => format!("{scheme}://{HIDDEN}{}", &rest[at..]),
        None => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variables_value_is_kept_where_its_name_is_known_and_of_no_secret() {
        assert_eq!(variable("OMP_NUM_THREADS", "4").as_deref(), Some("4"));
        for name in [
            "NVIDIA_API_KEY",
            "TORCH_HUB_TOKEN",
            "JAX_Auth",
            "CUDA_DB_PASSWORD",
        ] {
            assert_eq!(variable(name, "1234"), None, "{name}");
        }
        let hidden = |value| variable("NCCL_PLUGIN_OPTIONS", value).unwrap();
        assert_ne!(hidden("hunter2"), hidden("hunter3"));
        assert!(hidden("hunter2").starts_with("hidden:") && hidden("hunter2").len() == 11);
        let flags = variable("XLA_FLAGS", "--a=1,ghp_0123456789abcdef0123");
        assert_eq!(flags.as_deref(), Some("--a=1,***"));
    }

    #[test]
    fn a_command_line_is_kept_without_its_secrets() {
        for (line, kept) in [
            (
                "serve --api-key=hunter2 --port=8000",
                "serve --api-key=*** --port=8000",
            ),
            ("serve --token hunter2 --quiet", "serve --token *** --quiet"),
            ("serve --use-auth --quiet", "serve --use-auth --quiet"),
            (
                "env API_KEY=hunter2 OMP_NUM_THREADS=4 serve",
                "env API_KEY=*** OMP_NUM_THREADS=4 serve",
            ),
            (
                "serve https://me:hunter2@host/a@b",
                "serve https://***@host/a@b",
            ),
            ("serve --hub hf_0123456789abcdef0123", "serve --hub ***"),
            (
                "regatta run --set torch/sdpa.num_splits_key=1",
                "regatta run --set torch/sdpa.num_splits_key=1",
            ),
            (
                "serve --num-splits-key 4 --tile-keys=128",
                "serve --num-splits-key 4 --tile-keys=128",
            ),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(command_line(&words).join(" "), kept);
        }
        let spec = ["worker:mine=./serve --api-key=hunter2".to_owned()];
        assert_eq!(command_line(&spec), ["worker:mine=./serve --api-key=***"]);
        let header = ["-H".to_owned(), "Authorization: Bearer hunter2".to_owned()];
        assert_eq!(command_line(&header), ["-H", HIDDEN]);
    }
}
